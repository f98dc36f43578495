"""The tool `write`: a file as a whole."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import msgspec
from msgspec import Struct

from mainspring.capabilities.tools.define import tool
from mainspring.capabilities.tools.results import ToolError
from mainspring.capabilities.tools.session_files import Planned, SessionFiles
from mainspring.capabilities.tools.texts import Text, plain, text_of
from mainspring.core.errors import HandsError
from mainspring.core.tool import Call, Outcome, Tool


class _Input(Struct, frozen=True):
    file_path: str
    content: str


def write_tool(files: SessionFiles) -> Tool:
    async def plan(call: Call) -> Planned:
        wanted = msgspec.convert(dict(call.input), _Input)
        found = await files.found(wanted.file_path)
        if found is not None:
            files.check_read(call, wanted.file_path, found)
        there = None if found is None else text_of(found.content)
        return Planned(
            path=wanted.file_path,
            content=_encoded(wanted.content, there or Text(text="")),
            expected="" if found is None else found.version,
            before="" if there is None else there.plain,
            after=wanted.content,
        )

    async def probe(call: Call) -> Outcome | None:
        wanted = msgspec.convert(dict(call.input), _Input)
        try:
            found = await files.found(wanted.file_path)
        except HandsError:
            return None
        there = None if found is None else text_of(found.content)
        if there is None or there.plain != plain(wanted.content):
            return None
        return Outcome.text(f"{wanted.file_path} was written.")

    @tool(probe=probe, max_chars=100_000, on_interrupt="block")
    async def write(call: Call, file_path: str, content: str) -> Outcome:
        """Write a whole file, making its folders; a file that exists must have been read in this
        session, and not changed since. To change a part of a file, use edit.

        Args:
            file_path: Absolute, or relative to the workspace.
            content: All that is to be in the file. An existing file keeps its encoding and its
                line ends.
        """
        return await files.change(call, plan)

    return replace(
        write,
        objection=partial(files.objection, plan=plan),
        preview=partial(files.preview, plan=plan),
        judged=partial(files.judged, field="file_path"),
    )


def _encoded(content: str, there: Text) -> bytes:
    """As the file that is replaced is written; what its encoding lacks makes it UTF-8."""
    spelled = there.spelled(content)
    try:
        return there.encoded(spelled)
    except UnicodeEncodeError:
        pass
    try:
        return spelled.encode()
    except UnicodeEncodeError:
        raise ToolError("the content has half characters (lone surrogates)") from None
