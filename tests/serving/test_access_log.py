"""The log of a server: JSON lines that hold no history, obey no client and hold up no answer."""

import asyncio
import json
import os
import time
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest
from server_case import serving

from ecoc.serving.gate import Gate
from ecoc.serving.log import LineLog, line_log
from ecoc.serving.metrics import ServerMetrics
from ecoc.serving.settings import ServerSettings
from ecoc.serving.state import ServerState

FIELDS = {"time", "client", "method", "path", "status", "ms"}


def test_every_request_is_a_json_line_without_history_and_query(models: Path) -> None:
    with serving(models / "ecoc-bundle", access_log=True) as server, server.client() as client:
        client.post("/v1/recommend", json={"history": ["i0001", "secret-item"], "exclude": ["secret-exclude"]})
        client.post(
            "/v1/recommend", content=b'{"history": ["secret-item"]', headers={"content-type": "application/json"}
        )
        client.post("/v1/recommend", json={"secret-field": 1})
        client.get("/v1/items?query=secret-query", headers={"User-Agent": "secret-agent", "Cookie": "secret-cookie"})
        client.get("/%1b]0;title%07%0d%0a{}%7f%c2%9b%e2%80%ae%f0%9f%98%80" + "x" * 1000)
        server.exchange(b"nonsense\x1b[31m\r\n\r\n")
        assert server.stop() == 0
        lines, log = server.lines, server.log
    assert len(lines) == 6
    assert [line["status"] for line in lines] == [200, 400, 400, 200, 404, 400]
    assert all(set(line) == FIELDS for line in lines[:5])
    assert lines[3]["path"] == "/v1/items"
    assert lines[4]["path"].startswith("/\x1b]0;title\x07\r\n{}\x7f\x9b\u202e😀xxx")
    assert len(lines[4]["path"]) == 200
    assert lines[5].keys() == {"time", "client", "status", "code"}
    assert "secret" not in log
    assert log.replace("\n", "").isprintable()
    assert log.isascii()


def test_a_log_that_nobody_reads_holds_up_no_answer_and_no_stop(models: Path) -> None:
    with serving(models / "ecoc-bundle", access_log=True, reads_log=False) as server:
        slowest = 0.0
        with server.client() as client:
            for number in range(1500):
                start = time.perf_counter()
                if number % 3:
                    assert client.get("/v2/health/live").status_code == 200
                else:
                    assert server.exchange(b"nonsense\r\n\r\n").startswith(b"HTTP/1.1 400 ")
                slowest = max(slowest, time.perf_counter() - start)
        assert slowest < 2.0
        start = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - start < 12.0


def test_lines_that_do_not_fit_in_memory_are_counted() -> None:
    reader, writer = os.pipe()
    log = LineLog(writer)
    log._MOST_BYTES = 50_000
    for number in range(5000):
        log.write({"number": number, "text": "x" * 100})
    text = b""
    while text.count(b"\n") < 200:
        text += os.read(reader, 65536)
    time.sleep(0.2)  # there is room again
    log.write({"number": 5000})
    log.close()
    os.close(writer)
    while part := os.read(reader, 65536):
        text += part
    os.close(reader)
    lines = [json.loads(line) for line in text.splitlines()]
    dropped = sum(line.get("dropped_lines", 0) for line in lines)
    assert dropped > 1000
    assert len(lines) + dropped == 5001
    assert lines[-1]["number"] == 5000


class Sent(list[MutableMapping[str, Any]]):
    """What an application sent."""

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        self.append(message)


async def receive() -> MutableMapping[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


def test_an_internal_error_is_in_the_log_and_not_in_the_answer(tmp_path: Path) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("the secret\nof the model")

    state = ServerState(ServerSettings(tmp_path), ServerMetrics())
    gate = Gate(state, {"/broken": broken}, broken, open_paths=frozenset(), log=None)
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "path": "/broken",
        "headers": [(b"host", b"localhost")],
    }
    sent = Sent()
    with (tmp_path / "log").open("w") as stream, line_log(stream):
        asyncio.run(gate(scope, receive, sent))
    assert sent[0]["status"] == 500
    assert json.loads(sent[1]["body"]) == {
        "error": {"code": "internal", "message": "The server failed to answer; see its log"}
    }
    (line,) = map(json.loads, (tmp_path / "log").read_text().splitlines())
    assert (line["level"], line["error"]) == ("error", "RuntimeError: the secret of the model")
    assert any(place.endswith(" broken") for place in line["trace"])


@pytest.mark.parametrize("text", ["\x9b31m", "é😀", "\u2028"])
def test_all_but_ascii_is_escaped_and_read_back(text: str) -> None:
    reader, writer = os.pipe()
    log = LineLog(writer)
    log.write({"path": text})
    log.close()
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        line = stream.read()
    assert line.isascii()
    assert json.loads(line) == {"path": text}
