"""The keeper's side of a connection to a client. It never blocks the keeper."""

from __future__ import annotations

import _socket
import os
import sys

from mainspring.capabilities.sandbox.wire import Frames, frame

_MAX_UNSENT = 4 * 1024 * 1024
"""A client that does not read misses live output beyond this, and finds it in the record."""
_PIECE = 262144  # bytes of a client's messages read at once
_PARTING_SECONDS = 2.0  # for a client to take the last answer
_INT = 4  # bytes of a C int in SCM_RIGHTS


class ClientConnection:
    def __init__(self, accepted: int) -> None:
        self.descriptor = accepted
        self._socket = _socket.socket(fileno=accepted)
        self._socket.setblocking(False)
        self._frames = Frames()
        self._unsent = bytearray()
        self.is_gone = False
        self._descriptors: list[int] = []
        self.waits_for: str | None = None
        self.wants_output = False

    @property
    def is_same_user(self) -> bool:
        """Whether the client has our uid. Other users cannot access the socket's folder either."""
        if sys.platform != "linux":
            return True
        credentials = self._socket.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 3 * _INT)
        return int.from_bytes(credentials[_INT : 2 * _INT], sys.byteorder) == os.geteuid()

    @property
    def has_more(self) -> bool:
        return bool(self._unsent)

    def read(self) -> list[list[bytes]]:
        try:
            piece, ancillary, _, _ = self._socket.recvmsg(_PIECE, _socket.CMSG_SPACE(2 * _INT))
            self._take_descriptors(ancillary)
            messages = self._frames.feed(piece)
        except BlockingIOError:
            return []
        except (OSError, ValueError):
            self.is_gone = True
            return []
        self.is_gone = self.is_gone or not piece
        return messages

    def _take_descriptors(self, ancillary: list[tuple[int, int, bytes]]) -> None:
        for _, _, packed in ancillary:
            for at in range(0, len(packed) - len(packed) % _INT, _INT):
                descriptor = int.from_bytes(packed[at : at + _INT], sys.byteorder)
                os.set_inheritable(descriptor, False)
                self._descriptors.append(descriptor)

    def take_streams(self) -> list[int]:
        """The input and output descriptors that the client sent for the program that it
        requests."""
        streams, self._descriptors = self._descriptors, []
        return streams

    def send(self, *fields: bytes) -> None:
        self._unsent += frame(*fields)
        self.flush()

    def send_output(self, piece: bytes) -> None:
        if len(self._unsent) + len(piece) <= _MAX_UNSENT:
            self.send(b"output", piece)

    def send_descriptor(self, descriptor: int | None) -> None:
        """Send a copy of a descriptor, or a message that there is none."""
        if descriptor is None:
            self._socket.send(b"-")
            return
        rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptor.to_bytes(_INT, sys.byteorder))
        self._socket.sendmsg([b"+"], [rights])

    def flush(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            return
        except OSError:
            self.is_gone = True

    def flush_and_close(self) -> None:
        """Send the remaining data and close. It may block: the keeper has nothing else to do."""
        self._socket.settimeout(_PARTING_SECONDS)
        self.flush()
        self.close()

    def close(self) -> None:
        for descriptor in self.take_streams():
            os.close(descriptor)
        self._socket.close()
