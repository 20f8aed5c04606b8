"""Gate: what every request passes before a route, and what every answer gets. Plain ASGI, because each request pays.

It checks the Host, the origin and the token, limits bodies in size and time, adds the security headers, turns every
failure into JSON, counts and logs.
"""

import asyncio
import hmac
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from hashlib import sha256
from typing import Any

from ecoc.errors import InputError
from ecoc.serving.log import LineLog, now
from ecoc.serving.messages import RequestError, error_body
from ecoc.serving.state import ServerState

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN_PATHS = frozenset({"/v2/health/live", "/v2/health/ready"})
"""Need no token: a probe has none, and these say nothing about the model. Files of the page are added to them."""

SECURITY_HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]
_SINGLE_HEADERS = frozenset(
    b"host origin authorization content-type content-length content-encoding transfer-encoding".split()
)
_MOST_DISCARDED = 8_000_000  # bytes of a refused body that are read, so that the client gets to read the refusal
_logger = logging.getLogger("ecoc.serving")


class TokenCheck:
    """Tells whether an Authorization header holds the token, in a time that does not depend on how much is right."""

    def __init__(self, token: str) -> None:
        self._digest = sha256(token.encode()).digest()

    def __call__(self, header: bytes) -> bool:
        """Whether it does."""
        scheme, _, given = header.partition(b" ")
        is_right = hmac.compare_digest(sha256(given.strip()).digest(), self._digest)
        return is_right and scheme.lower() == b"bearer"


