"""Log of a server: JSON lines on standard error, for requests and for what went wrong."""

import logging
import os
import threading
import traceback
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

import msgspec

_LOGGERS = ("ecoc", "uvicorn", "asyncio")
_TOGETHER = 4096  # bytes; the kernel writes as many to a pipe without a line of another worker in between
_to_json = msgspec.json.Encoder().encode


def now() -> str:
    """The time of a line."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class LineLog:
    """Writes JSON lines on a thread of its own: a reader that stops reading must not stop the server.

    All characters but visible ASCII are escaped, so no client can steer the terminal or begin a line of its own. Lines
    that do not fit in memory are dropped, and the next line written counts them.
    """

    _MOST_BYTES = 16_000_000

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor  # a stream of Python has a lock, which a thread that never returns would keep
        self._lines: deque[bytes] = deque()
        self._waiting_bytes = self._dropped = 0
        self._wake = threading.Condition()
        self._is_closing = False
        self._thread = threading.Thread(target=self._work, name="ecoc-log", daemon=True)
        self._thread.start()

    def write(self, record: dict[str, object]) -> None:
        """Write a record soon."""
        with self._wake:
            if self._waiting_bytes > self._MOST_BYTES or self._is_closing:
                self._dropped += 1
                return
            if self._dropped:
                record, self._dropped = {**record, "dropped_lines": self._dropped}, 0
            line = _as_line(record)
            self._lines.append(line)
            self._waiting_bytes += len(line)
            self._wake.notify()

    def close(self) -> None:
        """Write what is left, unless nobody reads it."""
        with self._wake:
            self._is_closing = True
            self._wake.notify()
        self._thread.join(timeout=1.0)

    def _work(self) -> None:
        while text := self._take():
            while text:
                try:
                    text = text[os.write(self._descriptor, text) :]
                except BlockingIOError:  # the reader's end is set not to wait
                    threading.Event().wait(0.05)
                except OSError:  # nobody reads
                    return

    def _take(self) -> bytes:
        """Lines that wait, as many as are written at once; empty at the end."""
        with self._wake:
            while not self._lines and not self._is_closing:
                self._wake.wait()
            text = self._lines.popleft() if self._lines else b""
            while self._lines and len(text) + len(self._lines[0]) <= _TOGETHER:
                text += self._lines.popleft()
            self._waiting_bytes -= len(text)
            return text


def _as_line(record: dict[str, object]) -> bytes:
    line: bytes = _to_json(record)
    if not line.isascii():
        line = "".join(map(_escaped, line.decode())).encode()
    return line.replace(b"\x7f", b"\\u007f") + b"\n"


def _escaped(character: str) -> str:
    if character.isascii():
        return character
    code = character.encode("utf-16-be").hex()
    return "".join(f"\\u{code[place : place + 4]}" for place in range(0, len(code), 4))


@contextmanager
def line_log(stream: TextIO | None) -> Iterator[LineLog | None]:
    """The log of a process; warnings and errors of the server and of its libraries go there too.

    None if the stream is closed: its descriptor may be a socket by now.
    """
    if stream is None:
        yield None
        return
    log = LineLog(stream.fileno())
    handler, loggers = _Handler(log), [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addHandler(handler)
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # warnings are about requests, which have their own line
    try:
        yield log
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
        log.close()


class _Handler(logging.Handler):
    def __init__(self, log: LineLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        line: dict[str, object] = {
            "time": now(),
            "level": record.levelname.lower(),
            "message": " ".join(record.getMessage().split())[:500],
        }
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            frames = traceback.extract_tb(error.__traceback__)
            line["error"] = f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
            line["trace"] = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames[-20:]]
        self._log.write(line)
