"""Sockets of the host's that nobody in a sandbox may reach, and a knock at one of its own."""

from __future__ import annotations

import os
import secrets
import selectors
import socket
import threading
from pathlib import Path

_KNOCK_SECONDS = 0.05


class Listeners:
    """All of them in one thread; whatever comes in on any of them counts."""

    def __init__(self, folder: Path, *, answer: bytes) -> None:
        self._path = folder / "host.sock"
        self._datagrams = folder / "host.dgram"
        self._abstract = "abstract-" + secrets.token_hex(8)
        self._answer = answer
        self._reached = threading.Event()
        self._ended = threading.Event()
        self._sockets: list[socket.socket] = []
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Listeners:
        tcp = self._open(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))
        udp = self._open(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0))
        self._open(socket.AF_UNIX, socket.SOCK_STREAM, str(self._path))
        self._open(socket.AF_UNIX, socket.SOCK_DGRAM, str(self._datagrams))
        self._open(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + self._abstract)
        os.chmod(self._path, 0o777)
        os.chmod(self._datagrams, 0o777)
        self._tcp, self._udp = tcp.getsockname()[1], udp.getsockname()[1]
        self._tcp6 = self._open_v6()
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._free = probe.getsockname()[1]
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        for item in self._sockets:
            item.close()

    @property
    def env(self) -> dict[str, str]:
        return {
            "TCP": str(self._tcp),
            "TCP6": str(self._tcp6),
            "UDP": str(self._udp),
            "FREE_PORT": str(self._free),
            "UNIX": str(self._path),
            "UNIX_DATAGRAM": str(self._datagrams),
            "ABSTRACT": self._abstract,
        }

    def forget(self) -> None:
        self._reached.clear()

    def is_reached(self) -> bool:
        """What was sent just before the end of a call may still be on its way."""
        return self._reached.wait(2 * _KNOCK_SECONDS)

    def _open(self, family: int, kind: int, address: tuple[str, int] | str) -> socket.socket:
        opened = socket.socket(family, kind)
        opened.bind(address)
        if kind == socket.SOCK_STREAM:
            opened.listen(64)
        opened.setblocking(False)
        self._sockets.append(opened)
        return opened

    def _open_v6(self) -> int:
        try:
            return self._open(socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0)).getsockname()[1]
        except OSError:
            return 0  # a machine without it

    def _listen(self) -> None:
        with selectors.DefaultSelector() as selector:
            for item in self._sockets:
                selector.register(item, selectors.EVENT_READ)
            while not self._ended.is_set():
                for key, _ in selector.select(_KNOCK_SECONDS):
                    assert isinstance(key.fileobj, socket.socket)
                    self._receive(key.fileobj)
                self._knock()

    def _receive(self, at: socket.socket) -> None:
        self._reached.set()
        if at.type == socket.SOCK_DGRAM:
            at.recv(65536)
            return
        came, _ = at.accept()
        with came:
            came.sendall(self._answer)

    def _knock(self) -> None:
        with socket.socket() as mine:
            mine.settimeout(_KNOCK_SECONDS)
            if mine.connect_ex(("127.0.0.1", self._free)) == 0:
                self._reached.set()