class Gate:
    """The outermost application of the server."""

    def __init__(
        self, state: ServerState, routes: dict[str, App], app: App, *, open_paths: frozenset[str], log: LineLog | None
    ) -> None:
        self._state, self._routes, self._app, self._log = state, routes, app, log
        self._hosts = state.settings.hosts
        self._open_paths = OPEN_PATHS | open_paths
        token = state.settings.token
        self._is_right = None if token is None else TokenCheck(token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        exchange = Exchange(scope, receive, send, self._state)
        start = time.perf_counter()
        try:
            await self._answer(exchange)
        except RequestError as error:
            await exchange.refuse(error)
        except InputError as error:
            await exchange.refuse(RequestError(400, "invalid_request", str(error)))
        except ConnectionError:  # the client has gone: nobody reads an answer
            pass
        except asyncio.CancelledError:  # the server stops and waits no longer
            await exchange.refuse(RequestError(503, "stopping", "The server is stopping", retry_after=1), at_once=True)
        except Exception:
            _logger.exception("internal error")
            await exchange.refuse(RequestError(500, "internal", "The server failed to answer; see its log"))
        finally:
            seconds = time.perf_counter() - start
            exchange.status = scope.get("refused", exchange.status)  # the protocol may have answered before
            self._state.metrics.request(exchange.route, exchange.status, seconds)
            if self._log is not None:
                self._log.write(exchange.record(seconds))

    async def _answer(self, exchange: "Exchange") -> None:
        path = exchange.scope["path"]
        if path in self._routes:
            exchange.route = path
        self._check_host(exchange)
        self._check_token(exchange, path)
        if exchange.declared_length > self._state.settings.limits.body_bytes:
            raise exchange.too_large()
        await self._routes.get(path, self._app)(exchange.scope, exchange.receive, exchange.send)

    def _check_host(self, exchange: "Exchange") -> None:
        """A page of another site may send requests here through the browser of a user; it does not get answers."""
        if exchange.has_repeated_header:
            raise RequestError(400, "repeated_header", "A header that says who asks for what is there twice")
        host = exchange.headers.get(b"host", b"").decode("latin-1").lower()
        if not host and exchange.scope["http_version"] != "1.0":
            raise RequestError(400, "host_missing", "Expected a Host header")
        if self._hosts is not None and _without_port(host) not in self._hosts:
            raise RequestError(400, "host_refused", "The Host header names a host that this server does not serve")
        origin = exchange.headers.get(b"origin")
        if origin is not None and origin.decode("latin-1").lower().partition("://")[2] != host:
            raise RequestError(403, "origin_refused", "Requests from pages of another origin are refused")

    def _check_token(self, exchange: "Exchange", path: str) -> None:
        if self._is_right is None:
            if path.startswith("/admin"):
                raise RequestError(403, "no_token", "This route is off because the server was started without a token")
            return
        if path in self._open_paths:
            return
        if not self._is_right(exchange.headers.get(b"authorization", b"")):
            raise RequestError(401, "token_wrong", "Expected the header Authorization: Bearer with the server's token")


class Exchange:
    """One request and its answer: `receive` with limits, `send` with headers, and what is known for the log."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, state: ServerState) -> None:
        self.scope, self._receive, self._send, self._state = scope, receive, send, state
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.has_repeated_header = len(self.headers) < len(scope["headers"]) and _has_repeated(scope["headers"])
        self.status = 499  # the client went away before an answer began
        self.route = "other"
        self.history: object = None
        self._received = 0
        self._deadline: float | None = None
        self._has_body_ended = False
        scope["exchange"] = self

    @property
    def declared_length(self) -> int:
        """Size of the body as the client declares it; the parser has checked that it is a number."""
        return int(self.headers.get(b"content-length", b"0"))

    def too_large(self) -> RequestError:
        """The refusal of a body."""
        most = self._state.settings.limits.body_bytes
        return RequestError(413, "body_too_large", f"The body has more than {most} bytes")

    async def receive(self) -> MutableMapping[str, Any]:
        """The next part of the body, in time and within the size limit."""
        if self._has_body_ended:
            return await self._receive()
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + self._state.settings.timeouts.read
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise RequestError(408, "timeout", "The body did not arrive in time") from None
        if message["type"] == "http.request":
            self._received += len(message.get("body", b""))
            self._has_body_ended = not message.get("more_body", False)
            if self._received > self._state.settings.limits.body_bytes:
                raise self.too_large()
        else:
            self._has_body_ended = True
        return message

    async def body(self) -> bytes:
        """The whole body, which must be JSON that is not compressed."""
        if self.headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != b"application/json":
            raise RequestError(415, "content_type", "Expected a body with Content-Type: application/json")
        codings = self.headers.get(b"content-encoding", b"identity"), self.headers.get(b"transfer-encoding", b"chunked")
        if tuple(map(bytes.lower, codings)) != (b"identity", b"chunked"):
            raise RequestError(415, "content_encoding", "Compressed bodies are not accepted")
        message = await self.receive()
        parts = [message.get("body", b"")]
        while not self._has_body_ended:
            message = await self.receive()
            parts.append(message.get("body", b""))
        if message["type"] == "http.disconnect":
            raise ConnectionResetError("the client went away")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Send a part of the answer, the first one with the security headers."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            given = list(message.get("headers", ()))
            names = {name for name, _ in given}
            message["headers"] = given + [header for header in SECURITY_HEADERS if header[0] not in names]
        await self._send(message)

    async def send_json(self, body: bytes, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        """Send a whole answer."""
        own = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *headers]
        await self.send({"type": "http.response.start", "status": status, "headers": own})
        await self._send({"type": "http.response.body", "body": body})

    async def refuse(self, error: RequestError, *, at_once: bool = False) -> None:
        """Send a refusal, unless an answer has begun. A body on its way is read and thrown away, unless `at_once`."""
        if self.status != 499:
            raise ConnectionAbortedError("an answer that had begun failed")
        headers = [(b"retry-after", b"%d" % error.retry_after)] if error.retry_after is not None else []
        if error.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        if error.allow is not None:
            headers.append((b"allow", error.allow.encode()))
        if not self._has_body_ended and (at_once or error.status == 408 or not await self._discard()):
            headers.append((b"connection", b"close"))
        await self.send_json(error_body(error.code, error.message), error.status, tuple(headers))

    async def _discard(self) -> bool:
        """Read the rest of a refused body, up to a limit; whether it has ended."""
        if self.headers.get(b"expect", b"").lower() == b"100-continue" or self.declared_length > _MOST_DISCARDED:
            return False
        try:
            async with asyncio.timeout(min(1.0, self._state.settings.timeouts.read)):
                while self._received <= _MOST_DISCARDED:
                    message = await self._receive()
                    self._received += len(message.get("body", b""))
                    if not message.get("more_body", False):
                        return bool(message["type"] == "http.request")
        except TimeoutError:
            pass
        return False

    def record(self, seconds: float) -> dict[str, object]:
        """The line of the access log. The query is left out: it may hold what a user searched for."""
        client = self.scope.get("client")
        record: dict[str, object] = {
            "time": now(),
            "client": client[0] if client else None,
            "method": self.scope["method"],
            "path": self.scope["path"][:200],
            "status": self.status,
            "ms": round(seconds * 1000, 2),
        }
        if self.history is not None:
            record["history"] = self.history
        return record


def _has_repeated(headers: list[tuple[bytes, bytes]]) -> bool:
    names = [name for name, _ in headers if name in _SINGLE_HEADERS]
    return len(names) > len(set(names))


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host
