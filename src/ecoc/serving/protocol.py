"""HTTP on the socket: uvicorn's protocol with the limits that it lacks, and a stop that loses no request.

uvicorn waits for headers without end and takes headers of any size. At a stop it closes connections that a client is
about to use, and the kernel resets connections that nobody has accepted yet. This module mends these four.
"""

import asyncio
import os
import socket
import time
from asyncio import TimerHandle
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState as Connections

from ecoc.serving.messages import error_body
from ecoc.serving.settings import Limits, Timeouts
from ecoc.serving.sockets import drop_new_connections

_SETTLE = 0.05  # seconds in which handshakes that have begun end


class LimitedProtocol(HttpToolsProtocol):
    """One connection. Headers and answers have a time limit, headers a size limit; refusals are JSON."""

    limits, timeouts = Limits(), Timeouts()
    on_refusal: Callable[[int], None] = staticmethod(lambda status: None)

    def __init__(self, config: uvicorn.Config, server_state: Connections, app_state: dict[str, Any], _loop: Any = None):
        super().__init__(config, server_state, app_state, _loop)
        self._header_bytes = 0
        self._reads_headers = True
        self._is_refused = False
        self._header_timer: TimerHandle | None = None
        self._write_timer: TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self.refuse(503, "overloaded", "Too many connections; try again later")
        else:
            self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for timer in (self._header_timer, self._write_timer, self.timeout_keep_alive_task):
            if timer is not None:
                timer.cancel()

    def _expect_headers(self) -> None:
        self._header_timer = self.loop.call_later(self.timeouts.read, self._headers_are_late)

    def _headers_are_late(self) -> None:
        if self._header_bytes and not self.transport.is_closing():
            self.refuse(408, "timeout", "The headers did not arrive in time")
        else:  # nothing was ever sent: there is no request to answer
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if self._reads_headers:
            if self._header_timer is None:
                self._expect_headers()
            self._header_bytes += len(data)
        super().data_received(data)
        if self._reads_headers and self._header_bytes > self.limits.header_bytes and not self._is_refused:
            self._refuse_headers()

    def on_headers_complete(self) -> None:
        self._reads_headers, self._header_bytes = False, 0
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self.limits.header_bytes or len(self.headers) > self.limits.headers:
            self._refuse_headers()
        elif not self._is_refused:
            super().on_headers_complete()

    def _refuse_headers(self) -> None:
        message = f"The headers have more than {self.limits.header_bytes} bytes or {self.limits.headers} fields"
        self.refuse(431, "headers_too_large", message)

    def on_body(self, body: bytes) -> None:
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._reads_headers = True
        if not self._is_refused:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self.refuse(400, "invalid_http", "The request is not valid HTTP/1.1")

    def refuse(self, status: int, code: str, message: str) -> None:
        """Answer without the application, and close the connection."""
        if self._is_refused or self.transport.is_closing():
            return
        self._is_refused = True
        if self.cycle is None or self.cycle.response_complete:  # otherwise an answer is under way: do not mix them
            body = error_body(code, message)
            retry = b"retry-after: 1\r\n" if status == 503 else b""
            self.transport.write(
                STATUS_LINE[status]
                + b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body)
                + retry
                + b"x-content-type-options: nosniff\r\nconnection: close\r\n\r\n"
                + body
            )
        self.on_refusal(status)
        self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(self.timeouts.write, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None


def limited(limits: Limits, timeouts: Timeouts, on_refusal: Callable[[int], None]) -> type[LimitedProtocol]:
    """The protocol class of one server."""
    values = {"limits": limits, "timeouts": timeouts, "on_refusal": staticmethod(on_refusal)}
    return type("Protocol", (LimitedProtocol,), values)


class Server(uvicorn.Server):
    """Stops in steps: says that it is not ready, lets clients go, accepts what is on its way, answers all, ends."""

    def __init__(self, config: uvicorn.Config, timeouts: Timeouts, on_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._timeouts, self._on_stop = timeouts, on_stop

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal stops gracefully, and the exit code is 0; the second ends the process at once."""
        if self.should_exit:
            os._exit(128 + sig)
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop without losing a request that a client was allowed to send."""
        deadline = time.monotonic() + self._timeouts.stop
        self._on_stop()
        # From here every answer asks its client to leave, so that no client is about to use a connection we close.
        self.server_state.default_headers = [*self.server_state.default_headers, (b"connection", b"close")]
        await asyncio.sleep(self._timeouts.drain)
        for listener in sockets or []:
            with suppress(OSError):
                drop_new_connections(listener)
        await asyncio.sleep(_SETTLE)  # the event loop accepts what the kernel has queued
        self.config.timeout_graceful_shutdown = max(1, int(deadline - time.monotonic()))
        await super().shutdown(sockets)
