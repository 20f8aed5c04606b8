"""Hostile requests: each is refused by 4xx and a line that says why, and the server goes on answering others."""

import gzip
import json
import os
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from server_case import Server, read_all, serving

JSON = {"Content-Type": "application/json"}
FUZZ_SECONDS = float(os.environ.get("ECOC_FUZZ_SECONDS", "15"))


@pytest.fixture(scope="module")
def server(models: Path) -> Iterator[Server]:
    with serving(models / "ecoc-bundle") as server:
        yield server
        assert server.is_running
        assert server.stop() == 0
        assert server.log == ""  # neither a traceback nor any other complaint


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def check_refusal(response: httpx.Response, *statuses: int) -> str:
    assert response.status_code in statuses, response.text
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert set(error) == {"code", "message"}
    assert "Traceback" not in response.text
    assert "\n" not in error["message"]
    assert len(error["message"]) < 600
    return str(error["code"])


def check_healthy(server: Server) -> None:
    with server.client() as client:
        answer = client.post("/v1/recommend", json={"history": ["i0001", "i0002"], "k": 3})
        assert answer.status_code == 200
        assert len(answer.json()["items"]) == 3


def head(path: str = "/v1/recommend", *lines: str, method: str = "POST") -> bytes:
    start = [f"{method} {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *lines]
    return "\r\n".join([*start, "", ""]).encode()


def statuses(answer: bytes) -> list[int]:
    """Statuses of the answers that one connection brought; each must be whole."""
    result = []
    while answer:
        top, _, rest = answer.partition(b"\r\n\r\n")
        assert top.startswith(b"HTTP/1.1 "), answer[:200]
        result.append(int(top[9:12]))
        headers = dict(line.lower().split(b": ", 1) for line in top.split(b"\r\n")[1:])
        answer = rest[int(headers.get(b"content-length", b"0")) :]
    return result


LARGE = b'{"history": [' + b" " * 1_000_000 + b"]}"


class TestBodies:
    def test_a_large_body_is_refused_by_its_declared_length(self, client: httpx.Client) -> None:
        assert check_refusal(client.post("/v1/recommend", content=LARGE, headers=JSON), 413) == "body_too_large"
        assert check_refusal(client.post("/v1/similar", content=LARGE, headers=JSON), 413) == "body_too_large"
        assert check_refusal(client.post("/nowhere", content=LARGE, headers=JSON), 413) == "body_too_large"

    def test_a_large_body_is_refused_while_it_comes_in_chunks(self, client: httpx.Client) -> None:
        def parts() -> Iterator[bytes]:
            for _ in range(20):
                yield b" " * 100_000

        response = client.post("/v1/recommend", content=parts(), headers=JSON)
        assert check_refusal(response, 413) == "body_too_large"

    def test_it_is_refused_before_a_byte_of_it_was_read(self, server: Server) -> None:
        with server.connect() as end:
            end.sendall(head("/v1/recommend", "Content-Length: 9000000", "Expect: 100-continue"))
            assert statuses(read_all(end)) == [413]

    def test_a_body_of_the_very_limit_is_read(self, client: httpx.Client) -> None:
        body = b'{"k": 3}'
        largest = body + b" " * (1_000_000 - len(body))
        assert client.post("/v1/recommend", content=largest, headers=JSON).status_code == 200
        assert client.post("/v1/recommend", content=largest + b" ", headers=JSON).status_code == 413

    @pytest.mark.parametrize("coding", ["gzip", "GZIP", "br", "deflate, gzip", "identity, gzip", "x"])
    def test_a_compressed_body_is_refused(self, client: httpx.Client, coding: str) -> None:
        bomb = gzip.compress(LARGE)
        response = client.post("/v1/recommend", content=bomb, headers={**JSON, "Content-Encoding": coding})
        assert check_refusal(response, 415) == "content_encoding"

    @pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonx"])
    def test_a_body_of_another_type_is_refused(self, client: httpx.Client, kind: str) -> None:
        for path in ("/v1/recommend", "/v1/similar", "/v1/sphere", "/v1/play"):
            assert check_refusal(client.post(path, content="{}", headers={"Content-Type": kind}), 415) == "content_type"

    def test_a_body_of_get_is_of_no_interest(self, client: httpx.Client) -> None:
        for path in ("/v2/health/live", "/v1/items", "/nowhere"):
            response = client.request("GET", path, content=b"x" * 500_000)
            assert response.status_code in (200, 404)
        assert client.get("/v2/health/live").status_code == 200


def deep(levels: int, opening: str, closing: str, inside: str = "") -> str:
    return opening * levels + inside + closing * levels


BODIES: dict[str, str | bytes] = {
    "empty": b"",
    "space": b"  ",
    "half": b'{"history": [',
    "rest": b'{"k": 1} x',
    "number": b"5",
    "text": b'"k"',
    "null": b"null",
    "true": b"true",
    "not UTF-8": b'{"history": ["\xff\xfe"]}',
    "UTF-16": '{"k": 1}'.encode("utf-16"),
    "mark": b'\xef\xbb\xbf{"k": 1}',
    "NUL": b'{"k": 1}\x00',
    "NaN": b'{"w": NaN}',
    "Infinity": b'{"w": Infinity}',
    "-Infinity": b'{"history": [{"item": "i0001", "time": -Infinity}]}',
    "1e400": b'{"w": 1e400}',
    "w 1e308": b'{"w": 1e308}',
    "w negative": b'{"w": -1e-9}',
    "w text": b'{"w": "1"}',
    "w of policy": b'{"rank_by": "policy", "w": 1}',
    "m of blend": b'{"rank_by": "blend", "m": 5}',
    "m 0": b'{"rank_by": "rerank", "m": 0}',
    "m huge": b'{"rank_by": "rerank", "m": 1001}',
    "mode": b'{"rank_by": "best"}',
    "mode number": b'{"rank_by": 1}',
    "k 0": b'{"k": 0}',
    "k negative": b'{"k": -1}',
    "k 1001": b'{"k": 1001}',
    "k 2^63": b'{"k": 9223372036854775808}',
    "k 5,000 digits": b'{"k": 1' + b"0" * 5000 + b"}",
    "k decimal": b'{"k": 1.5}',
    "k text": b'{"k": "10"}',
    "k true": b'{"k": true}',
    "k null": b'{"k": null}',
    "flag text": b'{"exclude_seen": "false"}',
    "flag number": b'{"exclude_seen": 0}',
    "time 1e300": b'{"history": [{"item": "i0001", "time": 1e300}]}',
    "time -1e12": b'{"history": [{"item": "i0001", "time": -1e12}]}',
    "time text": b'{"history": [{"item": "i0001", "time": "now"}]}',
    "history text": b'{"history": "i0001"}',
    "history null": b'{"history": null}',
    "history of numbers": b'{"history": [1]}',
    "history of lists": b'{"history": [["i0001", "buy"]]}',
    "event without item": b'{"history": [{"feedback": "buy"}]}',
    "event with more": b'{"history": [{"item": "i0001", "price": 5}]}',
    "feedback number": b'{"history": [{"item": "i0001", "feedback": 5}]}',
    "unknown field": b'{"histroy": []}',
    "prototype": b'{"__proto__": {"k": 5}}',
    "only empty": b'{"only": []}',
    "only unknown": b'{"only": ["nowhere"]}',
    "only of numbers": b'{"only": [5]}',
    "twice": b'{"k": 5, "k": 6}',
    "twice inside": b'{"history": [{"item": "i0001", "item": "i0002"}]}',
    "twice, escaped": b'{"k": 5, "\\u006b": 6}',
    "lone surrogate": b'{"history": ["\\ud800"]}',
    "lone surrogates": b'{"exclude": ["\\udc00\\ud800"]}',
    "raw surrogate": b'{"history": ["\xed\xa0\x80"]}',
    "control": b'{"history": ["a\nb"]}',
    "long id": json.dumps({"history": ["x" * 1001]}),
    "long field": json.dumps({"x" * 100_000: 1}),
    "history of 10,001": json.dumps({"history": ["i0001"] * 10_001}),
    "exclude of 10,001": json.dumps({"exclude": ["i0001"] * 10_001}),
    "only of 10,001": json.dumps({"only": ["i0001"] * 10_001}),
    "no requests": b"[]",
    "65 requests": json.dumps([{}] * 65),
    "one wrong of many": json.dumps([{}, {"k": 0}]),
    "requests in requests": b"[[{}]]",
    "deep lists": deep(10_000, "[", "]"),
    "deep objects": deep(10_000, '{"a":', "}", "1"),
    "deep history": '{"history": ' + deep(10_000, "[", "]") + "}",
    "deep event": '{"history": [{"item": ' + deep(10_000, '{"item":', "}", "1") + "}]}",
    "deep, unclosed": "[" * 100_000,
    "deep, unknown": '{"x": ' + deep(10_000, "[", "]") + "}",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_wrong_body_is_refused(client: httpx.Client, body: str | bytes) -> None:
    response = client.post("/v1/recommend", content=body, headers=JSON)
    assert check_refusal(response, 400) in ("invalid_request", "invalid_json")


@pytest.mark.parametrize(
    "body",
    [
        {"history": ["a\u0000b", "\u202e", "😀", "", " ", "i0001\n"]},
        {"history": [{"item": "i0001", "time": -3e11}, {"item": "i0002", "time": 3e11}]},
        {"history": [{"item": "i0001", "time": 5e9}, {"item": "i0002", "time": -5}, {"item": "i0003", "time": 0}]},
        {"history": ["i0001"] * 10_000},
        {"exclude": ["nowhere"], "only": ["i0001"] * 10_000},
        {"history": ["i0001"], "w": 1e6},
        {"history": ["i0001"], "w": 1e-300},
        {"history": ["i0001"], "k": 1000, "only": ["i0001"]},
    ],
    ids=lambda body: json.dumps(body)[:40],
)
def test_what_is_strange_but_allowed_is_answered(client: httpx.Client, body: dict[str, Any]) -> None:
    response = client.post("/v1/recommend", content=json.dumps(body), headers=JSON)
    assert response.status_code == 200, response.text
    assert all(isinstance(item["score"], float) for item in response.json()["items"])


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/similar", {}),
        ("/v1/similar", {"items": []}),
        ("/v1/similar", {"items": ["i0001"] * 65}),
        ("/v1/similar", {"items": ["i0001"], "k": 0}),
        ("/v1/similar", {"items": "i0001"}),
        ("/v1/sphere", {"w": -1}),
        ("/v1/sphere", {"history": ["i0001"], "w": 1e300}),
        ("/v1/sphere", {"history": ["i0001"], "rank_by": "rerank", "w": 1}),
        ("/v1/play", {"users": 0}),
        ("/v1/play", {"users": 10**9}),
        ("/v1/play", {"seed": -1}),
        ("/v1/play", {"w": 1e300}),
    ],
)
def test_other_routes_refuse_wrong_bodies(client: httpx.Client, path: str, body: dict[str, Any]) -> None:
    assert check_refusal(client.post(path, json=body), 400) == "invalid_request"


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=101", "limit=x", "limit=1e1", "limit=", "limit=" + "9" * 5000, "query=" + "x" * 1001]
)
def test_a_wrong_query_is_refused(client: httpx.Client, query: str) -> None:
    assert check_refusal(client.get(f"/v1/items?{query}"), 400) == "invalid_request"


