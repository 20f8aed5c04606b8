"""HTTP on the socket: uvicorn's protocol with the limits that it lacks, and a stop that loses no request.

uvicorn waits for headers without end and takes headers of any size. At a stop it closes connections that a client is
about to use, and the kernel resets connections that nobody has accepted yet. This module mends these four.
"""

import asyncio
import os
import socket
import threading
import time
from asyncio import TimerHandle
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState as Connections

from ecoc.serving.gate import SECURITY_HEADERS
from ecoc.serving.messages import error_body
from ecoc.serving.settings import Limits, Timeouts
from ecoc.serving.sockets import drop_new_connections

_SETTLE = 0.05  # seconds in which handshakes that have begun end
_LAST_RESORT = 1.0  # seconds after the time to stop


class _Quiet:
    """A transport that ignores what is asked of it once the client has gone, as asyncio's do; uvloop's raise."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.get_extra_info, self.is_closing = transport.get_extra_info, transport.is_closing
        self.close, self.abort = transport.close, transport.abort

    def write(self, data: bytes) -> None:
        if not self.is_closing():
            self._transport.write(data)

    def pause_reading(self) -> None:
        if not self.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self.is_closing():
            self._transport.resume_reading()


class LimitedProtocol(HttpToolsProtocol):
    """One connection. Headers and answers have a time limit, headers a size limit; refusals are JSON."""

    limits, timeouts = Limits(), Timeouts()
    on_refusal: Callable[[int, str, str | None], None] = staticmethod(lambda status, code, client: None)

    def __init__(self, config: uvicorn.Config, server_state: Connections, app_state: dict[str, Any], _loop: Any = None):
        super().__init__(config, server_state, app_state, _loop)
        self._header_bytes = 0
        self._reads_headers = True
        self._refusal: tuple[int, str, str] | None = None
        self._header_timer: TimerHandle | None = None
        self._write_timer: TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast(asyncio.Transport, _Quiet(transport)))
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

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _headers_are_late(self) -> None:
        if self._header_bytes and not self.transport.is_closing():
            self.refuse(408, "timeout", "The headers did not arrive in time")
        else:  # no request has begun, or it was answered before its body ended
            self._close()

    def _close(self) -> None:
        """Close the connection, also if the client never takes what was written."""
        self.transport.close()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(self.timeouts.write, self.transport.abort)

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that was idle for too long."""
        if not self.transport.is_closing():
            self._close()

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None:
            return
        if self._reads_headers:
            if self._header_timer is None:
                self._expect_headers()
            self._header_bytes += len(data)
        super().data_received(data)
        if self._reads_headers and self._header_bytes > self.limits.header_bytes and self._refusal is None:
            self._refuse_headers()

    def on_headers_complete(self) -> None:
        self._reads_headers, self._header_bytes = False, 0
        self._stop_header_timer()
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self.limits.header_bytes or len(self.headers) > self.limits.headers:
            self._refuse_headers()
        elif self._refusal is None:
            super().on_headers_complete()

    def _refuse_headers(self) -> None:
        message = f"The headers have more than {self.limits.header_bytes} bytes or {self.limits.headers} fields"
        self.refuse(431, "headers_too_large", message)

    @property
    def awaits_request(self) -> bool:
        """Whether the headers of a request are arriving, or the client has connected and sent nothing yet."""
        return self._reads_headers and (self._header_bytes > 0 or self.cycle is None)

    def on_body(self, body: bytes) -> None:
        if self._refusal is None:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._reads_headers = True
        self._stop_header_timer()
        if self._refusal is None:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        is_last = not self.pipeline
        super().on_response_complete()
        if self.transport.is_closing():
            self._close()
        elif is_last and self._refusal is not None:
            self._send_refusal()
        elif is_last and not self._reads_headers:  # the rest of a body that nobody waits for
            self._expect_headers()

    def send_400_response(self, msg: str) -> None:
        self.refuse(400, "invalid_http", "The request is not valid HTTP/1.1")

    def refuse(self, status: int, code: str, message: str) -> None:
        """Answer without the application, after the requests before, and close the connection."""
        if self._refusal is not None or self.transport.is_closing():
            return
        self._refusal = status, code, message
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            self._send_refusal()
        elif cycle.more_body and self.pipeline:  # its turn has not come
            self.pipeline.popleft()
        elif cycle.more_body and not cycle.response_started:  # the application waits for the rest of the body
            cycle.scope["refused"] = status  # type: ignore[typeddict-unknown-key]
            self._write_refusal()
            cycle.disconnected = True
            cycle.message_event.set()

    def _send_refusal(self) -> None:
        self._write_refusal()
        if self._refusal is not None:
            self.on_refusal(*self._refusal[:2], self.client[0] if self.client else None)

    def _write_refusal(self) -> None:
        if self._refusal is None:
            return
        status, code, message = self._refusal
        body = error_body(code, message)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *SECURITY_HEADERS]
        headers += [(b"retry-after", b"1")] if status == 503 else []
        lines = [b"%b: %b\r\n" % header for header in (*headers, (b"connection", b"close"))]
        self.transport.write(b"".join([STATUS_LINE[status], *lines, b"\r\n", body]))
        self._close()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(self.timeouts.write, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None


def limited(
    limits: Limits, timeouts: Timeouts, on_refusal: Callable[[int, str, str | None], None]
) -> type[LimitedProtocol]:
    """The protocol class of one server."""
    values = {"limits": limits, "timeouts": timeouts, "on_refusal": staticmethod(on_refusal)}
    return type("Protocol", (LimitedProtocol,), values)


def _awaits_request(connection: object) -> bool:
    return isinstance(connection, LimitedProtocol) and connection.awaits_request


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
        last_resort = threading.Timer(self._timeouts.stop + _LAST_RESORT, os._exit, (0,))
        last_resort.daemon = True
        last_resort.start()  # a computation that does not end cannot hold the process
        self._on_stop()
        # From here every answer asks its client to leave, so that no client is about to use a connection we close.
        self.server_state.default_headers = [*self.server_state.default_headers, (b"connection", b"close")]
        await asyncio.sleep(self._timeouts.drain)
        for listener in sockets or []:
            with suppress(OSError):
                drop_new_connections(listener)
        await asyncio.sleep(_SETTLE)  # the event loop accepts what the kernel has queued
        until = time.monotonic() + self._timeouts.drain
        while any(map(_awaits_request, self.server_state.connections)) and time.monotonic() < until:
            await asyncio.sleep(_SETTLE)
        self.config.timeout_graceful_shutdown = max(1, int(deadline - time.monotonic()))
        await super().shutdown(sockets)
