"""Load: many clients of one server, from one process. Used by benchmarks/serve.py and by the tests of serving.

    python benchmarks/load.py 127.0.0.1:8000 bodies.jsonl --clients 64 --seconds 10 --out load.json

Each client keeps a connection, sends a body of the file, waits for the answer and sends the next. It speaks just enough
HTTP to spend little processor time. A client leaves a connection when the answer asks for it. SIGTERM ends the load:
requests under way are still answered.

The result holds the machine's speed before and after, and one entry per request: when it was sent (the clock of
time.monotonic), seconds until its answer, and its status. Status 0 is a request that was sent and not answered, and -1
a connection that could not be opened.
"""

import argparse
import asyncio
import json
import random
import re
import signal
import time
from pathlib import Path

import uvloop

DROPPED, NOT_CONNECTED = 0, -1
_REFERENCE = 0.06  # seconds that the loop of `machine_speed` takes on the machine on which the goals were set
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)")
_CONNECT_PAUSE = 0.02  # seconds until a client that was refused a connection tries again


def machine_speed() -> tuple[float, float]:
    """Speed of this machine now, by processor time and by the clock; 1 on the machine on which the goals were set.

    The second one is lower if other processes use the processors.
    """
    clock, processor = time.perf_counter(), time.process_time()
    total = 0
    for value in range(2_000_000):
        total += value & 7
    return _REFERENCE / (time.process_time() - processor), _REFERENCE / (time.perf_counter() - clock)


class Result:
    """What happened to all requests."""

    def __init__(self, *, keep: bool) -> None:
        self.sent: list[float] = []
        self.seconds: list[float] = []
        self.status: list[int] = []
        self.without_retry_after = 0
        self.answers: dict[int, set[tuple[str, tuple[str, ...]]]] | None = {} if keep else None
        self.examples: dict[int, str] = {}
        self.speeds = [machine_speed()]

    def add(self, sent: float, status: int, head: bytes, body: bytes, number: int) -> None:
        """A request ended."""
        self.sent.append(sent)
        self.seconds.append(time.monotonic() - sent)
        self.status.append(status)
        if status in (429, 503) and b"\r\nretry-after: " not in head:
            self.without_retry_after += 1
        if status != 200 and status not in self.examples:
            self.examples[status] = body[:300].decode("utf-8", "replace")
        if status == 200 and self.answers is not None:
            answer = json.loads(body)
            items = tuple(item["item"] for item in answer["items"])
            self.answers.setdefault(number, set()).add((answer["model"]["version"], items))

    def to_json(self) -> str:
        """All of it."""
        answers = {number: sorted(answers) for number, answers in (self.answers or {}).items()}
        return json.dumps({**vars(self), "answers": answers})


class Connection(asyncio.Protocol):
    """One connection; `ask` sends a request and waits for its answer."""

    def __init__(self) -> None:
        self.is_open = True
        self._data = b""
        self._waiter: asyncio.Future[tuple[int, bytes, bytes]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]

    async def ask(self, request: bytes) -> tuple[int, bytes, bytes]:
        """Status, head and body of the answer."""
        self._waiter = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self._waiter

    def data_received(self, data: bytes) -> None:
        data = self._data + data if self._data else data
        end = data.find(b"\r\n\r\n")
        length = _LENGTH.search(data, 0, end) if end >= 0 else None
        if length is None or len(data) < end + 4 + int(length[1]):
            self._data = data
            return
        self._data = b""
        head = data[:end]
        if b"\r\nconnection: close" in head:
            self.is_open = False
            self.transport.close()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result((int(head[9:12]), head, data[end + 4 :]))

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result((DROPPED, b"", str(exc).encode()))


class Load:
    """All clients."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.host, _, port = arguments.address.rpartition(":")
        self.port, self.pause = int(port), arguments.pause
        self.waits = arguments.respect_retry_after
        token = f"Authorization: Bearer {arguments.token}\r\n" if arguments.token else ""
        self.requests = [
            f"POST /v1/recommend HTTP/1.1\r\nHost: {self.host}\r\n{token}Content-Type: application/json\r\n"
            f"Content-Length: {len(body.encode())}\r\n\r\n{body}".encode()
            for body in arguments.bodies.read_text().splitlines()
        ]
        self.result = Result(keep=arguments.keep_answers)
        self.until = time.monotonic() + arguments.seconds  # after the speed was measured

    def stop(self) -> None:
        """Send no further request."""
        self.until = 0.0

    async def client(self, seed: int) -> None:
        """Send requests until the time is over."""
        rng, connection = random.Random(seed), None
        while time.monotonic() < self.until:
            started = time.monotonic()
            try:
                if connection is None or not connection.is_open:
                    loop = asyncio.get_running_loop()
                    _, connection = await loop.create_connection(Connection, self.host, self.port)
            except OSError as error:
                self.result.add(started, NOT_CONNECTED, b"", str(error).encode(), 0)
                await asyncio.sleep(_CONNECT_PAUSE)
                continue
            number = rng.randrange(len(self.requests))
            started = time.monotonic()
            status, head, body = await connection.ask(self.requests[number])
            self.result.add(started, status, head, body, number)
            if self.waits and status in (429, 503):
                await asyncio.sleep(rng.uniform(1.0, 1.5))
            if self.pause:
                await asyncio.sleep(self.pause * rng.uniform(0.5, 1.5))
        if connection is not None:
            connection.transport.close()

    async def run(self, clients: int) -> None:
        """Run all clients to the end."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.stop)
        print("started", flush=True)
        await asyncio.gather(*(self.client(seed) for seed in range(clients)))


def main() -> None:
    """Run the load that the command line describes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address", help="HOST:PORT of the server")
    parser.add_argument("bodies", type=Path, help="file with one request body per line")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--pause", type=float, default=0.0, help="mean seconds between an answer and the next request")
    parser.add_argument("--respect-retry-after", action="store_true", help="wait a second after a refusal")
    parser.add_argument("--keep-answers", action="store_true", help="keep model and items of each different answer")
    parser.add_argument("--token")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    load = Load(arguments)
    uvloop.run(load.run(arguments.clients))
    load.result.speeds.append(machine_speed())
    arguments.out.write_text(load.result.to_json())


if __name__ == "__main__":
    main()