@pytest.mark.parametrize(
    "query", ["query=%00", "query=%ff%fe", "query=%ED%A0%80", "x=1", "query=.*(", "query=%", "&&="]
)
def test_a_strange_query_is_answered(client: httpx.Client, query: str) -> None:
    assert client.get(f"/v1/items?{query}").status_code == 200


class Drip:
    """A client that sends one byte per second, until the server closes the connection."""

    def __init__(self, server: Server, at_once: bytes, slowly: bytes, pause: float = 1.0) -> None:
        self.answer, self.seconds = b"", 0.0
        self._end, self._slowly, self._pause = server.connect(), slowly, pause
        self._start = time.monotonic()
        self._end.sendall(at_once)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        threading.Thread(target=self._write, daemon=True).start()

    def _write(self) -> None:
        try:
            for byte in self._slowly:
                time.sleep(self._pause)
                self._end.sendall(bytes([byte]))
        except OSError:
            pass

    def _read(self) -> None:
        self.answer = read_all(self._end)
        self.seconds = time.monotonic() - self._start

    def join(self) -> None:
        self._reader.join(30)
        self._end.close()


class Stuck:
    """A client that asks for much and reads nothing."""

    def __init__(self, server: Server) -> None:
        self._end = socket.socket()
        self._end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._end.connect(("127.0.0.1", server.port))
        body = json.dumps([{"history": ["i0001"], "k": 1000}] * 64).encode()
        request = head("/v1/recommend", f"Content-Length: {len(body)}") + body
        self._end.sendall(request * 4)

    def close(self) -> None:
        self._end.close()


