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
        write_input = msgspec.convert(dict(call.input), _Input)
        file_state = await files.read_if_present(write_input.file_path)
        if file_state is not None:
            files.check_read(call, write_input.file_path, file_state)
        current = None if file_state is None else decode_text(file_state.content)
        return PlannedChange(
            path=write_input.file_path,
            content=_encoded(write_input.content, current or DecodedText(text="")),
            expected="" if file_state is None else file_state.version,
            before="" if current is None else current.plain,
            after=write_input.content,
        )

    async def probe(call: Call) -> ToolResult | None:
        write_input = msgspec.convert(dict(call.input), _Input)
        path, content = write_input.file_path, to_lf(write_input.content)
        if not await files.has_effect(call, path, lambda current: current.plain == content):
            return None
        return ToolResult.text(f"{path} was written.")

    @tool(probe=probe, max_chars=100_000, on_interrupt="block")
    async def write(call: Call, file_path: str, content: str) -> ToolResult:
        """Write a whole file, and create its folders. An existing file must have been read in this
        session, and not changed since. To change a part of a file, use edit.

        Args:
            file_path: Absolute, or relative to the workspace.
            content: The whole content of the file. An existing file keeps its encoding and its
                line endings.
        """
        return await files.change(call, plan)

    return files.changing_tool(write, plan)


def _encoded(content: str, current: DecodedText) -> bytes:
    """In the encoding of the replaced file, or in UTF-8 if that lacks a character."""
    text = current.with_newlines(content)
    try:
        return current.encoded(text)
    except UnicodeEncodeError:
        pass
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ToolError("the content has half characters (lone surrogates)") from None
