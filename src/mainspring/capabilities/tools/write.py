"""The tool `write` writes a whole file."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from mainspring.capabilities.tools.session_files import (
    DecodedText,
    PlannedChange,
    SessionFiles,
    decode_text,
    to_lf,
)
from mainspring.core.tool import Call, Tool, ToolResult
from mainspring.function_tools.define import tool
from mainspring.function_tools.results import ToolError


class _Input(Struct, frozen=True):
    file_path: str
    content: str


def write_tool(files: SessionFiles) -> Tool:
    async def plan(call: Call) -> PlannedChange:
        wanted = msgspec.convert(dict(call.input), _Input)
        found = await files.read_if_present(wanted.file_path)
        if found is not None:
            files.check_read(call, wanted.file_path, found)
        there = None if found is None else decode_text(found.content)
        return PlannedChange(
            path=wanted.file_path,
            content=_encoded(wanted.content, there or DecodedText(text="")),
            expected="" if found is None else found.version,
            before="" if there is None else there.plain,
            after=wanted.content,
        )

    async def probe(call: Call) -> ToolResult | None:
        wanted = msgspec.convert(dict(call.input), _Input)
        there = await files.text_if_present(wanted.file_path)
        if there is None or there.plain != to_lf(wanted.content):
            return None
        return ToolResult.text(f"{wanted.file_path} was written.")

    @tool(probe=probe, max_chars=100_000, on_interrupt="block")
    async def write(call: Call, file_path: str, content: str) -> ToolResult:
        """Write a whole file, making its folders; a file that exists must have been read in this
        session, and not changed since. To change a part of a file, use edit.

        Args:
            file_path: Absolute, or relative to the workspace.
            content: All that is to be in the file. An existing file keeps its encoding and its
                line ends.
        """
        return await files.change(call, plan)

    return files.changing_tool(write, plan)


def _encoded(content: str, there: DecodedText) -> bytes:
    """In the encoding of the replaced file, or in UTF-8 if that lacks a character."""
    spelled = there.with_newlines(content)
    try:
        return there.encoded(spelled)
    except UnicodeEncodeError:
        pass
    try:
        return spelled.encode()
    except UnicodeEncodeError:
        raise ToolError("the content has half characters (lone surrogates)") from None