def connections(server: Server) -> int:
    """Connections of the server, as the kernel counts them."""
    port, established = f":{server.port:04X}", "01"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(1 for row in rows if row[1].endswith(port) and row[3] == established)


def test_slow_clients_are_closed_within_ten_seconds_and_do_not_hold_up_others(server: Server) -> None:
    body = b'{"k": 3}' + b" " * 92
    whole = head("/v1/recommend", "Content-Length: 100")
    get = head("/v2/health/live", "Content-Length: 100", method="GET")
    chunked = head("/v1/recommend", "Transfer-Encoding: chunked")
    drips = {
        "silent": Drip(server, b"", b""),
        "headers": Drip(server, b"", whole),
        "more headers": Drip(server, whole[:-2], b"x: y\r\n" * 100),
        "empty lines": Drip(server, b"", b"\r\n" * 100),
        "body": Drip(server, whole, body),
        "body of GET": Drip(server, get, body),
        "second body of GET": Drip(server, get + body + get, body),
        "chunks": Drip(server, chunked, b"1\r\n \r\n" * 100),
        "body after a refusal": Drip(server, head("/nowhere", "Content-Length: 100"), body),
        "headers, then body": Drip(server, whole[:-1], b"\n" + body, 4.5),
    }
    stuck = [Stuck(server) for _ in range(4)]
    latencies = []
    with server.client() as client:
        for _ in range(60):
            start = time.perf_counter()
            assert client.post("/v1/recommend", json={"history": ["i0001"], "k": 3}).status_code == 200
            latencies.append(time.perf_counter() - start)
            time.sleep(0.1)
    for drip in drips.values():
        drip.join()
    assert sorted(latencies)[-3] < 0.25
    assert {name: drip.seconds for name, drip in drips.items() if not 0 < drip.seconds <= 10.0} == {}
    answers = {name: statuses(drip.answer) for name, drip in drips.items()}
    assert answers == {
        "silent": [],
        "headers": [408],
        "more headers": [408],
        "empty lines": [408],
        "body": [408],
        "body of GET": [200],
        "second body of GET": [200, 200],
        "chunks": [408],
        "body after a refusal": [404],
        "headers, then body": [408],
    }
    deadline = time.monotonic() + 15
    while connections(server) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert connections(server) == 0
    for end in stuck:
        end.close()


