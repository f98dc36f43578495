"""The tool `edit`: one text in a file replaced by another."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import islice

import msgspec
from anyio import to_thread
from msgspec import Struct

from mainspring.capabilities.tools.define import tool
from mainspring.capabilities.tools.nearest import hint
from mainspring.capabilities.tools.results import ToolError
from mainspring.capabilities.tools.session_files import Planned, SessionFiles
from mainspring.capabilities.tools.texts import Text, occurrences, plain, replaced, text_of
from mainspring.core.errors import FileMissing, HandsError
from mainspring.core.tool import Call, Outcome, Tool

_SHOWN_PLACES = 10


class _Input(Struct, frozen=True):
    file_path: str
    old_string: str
    new_string: str
    replace_all: bool = False

    @property
    def old(self) -> str:
        return plain(self.old_string)

    @property
    def new(self) -> str:
        return plain(self.new_string)


def edit_tool(files: SessionFiles) -> Tool:
    async def plan(call: Call) -> Planned:
        wanted = msgspec.convert(dict(call.input), _Input)
        found = await files.found(wanted.file_path)
        if found is None:
            raise FileMissing(f"{wanted.file_path}: there is no such file; write makes new ones")
        source = text_of(found.content)
        if source is None:
            raise ToolError(f"{wanted.file_path} is not text, so it cannot be edited")
        files.check_read(call, wanted.file_path, found)
        after = await to_thread.run_sync(_edited, source, wanted)
        return Planned(
            path=wanted.file_path,
            content=_encoded(source, after),
            expected=found.version,
            before=source.plain,
            after=plain(after),
        )

    async def probe(call: Call) -> Outcome | None:
        wanted = msgspec.convert(dict(call.input), _Input)
        try:
            found = await files.found(wanted.file_path)
        except HandsError:
            return None
        source = None if found is None else text_of(found.content)
        if source is None or not _has_happened(source.plain, wanted):
            return None
        return Outcome.text(f"{wanted.file_path} was changed.")

    @tool(probe=probe, max_chars=100_000, on_interrupt="block")
    async def edit(
        call: Call, file_path: str, old_string: str, new_string: str, replace_all: bool = False
    ) -> Outcome:
        """Replace a text in a file by another. The file must have been read in this session, and
        not changed since; its encoding and line ends are kept.

        Args:
            file_path: Absolute, or relative to the workspace.
            old_string: The text to replace, exactly as it is in the file, without line numbers.
                It must be there once only, unless replace_all is set: take in enough around it.
            new_string: What is to be there instead; empty to delete.
            replace_all: Replace every occurrence.
        """
        return await files.change(call, plan)

    return replace(
        edit,
        objection=partial(files.objection, plan=plan),
        preview=partial(files.preview, plan=plan),
        judged=partial(files.judged, field="file_path"),
    )


def _has_happened(text: str, wanted: _Input) -> bool:
    """The new text is there, and the old one nowhere but in it."""
    rest = text.replace(wanted.new, "\0") if wanted.new else text
    return wanted.new in text and wanted.old not in rest


def _edited(source: Text, wanted: _Input) -> str:
    """Raises ToolError: there is nothing to replace, or too much."""
    if not wanted.old:
        raise ToolError("old_string is empty: to make a file or to rewrite it, use write")
    if wanted.old == wanted.new:
        raise ToolError("old_string and new_string are the same: nothing would change")
    text = source.plain
    places = list(islice(occurrences(text, wanted.old), _SHOWN_PLACES + 1))
    if not places:
        near = hint(text, wanted.old)
        raise ToolError(f"old_string is not in {wanted.file_path}. {near}".rstrip())
    if len(places) > 1 and not wanted.replace_all:
        raise ToolError(_ambiguous(text, places))
    return replaced(source, wanted.old, wanted.new, everywhere=wanted.replace_all)


def _ambiguous(text: str, places: list[int]) -> str:
    lines = [text.count("\n", 0, at) + 1 for at in places[:_SHOWN_PLACES]]
    shown = ", ".join(map(str, lines))
    more = " and more" if len(places) > _SHOWN_PLACES else ""
    return (
        f"old_string is there more than once, at lines {shown}{more}: take in more of what is"
        " around the one you mean, or set replace_all"
    )


def _encoded(source: Text, after: str) -> bytes:
    try:
        return source.encoded(after)
    except UnicodeEncodeError as error:
        odd = ascii(error.object[error.start : error.start + 1])
        raise ToolError(f"the file is in {source.encoding}, which has no {odd}") from None
