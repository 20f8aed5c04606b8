"""`ecoc serve` as a real process on a real loopback socket, for the tests of serving."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

ECOC = Path(sys.executable).parent / "ecoc"


class Server:
    """A server that answers. Its standard error is collected in `log`, unless nobody shall read it."""

    def __init__(
        self,
        model: Path,
        *options: str,
        port: int = 0,
        token: str | None = None,
        access_log: bool = False,
        reads_log: bool = True,
        as_json: bool = True,
    ) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        environment.pop("ECOC_TOKEN", None)
        if token is not None:
            environment["ECOC_TOKEN"] = token
        log = "--access-log" if access_log else "--no-access-log"
        arguments = [str(ECOC), "serve", str(model), "--port", str(port), log, *["--json"] * as_json, *options]
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        assert self.process.stdout is not None
        self._log: list[bytes] = []
        self._reader = threading.Thread(target=self._read_log)
        if reads_log:
            self._reader.start()
        lines = [self.process.stdout.readline().decode() for _ in range(1 if as_json else 3)]
        if not lines[0]:
            raise AssertionError(f"the server ended with {self.stop()}: {self.log}")
        self.text = "".join(lines)
        self.opened: dict[str, Any] = json.loads(self.text) if as_json else {}
        self.address: str = self.opened["address"] if as_json else lines[0].split()[-1]

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        while part := os.read(self.process.stderr.fileno(), 65536):
            self._log.append(part)

    @property
    def log(self) -> str:
        """What the server wrote to standard error so far."""
        return b"".join(self._log).decode()

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The log of a server that has stopped."""
        return [json.loads(line) for line in self.log.splitlines()]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def client(self, **settings: Any) -> httpx.Client:
        return httpx.Client(base_url=self.address, timeout=20, trust_env=False, **settings)

    def connect(self, timeout: float = 15.0) -> socket.socket:
        """A connection without HTTP."""
        return socket.create_connection(("127.0.0.1", self.port), timeout)

    def exchange(self, data: bytes, timeout: float = 15.0) -> bytes:
        """Send bytes and read what is answered until the server closes the connection."""
        with self.connect(timeout) as end:
            with suppress(ConnectionError):
                end.sendall(data)
            return read_all(end)

    def stop(self) -> int:
        """Stop the server; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self._reader.ident is not None:
            self._reader.join(10)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        return self.process.returncode


def read_all(end: socket.socket) -> bytes:
    """What a connection brings until it is closed."""
    parts = []
    with suppress(ConnectionError):
        while part := end.recv(65536):
            parts.append(part)
    return b"".join(parts)


@contextmanager
def serving(model: Path, *options: str, **settings: Any) -> Iterator[Server]:
    """A server for the time of a block."""
    server = Server(model, *options, **settings)
    try:
        yield server
    finally:
        server.stop()
