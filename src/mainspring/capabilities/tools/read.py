"""The tool `read`: text with line numbers, images, Jupyter notebooks, and listings of folders."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Annotated, cast

import msgspec
from msgspec import Meta, Struct, field

from mainspring.capabilities.tools.session_files import SessionFiles, decode_text, failed_result
from mainspring.core.content import Base64Source, ImageBlock, TextBlock
from mainspring.core.errors import FileRefused, IsFolder, ToolEnvironmentError
from mainspring.core.ports import FileEntry
from mainspring.core.tool import Call, Tool, ToolResult
from mainspring.function_tools.define import tool
from mainspring.function_tools.results import ToolError

_MAX_OUTPUT_CHARS = 4000  # of a notebook's output


class _Output(Struct, frozen=True):
    text: str | list[str] = ""
    data: dict[str, object] = field(default_factory=dict[str, object])
    ename: str = ""
    evalue: str = ""


class _Cell(Struct, frozen=True):
    cell_type: str
    source: str | list[str] = ""
    outputs: list[_Output] = field(default_factory=list[_Output])


class _Notebook(Struct, frozen=True):
    cells: list[_Cell]


def notebook_text(content: str) -> str | None:
    """The cells in order; `None` if it is not a valid notebook."""
    try:
        notebook = msgspec.json.decode(content, type=_Notebook)
    except (msgspec.DecodeError, RecursionError):
        return None
    return "\n".join(_lines(notebook))


def _lines(notebook: _Notebook) -> Iterator[str]:
    for number, cell in enumerate(notebook.cells, 1):
        yield f"[cell {number}: {cell.cell_type}]"
        yield _join_lines(cell.source)
        for output in cell.outputs:
            if text := _output_text(output):
                yield f"[output of cell {number}]"
                yield text[:_MAX_OUTPUT_CHARS]


def _output_text(output: _Output) -> str:
    if output.ename:
        return f"{output.ename}: {output.evalue}"
    pictures = [kind for kind in output.data if kind.startswith("image/")]
    text = _join_lines(output.text) or _join_lines(output.data.get("text/plain", ""))
    return f"{text} [{', '.join(pictures)}]" if pictures else text


def _join_lines(text: object) -> str:
    """Text in the notebook format: a string, or a list of its lines."""
    return "".join(map(str, cast("list[object]", text))) if isinstance(text, list) else str(text)


_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_OTHERS = (
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive, or a document that is one inside"),
    (b"\x1f\x8b", "gzip-compressed"),
    (b"\x7fELF", "a Linux program or library"),
    (b"\xcf\xfa\xed\xfe", "a macOS program or library"),
    (b"MZ", "a Windows program or library"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"\0asm", "WebAssembly"),
)


def image_type(content: bytes) -> str | None:
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _IMAGES if content.startswith(start)), None)


def describe_binary(content: bytes) -> str:
    """The likely type of a file that is not text."""
    kinds = (kind for start, kind in _OTHERS if content.startswith(start))
    return next(kinds, "of an unknown type")


MAX_BYTES = 80_000
"""The limit of one result: about 25,000 tokens of code."""
MAX_LINE_CHARS = 2000  # Claude Code's limit
MAX_IMAGE_BYTES = 5_000_000  # the API's limit
_MAX_LISTED = 500  # entries of a folder

Range = Annotated[list[int], Meta(min_length=2, max_length=2)]


def read_tool(files: SessionFiles) -> Tool:
    @tool(read_only=True, concurrent=True, max_chars=MAX_BYTES + 2000)
    async def read(call: Call, file_path: str, view_range: Range | None = None) -> ToolResult:
        """Read a file: text comes with line numbers, images are shown, a notebook comes as text,
        a folder as a list of its entries. A long file comes in part, with a hint how to read on.

        Args:
            file_path: Absolute, or relative to the workspace.
            view_range: First and last line to show, counted from 1; -1 as the last is the end.
        """
        try:
            file_state = await files.read(call, file_path)
            return _content_result(file_path, file_state.content, view_range)
        except IsFolder:
            return await _listing(files, file_path)
        except FileRefused as error:
            hint = "grep finds lines in it, and programs can show a part of it"
            return ToolResult.text(f"{error}. {hint}.", ok=False, error="failed")
        except (ToolError, ToolEnvironmentError) as error:
            return failed_result(error)

    return files.reading_tool(read, "file_path")


def _content_result(path: str, content: bytes, view_range: list[int] | None) -> ToolResult:
    if not content:
        return ToolResult.text(f"({path} is empty)")
    if media_type := image_type(content):
        return _image(path, content, media_type)
    source = decode_text(content)
    if source is None:
        raise ToolError(f"{path} is not text: {len(content):,} bytes, {describe_binary(content)}")
    text = source.plain
    if PurePosixPath(path).suffix == ".ipynb":
        text = notebook_text(text) or text
    return ToolResult.text(_number_lines(text, view_range))


def _image(path: str, content: bytes, media_type: str) -> ToolResult:
    if len(content) > MAX_IMAGE_BYTES:
        raise ToolError(
            f"{path} is an image of {len(content):,} bytes; {MAX_IMAGE_BYTES:,} can be shown"
        )
    data = base64.b64encode(content).decode()
    image_block = ImageBlock(source=Base64Source(media_type=media_type, data=data))
    return ToolResult((TextBlock(f"{path}: {media_type}, {len(content):,} bytes"), image_block))


def _number_lines(text: str, view_range: list[int] | None) -> str:
    lines = text.removesuffix("\n").split("\n")
    first, last = _bounds(view_range, len(lines))
    numbered: list[str] = []
    size = 0
    for number in range(first, last + 1):
        line = f"{number:>6}\t{_truncate_line(lines[number - 1])}"
        size += len(line.encode("utf-8", "replace")) + 1
        if size > MAX_BYTES:
            break
        numbered.append(line)
    end = first + len(numbered) - 1
    if end < last:
        next_range = f"view_range [{end + 1}, {last}]"
        numbered.append(f"[lines {first} to {end} of {len(lines):,}; to continue, {next_range}]")
    return "\n".join(numbered)


def _bounds(view_range: list[int] | None, lines: int) -> tuple[int, int]:
    first, last = view_range or [1, -1]
    last = lines if last == -1 else min(last, lines)
    if not 1 <= first <= lines:
        raise ToolError(f"the file has lines 1 to {lines:,}: view_range cannot start at {first}")
    if last < first:
        raise ToolError(f"view_range ends before it starts: [{first}, {last}]")
    return first, last


def _truncate_line(line: str) -> str:
    over = len(line) - MAX_LINE_CHARS
    return line if over <= 0 else f"{line[:MAX_LINE_CHARS]} [{over:,} more characters]"


async def _listing(files: SessionFiles, path: str) -> ToolResult:
    try:
        file_entries = await files.workspace.walk(path, limit=_MAX_LISTED + 1, depth=1)
    except ToolEnvironmentError as error:
        return failed_result(error)
    lines = [f"{path} is a folder that contains:", *map(_entry_line, file_entries[:_MAX_LISTED])]
    if len(file_entries) > _MAX_LISTED:
        lines.append("[and more: use glob to find files]")
    return ToolResult.text("\n".join(lines) if file_entries else f"{path} is an empty folder")


def _entry_line(entry: FileEntry) -> str:
    name = entry.path.name if entry.path.name.isprintable() else ascii(entry.path.name)
    if entry.is_folder:
        return f"{name}/"
    return f"{name} (a link)" if entry.is_link else f"{name} ({entry.size:,} bytes)"
