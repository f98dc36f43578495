"""Sockets that requests will arrive at, bound before there is anything to answer them with."""

from __future__ import annotations

import errno
import os
import socket

import anyio

from mainspring.core import error_table
from mainspring.core.errors import InvalidInput


async def bind(host: str, port: int) -> list[socket.socket]:
    """One for each address of the host. The caller closes them.

    Raises: InvalidInput: nobody can listen there.
    """
    sockets: list[socket.socket] = []
    try:
        found = await anyio.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, protocol, _, address in dict.fromkeys(found):
            made = socket.socket(family, kind, protocol)
            sockets.append(made)
            _bind_one(made, address)
    except OSError as error:
        for each in sockets:
            each.close()
        if error.errno == errno.EADDRINUSE:
            taken = error_table.PORT_IN_USE
            raise taken.error(InvalidInput, host=host, port=port, other=port + 1) from error
        code = error.errno or 0
        why = os.strerror(code) if code > 0 else error.strerror  # below 0 are the resolver's
        raise InvalidInput(f"{host}:{port}: cannot listen there: {why}") from error
    return sockets


def _bind_one(made: socket.socket, address: tuple[str, int] | tuple[str, int, int, int]) -> None:
    if os.name == "posix":  # a port that was in use a moment ago is free
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if made.family == socket.AF_INET6:  # IPv4 has a socket of its own
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    made.bind(address)
