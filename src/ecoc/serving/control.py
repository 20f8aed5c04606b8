"""How the parent of workers and a worker talk: lines of JSON over a pair of sockets. Imports nothing heavy."""

import asyncio
import json
import socket
from dataclasses import dataclass
from typing import Any

import msgspec

from ecoc.serving.settings import ServerSettings

_LONGEST_LINE = 1 << 20

Message = dict[str, Any]


@dataclass(frozen=True)
class Opened:
    """A server that answers: where, and with what. `example` are ids of popular items."""

    port: int
    name: str
    version: str
    items: int
    example: list[str]


class Lines:
    """Messages over a socket, one JSON object per line."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def over(cls, end: socket.socket) -> "Lines":
        """Talk over one end of a pair of sockets."""
        return cls(*await asyncio.open_unix_connection(sock=end, limit=_LONGEST_LINE))

    def send(self, **message: Any) -> None:
        """Send a message, unless the other end has gone."""
        if not self._writer.is_closing():
            self._writer.write(json.dumps(message).encode() + b"\n")

    async def receive(self) -> Message | None:
        """The next message; None once the other end has gone."""
        try:
            line = await self._reader.readline()
        except (ConnectionError, ValueError):
            return None
        return json.loads(line) if line.endswith(b"\n") else None

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


def refusal(status: int, code: str, message: str) -> Message:
    """A refusal that a worker passes on to its client."""
    return {"status": status, "code": code, "message": message}


def settings_to_json(settings: ServerSettings) -> Any:
    """Settings as a message holds them."""
    return msgspec.to_builtins(settings, enc_hook=str)


def settings_from_json(values: Any) -> ServerSettings:
    """Settings from a message."""
    return msgspec.convert(values, ServerSettings, dec_hook=lambda kind, value: kind(value))