def test_clients_that_crash_leave_nothing_behind(server: Server) -> None:
    rng = random.Random(3)
    shapes = [
        head("/v1/recommend", "Content-Length: 2") + b"{}",
        head("/v1/recommend", "Content-Length: 100") + b"{",
        head("/v1/similar", "Content-Length: 100") + b"{",
        head("/nowhere", "Content-Length: 100") + b"{",
        head("/v1/recommend", "Transfer-Encoding: chunked") + b"1\r\n{\r\n",
        head("/v1/recommend", "Content-Length: 2") + b"{}" + head("/v1/recommend", "Content-Length: 100") + b"{",
    ]
    for _ in range(600):
        with server.connect() as end:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closed by a reset
            end.sendall(rng.choice(shapes))
            time.sleep(rng.choice([0, 0.001, 0.003]))
    check_healthy(server)
    deadline = time.monotonic() + 10
    while connections(server) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert connections(server) == 0


GOOD = b'{"history": ["i0001"], "k": 2}'
WHOLE = head("/v1/recommend", f"Content-Length: {len(GOOD)}") + GOOD
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
CLOSE = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
CHUNKED = head("/v1/recommend", "Transfer-Encoding: chunked")

SHAPES: dict[str, tuple[bytes, list[int]]] = {
    "pipelined": (WHOLE + LIVE + WHOLE + CLOSE, [200] * 4),
    "pipelined, then nonsense": (WHOLE + LIVE + b"nonsense\r\n\r\n", [200, 200, 400]),
    "100 pipelined": (LIVE * 100 + CLOSE, [200] * 101),
    "length and chunks": (
        head("/v1/recommend", f"Content-Length: {len(GOOD)}", "Transfer-Encoding: chunked") + GOOD + CLOSE,
        [400],
    ),
    "chunks and length": (head("/v1/recommend", "Transfer-Encoding: chunked", "Content-Length: 4") + GOOD, [400]),
    "two lengths": (head("/v1/recommend", "Content-Length: 4", "Content-Length: 30") + GOOD, [400]),
    "two equal lengths": (head("/v1/recommend", "Content-Length: 30", "Content-Length: 30") + GOOD, [400]),
    "list of lengths": (head("/v1/recommend", "Content-Length: 30, 30") + GOOD, [400]),
    "negative length": (head("/v1/recommend", "Content-Length: -1") + GOOD, [400]),
    "signed length": (head("/v1/recommend", "Content-Length: +30") + GOOD, [400]),
    "hexadecimal length": (head("/v1/recommend", "Content-Length: 0x1e") + GOOD, [400]),
    "length beyond 64 bits": (head("/v1/recommend", "Content-Length: 18446744073709551617") + GOOD, [400]),
    "space before the colon": (head("/v1/recommend", "Content-Length : 30") + GOOD, [400]),
    "folded header": (head("/v1/recommend", "X: a\r\n b", f"Content-Length: {len(GOOD)}") + GOOD, [400]),
    "chunked": (CHUNKED + b"1e\r\n" + GOOD + b"\r\n0\r\n\r\n" + CLOSE, [200, 200]),
    "chunk size of letters": (CHUNKED + b"xyz\r\n" + GOOD, [400]),
    "negative chunk size": (CHUNKED + b"-1\r\n" + GOOD, [400]),
    "chunk size beyond 64 bits": (CHUNKED + b"fffffffffffffffff\r\n" + GOOD, [400]),
    "chunk shorter than it says": (CHUNKED + b"5\r\n{}\r\n0\r\n\r\n", [400]),
    "chunk without end of line": (CHUNKED + b"2\r\n{}xx0\r\n\r\n", [400]),
    "huge chunk": (CHUNKED + b"fffffff\r\n" + b" " * 1_100_000, [413]),
    "bad chunk after an answer": (WHOLE + CHUNKED + b"xyz\r\n", [200, 400]),
    "another coding": (head("/v1/recommend", "Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n" + CLOSE, [415, 200]),
    "unknown coding": (head("/v1/recommend", "Transfer-Encoding: identity") + GOOD, [400]),
    "coding twice": (
        head("/v1/recommend", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked") + b"0\r\n\r\n" + CLOSE,
        [400],
    ),
    "hidden coding": (head("/v1/recommend", "Transfer-Encoding: xchunked") + GOOD, [400]),
    "huge header": (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 17_000 + b"\r\n\r\n", [431]),
    "endless header": (b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000, [431]),
    "endless name": (b"GET / HTTP/1.1\r\n" + b"x" * 100_000, [431]),
    "endless target": (b"GET /" + b"x" * 100_000, [431]),
    "many headers": (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 101 + b"\r\n", [431]),
    "no host": (b"GET /v2/health/live HTTP/1.1\r\nConnection: close\r\n\r\n", [400]),
    "two hosts": (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\nConnection: close\r\n\r\n", [400]),
    "absolute target": (
        b"GET http://localhost/v2/health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        [200],
    ),
    "target of another host": (
        b"GET http://evil.example/v1/items HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
        [400],
    ),
    "CONNECT": (b"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", [400]),
    "asterisk": (b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", [404]),
    "no slash": (b"GET v1/items HTTP/1.1\r\nHost: localhost\r\n\r\n", [400]),
    "TRACE": (b"TRACE /v1/items HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", [405]),
    "unknown method": (b"FOO / HTTP/1.1\r\nHost: localhost\r\n\r\n", [400]),
    "HTTP/1.0": (b"GET /v2/health/live HTTP/1.0\r\nHost: localhost\r\n\r\n", [200]),
    "HTTP/1.0 without host": (b"GET /v2/health/live HTTP/1.0\r\n\r\n", [400]),
    "HTTP/0.9": (b"GET /v2/health/live\r\n\r\n", [400]),
    "HTTP/9.9": (b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n", [400]),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", [400]),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 500, [400]),
    "h2c upgrade": (
        b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close, Upgrade, HTTP2-Settings\r\n"
        b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
        [200],
    ),
    "websocket": (
        b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close, Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        [200],
    ),
    "NUL in a header": (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n", [400]),
    "CR in a header": (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\rb\r\n\r\n", [400]),
    "NUL in the target": (b"GET /\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n", [400]),
    "bytes in the target": (b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", [400]),
    "escapes in the target": (b"GET /%ff%00%0d%0a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", [404]),
    "dots in the target": (b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", [404]),
}


@pytest.mark.parametrize(("data", "expected"), SHAPES.values(), ids=SHAPES)
def test_every_shape_of_http_gets_its_answer(server: Server, data: bytes, expected: list[int]) -> None:
    assert statuses(server.exchange(data)) == expected


SEEDS = [data for data, _ in SHAPES.values() if len(data) < 3000]


def mutated(rng: random.Random, data: bytes) -> bytes:
    """A request with some of its bytes exchanged, cut out, repeated or moved."""
    result = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        place, width = rng.randrange(len(result) + 1), rng.randint(1, 12)
        match rng.randrange(5):
            case 0:
                result[place : place + width] = rng.randbytes(width)
            case 1:
                del result[place : place + width]
            case 2:
                result[place:place] = result[place : place + width] * rng.choice([2, 50])
            case 3:
                result[place:place] = rng.choice([b"\r\n", b"\x00", b"0", b"\xff" * 4, b": ", b"chunked", b"\r\n\r\n"])
            case 4:
                result[place:place] = rng.choice(SEEDS)[:width]
    return bytes(result[:20_000])


def test_fuzz(server: Server) -> None:
    rng, deadline, sent = random.Random(20240917), time.monotonic() + FUZZ_SECONDS, 0
    seen: dict[int, int] = {}
    while time.monotonic() < deadline:
        sent += 1
        data = rng.randbytes(rng.randint(1, 400)) if rng.random() < 0.1 else mutated(rng, rng.choice(SEEDS))
        with server.connect() as end:
            answer = b""
            try:
                end.sendall(data)
                end.settimeout(0.02)  # many of these leave the server waiting for more
                while part := end.recv(65536):
                    answer += part
            except (TimeoutError, ConnectionError):
                pass
        assert b"Traceback" not in answer
        assert answer[:9] in (b"", b"HTTP/1.1 "), (data, answer)
        if answer:
            status = int(answer[9:12])
            assert status < 500, (data, answer)
            seen[status] = seen.get(status, 0) + 1
        if sent % 500 == 0:
            check_healthy(server)
    check_healthy(server)
    assert sent > 20 * FUZZ_SECONDS
    assert {200, 400} <= set(seen)
    assert connections(server) <= 1
