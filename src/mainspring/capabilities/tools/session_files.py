"""The files of a session as its tools know them: which it has read, and as what it read them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TypeAlias

from mainspring.capabilities.tools.diffs import diff_of
from mainspring.capabilities.tools.results import ToolError
from mainspring.core.content import TextBlock
from mainspring.core.errors import (
    FileChanged,
    FileMissing,
    HandsError,
    InvalidInput,
    OutsideWorkspace,
)
from mainspring.core.events import Failure
from mainspring.core.hands import FileState, Workspace
from mainspring.core.tool import Call, Outcome

MAX_FILE_BYTES = 20_000_000
_MAX_SEEN = 10_000
_MAX_SHOWN = 4000
"""Characters of a diff: the model knows what it wrote."""

READ_AGAIN = "read it again, then decide what to change"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A change to a file that can be made as things stand."""

    path: str
    content: bytes
    expected: str
    """The version it is to replace; empty: no file is there."""
    before: str
    after: str

    @property
    def diff(self) -> str:
        return diff_of(self.path, self.before, self.after)


Plan: TypeAlias = Callable[[Call], Awaitable[Planned]]
"""Raises ToolError, HandsError: why it cannot be made, in words for the model."""


class SessionFiles:
    """What was read is known by its version in this process, and by the time of reading from
    earlier ones. If a person has agreed to a diff, nothing need have been read: that may have been
    in another process, days ago."""

    def __init__(self, workspace: Workspace, earlier: Mapping[str, int] | None = None) -> None:
        """`earlier`: paths that the session's log says were read or written by an earlier process,
        and the last moment, in nanoseconds, at which the model knew them."""
        self.workspace = workspace
        self._earlier = dict(earlier or {})
        self._seen: OrderedDict[tuple[str, str, PurePosixPath], str] = OrderedDict()

    async def read(self, call: Call, path: str) -> FileState:
        """Read a file for the model, which may change it from now on."""
        found = await self.workspace.read(path, max_bytes=MAX_FILE_BYTES)
        self._note(call, path, found.version)
        return found

    async def found(self, path: str) -> FileState | None:
        try:
            return await self.workspace.read(path, max_bytes=MAX_FILE_BYTES)
        except FileMissing:
            return None

    def check_read(self, call: Call, path: str, found: FileState) -> None:
        """Raises ToolError: the model does not know what is in this file."""
        seen = self._seen.get(self._key(call, path))
        read_at = self._read_earlier(path) if seen is None else None
        if read_at is not None and found.changed_ns > read_at:
            raise ToolError(f"{path} has changed since it was read: {READ_AGAIN}")
        if seen is None and read_at is None and not call.is_approved:
            raise ToolError(f"{path} has not been read in this session: read it first")
        if seen not in (None, found.version):
            raise ToolError(f"{path} has changed since it was read: {READ_AGAIN}")

    async def change(self, call: Call, plan: Plan) -> Outcome:
        try:
            planned = await plan(call)
            written = await self.workspace.write(
                planned.path, planned.content, expected=planned.expected
            )
        except (ToolError, HandsError) as error:
            return refused(error)
        self._note(call, planned.path, written.version)
        return _done(planned)

    async def objection(self, call: Call, plan: Plan) -> str | None:
        try:
            await plan(call)
        except (ToolError, HandsError) as error:
            return told(error)
        return None

    async def preview(self, call: Call, plan: Plan) -> str | None:
        try:
            return (await plan(call)).diff
        except (ToolError, HandsError):
            return None

    def unreachable(self, path: str) -> str | None:
        """Why a path cannot be asked for at all."""
        try:
            self.workspace.locate(path)
        except HandsError as error:
            return told(error)
        return None

    def judged(self, given: Mapping[str, object], field: str) -> Mapping[str, object]:
        """The input with an absolute path, as it was named: rules are held against a link and
        against what it leads to. With `..` behind a link it is not what it looks like, so then it
        is the path that is meant."""
        path = str(given.get(field) or ".")
        where = self.workspace.named(path)
        if ".." in path.split("/"):
            with suppress(HandsError):
                where = str(self.workspace.locate(path))
        return {**given, field: where}

    def _read_earlier(self, path: str) -> int | None:
        """When an earlier process last knew the file, under whatever name."""
        if not self._earlier:
            return None
        place = self.workspace.locate(path)
        times = [time for name, time in self._earlier.items() if self._leads_to(name, place)]
        return max(times, default=None)

    def _leads_to(self, name: str, place: PurePosixPath) -> bool:
        try:
            return self.workspace.locate(name) == place
        except HandsError:
            return False

    def _note(self, call: Call, path: str, version: str) -> None:
        key = self._key(call, path)
        self._seen[key] = version
        self._seen.move_to_end(key)
        if len(self._seen) > _MAX_SEEN:
            self._seen.popitem(last=False)

    def _key(self, call: Call, path: str) -> tuple[str, str, PurePosixPath]:
        return call.session_id, call.thread_id, self.workspace.locate(path)


def refused(error: Exception) -> Outcome:
    is_asked_wrongly = isinstance(error, ToolError | InvalidInput | OutsideWorkspace | FileMissing)
    kind: Failure = "invalid" if is_asked_wrongly else "failed"
    return Outcome.text(told(error), ok=False, error=kind)


def told(error: Exception) -> str:
    words = f"{error}: {READ_AGAIN}" if isinstance(error, FileChanged) else str(error)
    return words.encode("utf-8", "replace").decode()


def _done(planned: Planned) -> Outcome:
    if planned.expected == "":
        lines = len(planned.after.splitlines())
        return Outcome((TextBlock(f"Made {planned.path} with {lines:,} lines."),))
    diff = planned.diff
    shown = diff if len(diff) <= _MAX_SHOWN else f"{diff[:_MAX_SHOWN]}\n[the diff goes on]"
    return Outcome((TextBlock(f"Changed {planned.path}:\n{shown}"),), details={"diff": diff})
