"""The files of a session as its tools know them: which version was read, how text is encoded, and
the diff of a change."""

from __future__ import annotations

import codecs
import re
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import unified_diff
from functools import partial
from itertools import takewhile
from pathlib import PurePosixPath
from typing import TypeAlias

from msgspec import Struct

from mainspring.core.content import TextBlock
from mainspring.core.errors import (
    FileChanged,
    FileMissing,
    InvalidInput,
    OutsideWorkspace,
    ToolEnvironmentError,
)
from mainspring.core.events import Failure
from mainspring.core.ports import FileState, Workspace
from mainspring.core.tool import Call, Tool, ToolResult
from mainspring.function_tools.results import ToolError

_CONTEXT = 3  # lines around a change, as `diff -u` has
_MAX_LINES = 4000  # compared for a diff; the time grows with the square
_HUNK = re.compile(r"@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@")


def diff_of(path: str, before: str, after: str) -> str:
    """A unified diff. Equal lines at both ends are skipped, so it is never slow."""
    old, new = before.splitlines(), after.splitlines()
    head = _common_lines(old, new)
    tail = _common_lines(old[head:][::-1], new[head:][::-1])
    first = max(0, head - _CONTEXT)
    last = max(0, tail - _CONTEXT)
    old_part, new_part = old[first : len(old) - last], new[first : len(new) - last]
    if len(old_part) + len(new_part) > _MAX_LINES:
        change = f"{len(old_part):,} lines become {len(new_part):,}"
        return f"{path}: {change}, from line {head + 1:,} on"
    lines = unified_diff(old_part, new_part, path, path, n=_CONTEXT, lineterm="")
    text = "\n".join(_HUNK.sub(lambda hunk: _shift_hunk(hunk, first), line, 1) for line in lines)
    return text or f"{path}: only line endings differ"


def _common_lines(old: Sequence[str], new: Sequence[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))


def _shift_hunk(hunk: re.Match[str], by: int) -> str:
    old, old_count, new, new_count = hunk.groups(default="")
    return f"@@ -{int(old) + by}{old_count} +{int(new) + by}{new_count} @@"


MAX_FILE_BYTES = 20_000_000  # that a tool reads or changes in memory
_MAX_VERSIONS = 10_000  # of files, remembered to notice foreign changes
_MAX_SHOWN = 4000
"""The limit for a diff in characters: the model knows what it wrote."""

READ_AGAIN = "read it again, then decide what to change"


class PlannedChange(Struct, frozen=True, kw_only=True):
    """A change to a file that is valid for its current version."""

    path: str
    content: bytes
    expected: str
    """The version that it replaces; empty: the file does not exist."""
    before: str
    after: str

    @property
    def diff(self) -> str:
        return diff_of(self.path, self.before, self.after)


PlanChange: TypeAlias = Callable[[Call], Awaitable[PlannedChange]]
"""Raises ToolError, ToolEnvironmentError: why the change is not possible, as text for the model."""


