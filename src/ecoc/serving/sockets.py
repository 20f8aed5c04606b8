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


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A listening socket. If it is shared, the kernel spreads connections over all that listen on the address."""
    listener = _bound(host, port, shared=shared)
    listener.listen(_BACKLOG)
    return listener


def reserve(host: str, port: int) -> socket.socket:
    """A socket that keeps an address for shared listeners, and gets no connection itself."""
    with _bound(host, port, shared=False) as alone:  # refused if another server listens there, shared or not
        port = alone.getsockname()[1]
    return _bound(host, port, shared=True)


def _bound(host: str, port: int, *, shared: bool) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((host, port))
    except BaseException:
        bound.close()
        raise
    return bound
