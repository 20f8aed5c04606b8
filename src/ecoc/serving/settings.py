"""What a server is told when it starts: where it listens, who may ask, and how much it accepts."""

import ipaddress
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ecoc.errors import ArtifactError, InputError
from ecoc.storage.trusted import read_bytes

TOKEN_VARIABLE = "ECOC_TOKEN"  # noqa: S105 - the name of a variable, not a token
_LONGEST_TOKEN = 4096
_LARGEST_TOKEN_FILE = 2 * _LONGEST_TOKEN


@dataclass(frozen=True)
class Limits:
    """How much one client may ask for. More is refused with 4xx, or with 503 if it is the server that is busy."""

    body_bytes: int = 1_000_000
    header_bytes: int = 16_384
    headers: int = 100
    list_length: int = 64  # requests in one body
    history: int = 10_000  # events in one history
    exclude: int = 10_000
    only: int = 10_000
    k: int = 1_000
    similar: int = 64  # items in one body of /v1/similar
    text: int = 1_000  # characters of an id, a feedback or a search text
    search_results: int = 100
    connections: int = 4_096
    waiting: int = 1_024  # requests in the queue
    side_jobs: int = 32  # similar and search: running or waiting


@dataclass(frozen=True)
class Timeouts:
    """Seconds until the server gives up."""

    answer: float = 5.0  # a request waits for its answer: 503
    read: float = 5.0  # headers, then a body, arrive: 408
    write: float = 10.0  # a client takes its answer: the connection is closed
    idle: float = 65.0  # between two requests of one connection
    drain: float = 1.0  # after a signal: still accepts connections, while "ready" answers 503
    stop: float = 8.0  # after a signal: everything has ended


@dataclass(frozen=True)
class ServerSettings:
    """How one server works. The token is None if every caller is trusted, which only a loopback address allows."""

    model: Path
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    threads: int = 1
    runtime: Literal["torch", "onnx"] = "torch"  # what computes the encoder
    token: str | None = field(default=None, repr=False)
    allowed_hosts: tuple[str, ...] = ()
    models: Path | None = None  # folder that /admin/reload may load from; None: the folder that holds the model
    data: Path | None = None  # dataset on which the page's simulator is fitted; None: that of a run, if it is there
    largest_batch: int = 64
    log_histories: bool = False
    access_log: bool = True
    limits: Limits = Limits()
    timeouts: Timeouts = Timeouts()

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and self.token is None:
            raise InputError(
                f"host {self.host}: other machines can reach this address, so a token is needed; pass --token-file or "
                f"set {TOKEN_VARIABLE}"
            )

    @property
    def hosts(self) -> frozenset[str] | None:
        """Names that the Host header may have; None: any. A page of another site cannot reach loopback by its name."""
        if self.allowed_hosts:
            return frozenset(name.lower() for name in self.allowed_hosts)
        return frozenset({"localhost", "127.0.0.1", "[::1]", _as_host(self.host)}) if is_loopback(self.host) else None

    def address(self, port: int) -> str:
        """The URL of the server, for a caller on the same machine."""
        any_address = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound
        return f"http://{_as_host(any_address.get(self.host, self.host))}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _as_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host.lower()


def read_token(path: Path | None) -> str | None:
    """The token of a file, otherwise that of the environment, otherwise none."""
    if path is None:
        given = os.environ.get(TOKEN_VARIABLE)
        return None if given is None else _checked_token(given, TOKEN_VARIABLE)
    try:
        content = read_bytes(path, largest=_LARGEST_TOKEN_FILE, folder=Path("/"))
    except ArtifactError as error:
        raise InputError(f"{error}; give a file that holds the token") from None
    return _checked_token(content.decode("utf-8", "replace"), str(path))


def _checked_token(text: str, where: str) -> str:
    token = text.strip()
    if not token or len(token) > _LONGEST_TOKEN or not all("!" <= character <= "~" for character in token):
        raise InputError(f"{where}: expected a token of 1 to {_LONGEST_TOKEN} visible ASCII characters without spaces")
    return token