class SessionFiles:
    """Tracks which files the model has read: by version in this process, and by time for reads in
    earlier processes. If a person approved a diff, no earlier read is needed: it may have been in
    another process, days ago."""

    def __init__(self, workspace: Workspace, earlier: Mapping[str, int] | None = None) -> None:
        """`earlier`: paths that an earlier process read or wrote according to the session's log,
        with the last time, in nanoseconds, at which the model knew their content."""
        self.workspace = workspace
        self._earlier = dict(earlier or {})
        self._versions_read: OrderedDict[tuple[str, str, PurePosixPath], str] = OrderedDict()

    async def read(self, call: Call, path: str) -> FileState:
        """Read a file for the model, which may change it from now on."""
        file_state = await self.workspace.read(path, max_bytes=MAX_FILE_BYTES)
        self._note(call, path, file_state.version)
        return file_state

    async def read_if_present(self, path: str) -> FileState | None:
        try:
            return await self.workspace.read(path, max_bytes=MAX_FILE_BYTES)
        except FileMissing:
            return None

    def check_read(self, call: Call, path: str, file_state: FileState) -> None:
        """Raises ToolError: the model does not know the current content of this file."""
        version = self._versions_read.get(self._key(call, path))
        read_at = self._read_earlier(path) if version is None else None
        if read_at is not None and file_state.changed_ns > read_at:
            raise ToolError(f"{path} has changed since it was read: {READ_AGAIN}")
        if version is None and read_at is None and not call.is_approved:
            raise ToolError(f"{path} has not been read in this session: read it first")
        if version not in (None, file_state.version):
            raise ToolError(f"{path} has changed since it was read: {READ_AGAIN}")

    async def change(self, call: Call, plan: PlanChange) -> ToolResult:
        try:
            planned = await plan(call)
            version = planned.expected
            new_state = await self.workspace.write(planned.path, planned.content, expected=version)
        except (ToolError, ToolEnvironmentError) as error:
            return failed_result(error)
        self._note(call, planned.path, new_state.version)
        if planned.expected == "":
            lines = len(planned.after.splitlines())
            return ToolResult((TextBlock(f"Created {planned.path} with {lines:,} lines."),))
        diff = planned.diff
        text = diff if len(diff) <= _MAX_SHOWN else f"{diff[:_MAX_SHOWN]}\n[diff truncated]"
        return ToolResult((TextBlock(f"Changed {planned.path}:\n{text}"),), details={"diff": diff})

    async def has_effect(
        self, call: Call, path: str, is_effect: Callable[[DecodedText], bool]
    ) -> bool:
        """Whether an interrupted change of a file has happened. Then the model knows the file, as
        after a change without an interruption."""
        try:
            file_state = await self.read_if_present(path)
        except ToolEnvironmentError:
            return False
        text = None if file_state is None else decode_text(file_state.content)
        if file_state is None or text is None or not is_effect(text):
            return False
        self._note(call, path, file_state.version)
        return True

    def changing_tool(self, tool: Tool, plan: PlanChange) -> Tool:
        """A tool that changes the file `file_path`, with its objections and the preview of its
        diff."""

        async def objection(call: Call) -> str | None:
            try:
                await plan(call)
            except (ToolError, ToolEnvironmentError) as error:
                return failure_text(error)
            return None

        async def preview(call: Call) -> str | None:
            try:
                return (await plan(call)).diff
            except (ToolError, ToolEnvironmentError):
                return None

        normalize = partial(self._normalize_input, field="file_path")
        return replace(tool, objection=objection, preview=preview, normalize_input=normalize)

    def reading_tool(self, tool: Tool, field: str) -> Tool:
        """A tool that reads the path in an input field, with its objections."""

        async def objection(call: Call) -> str | None:
            try:
                self.workspace.locate(str(call.input.get(field, ".")))
            except ToolEnvironmentError as error:
                return failure_text(error)
            return None

        normalize = partial(self._normalize_input, field=field)
        return replace(tool, objection=objection, normalize_input=normalize)

    def _normalize_input(self, args: Mapping[str, object], field: str) -> Mapping[str, object]:
        """The input with an absolute path, as it was named: rules are matched against a link and
        against its target. A path with `..` after a link may lead elsewhere than it seems, so it
        is resolved."""
        path = str(args.get(field) or ".")
        where = self.workspace.named(path)
        if ".." in path.split("/"):
            with suppress(ToolEnvironmentError):
                where = str(self.workspace.locate(path))
        return {**args, field: where}

    def _read_earlier(self, path: str) -> int | None:
        """When an earlier process last knew the file, under any name."""
        if not self._earlier:
            return None
        place = self.workspace.locate(path)
        times = [time for name, time in self._earlier.items() if self._leads_to(name, place)]
        return max(times, default=None)

    def _leads_to(self, name: str, place: PurePosixPath) -> bool:
        try:
            return self.workspace.locate(name) == place
        except ToolEnvironmentError:
            return False

    def _note(self, call: Call, path: str, version: str) -> None:
        key = self._key(call, path)
        self._versions_read[key] = version
        self._versions_read.move_to_end(key)
        if len(self._versions_read) > _MAX_VERSIONS:
            self._versions_read.popitem(last=False)

    def _key(self, call: Call, path: str) -> tuple[str, str, PurePosixPath]:
        return call.session_id, call.thread_id, self.workspace.locate(path)


