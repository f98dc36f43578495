"""A connection to a keeper, from the harness's side: one question, and what is said until it is
answered."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
from anyio import CancelScope
from anyio.abc import UNIXSocketStream

from mainspring.capabilities.sandbox.wire import SOCKET, Frames, frame
from mainspring.core.errors import SandboxFailed
from mainspring.core.hands import unheard_output

_STOP_SECONDS = 10.0
"""For a program to be killed, whatever it is at."""
_ENDS = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)


@dataclass(frozen=True, slots=True)
class Answer:
    record: bytes | None
    """`None`: the keeper has none, or is gone."""
    is_running: bool = False


class Talk:
    def __init__(self, stream: UNIXSocketStream) -> None:
        self._stream = stream
        self._frames = Frames()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        with CancelScope(shield=True):
            await self._stream.aclose()

    async def ask(
        self, message: bytes, hear: Callable[[bytes], None] = unheard_output
    ) -> bytes | None:
        """The record of a program; `None`: the keeper has none, or is gone.

        Raises:
            SandboxFailed: it was not run.
        """
        return (await self.exchange(message, hear)).record

    async def exchange(
        self, message: bytes, hear: Callable[[bytes], None] = unheard_output
    ) -> Answer:
        """As `ask`; a program may still be running when this answers for it."""
        with CancelScope(shield=True):  # half a message would be the beginning of another
            try:
                await self._stream.send(message)
            except _ENDS:
                return Answer(None)
        return await self._answer(hear)

    async def perform(
        self, name: str, message: bytes, hear: Callable[[bytes], None]
    ) -> bytes | None:
        """Have a program run; if the caller is cancelled meanwhile, so is the program."""
        try:
            return await self.ask(message, hear)
        except anyio.get_cancelled_exc_class():
            with CancelScope(shield=True), anyio.move_on_after(_STOP_SECONDS):
                await self.call_off(name)
            raise

    async def call_off(self, name: str) -> None:
        """Kill a program, and wait until it is dead."""
        try:
            await self.ask(frame(b"cancel", name.encode()) + frame(b"found", name.encode()))
        except SandboxFailed:
            return  # it had not begun

    async def listener(self) -> socket.socket | None:
        try:
            await self._stream.send(frame(b"listener"))
            _, descriptors = await self._stream.receive_fds(1, 1)
        except _ENDS as error:
            raise SandboxFailed("the sandbox died before it was used") from error
        return socket.socket(fileno=descriptors[0]) if descriptors else None

    async def _answer(self, hear: Callable[[bytes], None]) -> Answer:
        while True:
            for kind, *fields in await self._next():
                match kind:
                    case b"output":
                        hear(fields[0])
                    case b"failed":
                        raise SandboxFailed(fields[0].decode("utf-8", "replace"))
                    case b"ran" | b"running":
                        return Answer(fields[0], is_running=kind == b"running")
                    case _:
                        return Answer(None)

    async def _next(self) -> list[list[bytes]]:
        try:
            return self._frames.feed(await self._stream.receive())
        except _ENDS:
            return [[b"gone"]]


async def knock(state: Path) -> Talk | None:
    """A connection to the keeper of `state`, if one lives."""
    try:
        if sys.platform != "linux":
            return Talk(await anyio.connect_unix(state / SOCKET))
        folder = os.open(state, os.O_PATH | os.O_DIRECTORY)
        try:  # a socket's own path must not be longer than 107 bytes
            return Talk(await anyio.connect_unix(f"/proc/self/fd/{folder}/{SOCKET}"))
        finally:
            os.close(folder)
    except (FileNotFoundError, ConnectionRefusedError):
        return None
