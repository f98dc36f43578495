"""A program that the keeper runs: its request, its output and its result."""

from __future__ import annotations

import os
import time

from mainspring.capabilities.sandbox.wire import pack, unpack

_PIECE = 65536  # bytes read at once, the size of a pipe
LOST_RESULT = pack([b"-1", b"lost", b"0", b"", b"", b"0", b"", b"", b"0"])
"""The result of a program whose outcome is unknown."""


class ProgramRequest:
    """A client's request to run a program."""

    def __init__(self, fields: list[bytes]) -> None:
        name, wall, max_bytes, self.cwd, argv, env, self.stdin = fields
        self.name = name.decode("ascii")
        self.wall_seconds = int(wall) / 1000
        self.max_bytes = int(max_bytes)
        self.argv = unpack(argv)
        self.env = unpack(env)
        self.streams: list[int] = []
        """Input and output descriptors of an attached program; empty for others."""

    def close_streams(self) -> None:
        for descriptor in self.streams:
            os.close(descriptor)
        self.streams = []

    def request(self, rlimits: bytes) -> bytes:
        """The request for the agent, separated by NUL, which no argument of `exec` can contain."""
        words = [self.cwd, rlimits, b"%d" % len(self.argv), *self.argv, *self.env]
        return b"\0".join(words)

    @property
    def is_sound(self) -> bool:
        words = [self.cwd, *self.argv, *self.env]
        is_complete = bool(self.argv) and len(self.streams) in (0, 2)
        return is_complete and not any(b"\0" in word for word in words)


class HeadTailBuffer:
    """Keeps the beginning and the end of a stream."""

    def __init__(self, max_bytes: int) -> None:
        self._half = max_bytes // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.size = 0

    def add(self, piece: bytes) -> None:
        self.size += len(piece)
        room = self._half - len(self._head)
        self._head += piece[:room]
        self._tail += piece[room:] if room else piece
        if len(self._tail) > 2 * self._half + _PIECE:
            del self._tail[: len(self._tail) - self._half]

    def fields(self) -> tuple[bytes, bytes, bytes]:
        tail = bytes(self._tail[-self._half :]) if self._half else b""
        return bytes(self._head), tail, b"%d" % self.size


class Execution:
    """A program that the agent was asked to start."""

    def __init__(self, request: ProgramRequest, rlimits: bytes) -> None:
        self.name = request.name
        self.is_attached = bool(request.streams)
        self._started = time.monotonic()
        self.deadline = self._started + request.wall_seconds
        self.stopped: str | None = None
        self.give_up_at: float | None = None
        """When the keeper stops waiting for the agent to end the program."""
        self._buffers: dict[int, HeadTailBuffer] = {}
        self._both: list[HeadTailBuffer] = []
        self.request = request.request(rlimits)
        self.outer: list[int] = []
        for _ in range(2):
            read_end, write_end = os.pipe()
            os.set_blocking(read_end, False)
            self._buffers[read_end] = buffer = HeadTailBuffer(request.max_bytes)
            self._both.append(buffer)
            self.outer.append(write_end)

    @property
    def streams(self) -> list[int]:
        return list(self._buffers)

    @property
    def size(self) -> int:
        return sum(buffer.size for buffer in self._both)

    def close_child_ends(self) -> None:
        for descriptor in self.outer:
            os.close(descriptor)
        self.outer = []

    def read_output(self, stream: int) -> bytes:
        """The available output. A stream at its end is closed and removed from `streams`."""
        try:
            piece = os.read(stream, _PIECE)
        except BlockingIOError:
            return b""
        if piece:
            self._buffers[stream].add(piece)
        else:
            os.close(stream)
            del self._buffers[stream]
        return piece

    def finish(self) -> bytes:
        """Read the rest of the output, after all writers have ended."""
        pieces: list[bytes] = []
        for stream in self.streams:
            while piece := self.read_output(stream):
                pieces.append(piece)
        for stream in self.streams:
            os.close(stream)
        self._buffers = {}
        return b"".join(pieces)

    def record(self, status: int) -> bytes:
        """The result so far, packed."""
        milliseconds = int((time.monotonic() - self._started) * 1000)
        stopped = (self.stopped or "").encode()
        out, err = self._both
        return pack([b"%d" % status, stopped, b"%d" % milliseconds, *out.fields(), *err.fields()])