def failed_result(error: Exception) -> ToolResult:
    is_invalid_call = isinstance(error, ToolError | InvalidInput | OutsideWorkspace | FileMissing)
    kind: Failure = "invalid" if is_invalid_call else "failed"
    return ToolResult.text(failure_text(error), ok=False, error=kind)


def failure_text(error: Exception) -> str:
    words = f"{error}: {READ_AGAIN}" if isinstance(error, FileChanged) else str(error)
    return words.encode("utf-8", "replace").decode()


_MARKS = (
    *((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le")),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CONTROLS = bytes({*range(32), 127} - {*b"\t\n\r\f\b\x1b"})
_MAX_CONTROLS = 0.01  # the share of control characters above which a text is binary


class DecodedText(Struct, frozen=True, kw_only=True):
    text: str
    """The text, with the line ends of the file."""
    encoding: str = "utf-8"
    mark: bytes = b""
    """The byte order mark at the start of the file."""

    @property
    def newline(self) -> str:
        """The line end of most lines."""
        ends = self.text.count("\n")
        return "\r\n" if ends and self.text.count("\r\n") * 2 > ends else "\n"

    @property
    def plain(self) -> str:
        """The text with LF line ends, as models write them."""
        return self.text.replace("\r\n", "\n")

    def encoded(self, text: str) -> bytes:
        """Another text in the encoding of this one.

        Raises:
            UnicodeEncodeError: it has characters that the encoding does not have.
        """
        return self.mark + text.encode(self.encoding)

    def with_newlines(self, text: str) -> str:
        """A model's text with the line ends of this one; CRLF never becomes LF."""
        return text if self.newline == "\n" else to_lf(text).replace("\n", self.newline)


def to_lf(text: str) -> str:
    return text.replace("\r\n", "\n")


def decode_text(content: bytes) -> DecodedText | None:
    """Decode a file's content; `None` if it is not text."""
    for mark, encoding in _MARKS:
        if content.startswith(mark) and not content.startswith(codecs.BOM_UTF32_LE):
            try:
                text = content[len(mark) :].decode(encoding)
            except UnicodeDecodeError:
                return None
            return DecodedText(text=text, encoding=encoding, mark=mark)
    if b"\0" in content:
        return None
    try:
        return DecodedText(text=content.decode())
    except UnicodeDecodeError:
        pass
    # Any bytes are valid Latin-1 and round-trip; control characters show that a file is binary.
    controls = len(content) - len(content.translate(None, _CONTROLS))
    is_text = controls <= len(content) * _MAX_CONTROLS
    return DecodedText(text=content.decode("latin-1"), encoding="latin-1") if is_text else None


def occurrences(text: str, part: str) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + len(part))


def replace_text(source: DecodedText, old: str, new: str, *, everywhere: bool) -> str:
    """The text with the first or every `old` replaced by `new`; both have LF line ends.

    Nothing else is changed, even in a file with mixed line ends.
    """
    ends = [at - number for number, at in enumerate(occurrences(source.text, "\r\n"))]
    replacement = new.replace("\n", source.newline)
    pieces: list[str] = []
    copied_to = 0
    for at in list(occurrences(source.plain, old))[: None if everywhere else 1]:
        pieces += [source.text[copied_to : at + bisect_left(ends, at)], replacement]
        copied_to = at + len(old) + bisect_left(ends, at + len(old))
    return "".join([*pieces, source.text[copied_to:]])
