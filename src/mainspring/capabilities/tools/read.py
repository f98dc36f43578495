"""The tool `read`: text with line numbers, images, notebooks, and what a folder has in it."""

from __future__ import annotations

import base64
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath
from typing import Annotated

from msgspec import Meta

from mainspring.capabilities.tools.define import tool
from mainspring.capabilities.tools.media import described, image_type
from mainspring.capabilities.tools.notebooks import notebook_text
from mainspring.capabilities.tools.results import ToolError
from mainspring.capabilities.tools.session_files import SessionFiles, refused
from mainspring.capabilities.tools.texts import text_of
from mainspring.core.content import Base64Source, ImageBlock, TextBlock
from mainspring.core.errors import FileRefused, HandsError, IsFolder
from mainspring.core.hands import Entry
from mainspring.core.tool import Call, Outcome, Tool

MAX_BYTES = 80_000
"""Of one result: about 25,000 tokens of code."""
MAX_LINE_CHARS = 2000
MAX_IMAGE_BYTES = 5_000_000
_MAX_LISTED = 500

Range = Annotated[list[int], Meta(min_length=2, max_length=2)]


def read_tool(files: SessionFiles) -> Tool:
    @tool(read_only=True, concurrent=True, max_chars=MAX_BYTES + 2000)
    async def read(call: Call, file_path: str, view_range: Range | None = None) -> Outcome:
        """Read a file: text comes with line numbers, images are shown, a notebook comes as text,
        a folder as a list of what is in it. A long file comes in part, with how to read on.

        Args:
            file_path: Absolute, or relative to the workspace.
            view_range: First and last line to show, counted from 1; -1 as the last is the end.
        """
        try:
            found = await files.read(call, file_path)
            return _shown(file_path, found.content, view_range)
        except IsFolder:
            return await _listing(files, file_path)
        except FileRefused as error:
            hint = "grep finds lines in it, and programs can show a part of it"
            return Outcome.text(f"{error}. {hint}.", ok=False, error="failed")
        except (ToolError, HandsError) as error:
            return refused(error)

    async def objection(call: Call) -> str | None:
        return files.unreachable(str(call.input["file_path"]))

    return replace(read, objection=objection, judged=partial(files.judged, field="file_path"))


def _shown(path: str, content: bytes, view_range: list[int] | None) -> Outcome:
    if not content:
        return Outcome.text(f"({path} is empty)")
    if media_type := image_type(content):
        return _image(path, content, media_type)
    source = text_of(content)
    if source is None:
        raise ToolError(f"{path} is not text: {len(content):,} bytes, {described(content)}")
    text = source.plain
    if PurePosixPath(path).suffix == ".ipynb":
        text = notebook_text(text) or text
    return Outcome.text(_numbered(text, view_range))


def _image(path: str, content: bytes, media_type: str) -> Outcome:
    if len(content) > MAX_IMAGE_BYTES:
        raise ToolError(
            f"{path} is an image of {len(content):,} bytes; {MAX_IMAGE_BYTES:,} can be shown"
        )
    data = base64.b64encode(content).decode()
    shown = ImageBlock(source=Base64Source(media_type=media_type, data=data))
    return Outcome((TextBlock(f"{path}: {media_type}, {len(content):,} bytes"), shown))


def _numbered(text: str, view_range: list[int] | None) -> str:
    lines = text.removesuffix("\n").split("\n")
    first, last = _bounds(view_range, len(lines))
    shown: list[str] = []
    size = 0
    for number in range(first, last + 1):
        line = f"{number:>6}\t{_cut(lines[number - 1])}"
        size += len(line.encode("utf-8", "replace")) + 1
        if size > MAX_BYTES:
            break
        shown.append(line)
    end = first + len(shown) - 1
    if end < last:
        rest = f"view_range [{end + 1}, {last}]"
        shown.append(f"[lines {first} to {end} of {len(lines):,}; to read on, {rest}]")
    return "\n".join(shown)


def _bounds(view_range: list[int] | None, lines: int) -> tuple[int, int]:
    first, last = view_range or [1, -1]
    last = lines if last == -1 else min(last, lines)
    if not 1 <= first <= lines:
        raise ToolError(f"the file has lines 1 to {lines:,}: view_range cannot begin at {first}")
    if last < first:
        raise ToolError(f"view_range ends before it begins: [{first}, {last}]")
    return first, last


def _cut(line: str) -> str:
    over = len(line) - MAX_LINE_CHARS
    return line if over <= 0 else f"{line[:MAX_LINE_CHARS]} [{over:,} more characters]"


async def _listing(files: SessionFiles, path: str) -> Outcome:
    try:
        found = await files.workspace.walk(path, limit=_MAX_LISTED + 1, depth=1)
    except HandsError as error:
        return refused(error)
    lines = [f"{path} is a folder with:", *map(_listed, found[:_MAX_LISTED])]
    if len(found) > _MAX_LISTED:
        lines.append("[and more: glob finds what you look for]")
    return Outcome.text("\n".join(lines) if found else f"{path} is a folder, and empty")


def _listed(entry: Entry) -> str:
    name = entry.path.name if entry.path.name.isprintable() else ascii(entry.path.name)
    if entry.is_folder:
        return f"{name}/"
    return f"{name} (a link)" if entry.is_link else f"{name} ({entry.size:,} bytes)"
