"""Listening sockets: how they are opened, and how one is closed without resetting connections."""

import ctypes
import socket

SO_ATTACH_FILTER = 26  # Linux; the socket module does not name it
_BACKLOG = 2048


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_ushort), ("yes", ctypes.c_ubyte), ("no", ctypes.c_ubyte), ("value", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.POINTER(_Instruction)))


def drop_new_connections(listener: socket.socket) -> None:
    """Let the kernel ignore packets that open a connection. A client tries again and is refused once we are gone.

    Closing a listener resets every connection that was opened and not yet accepted, with the request in it. The filter
    reads the flags of the TCP header (byte 13): packets with SYN are dropped, all others pass.
    """
    load_flags, is_set = _Instruction(0x30, 0, 0, 13), _Instruction(0x45, 0, 1, 0x02)
    accept, drop = _Instruction(0x06, 0, 0, 0xFFFFFFFF), _Instruction(0x06, 0, 0, 0)
    instructions = (_Instruction * 4)(load_flags, is_set, drop, accept)
    program = _Program(4, ctypes.cast(instructions, ctypes.POINTER(_Instruction)))
    listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, bytes(program))


def listen(host: str, port: int, *, count: int = 1) -> list[socket.socket]:
    """`count` listening sockets on one address; with several, the kernel spreads connections over them."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    first = _bound(family, host, port, shared=False)  # a port that another process shares would be accepted otherwise
    if count == 1:
        first.listen(_BACKLOG)
        return [first]
    port = first.getsockname()[1]
    first.close()
    listeners = [_bound(family, host, port, shared=True) for _ in range(count)]
    for listener in listeners:
        listener.listen(_BACKLOG)
    return listeners


def _bound(family: int, host: str, port: int, *, shared: bool) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, port))
    except BaseException:
        listener.close()
        raise
    return listener
