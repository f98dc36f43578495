"""The tool `edit` replaces text in a file, and hints at the nearest match if the text is not
found."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from itertools import islice

import msgspec
from anyio import to_thread
from msgspec import Struct

from mainspring.capabilities.tools.session_files import (
    DecodedText,
    PlannedChange,
    SessionFiles,
    decode_text,
    occurrences,
    replace_text,
    to_lf,
)
from mainspring.core.errors import FileMissing
from mainspring.core.tool import Call, Tool, ToolResult
from mainspring.function_tools.define import tool
from mainspring.function_tools.results import ToolError

_MAX_LINES = 4000  # of a file compared for "did you mean"; later ones are not
_MAX_CHARS = 300  # of a line in the answer
_MIN_SIMILARITY = 0.6  # below it the suggestion misleads (difflib's own default is 0.6)
_NUMBERED = re.compile(r"^\s*\d+\t")


def nearest_match_hint(text: str, old_string: str) -> str:
    """A hint for the model in a sentence or a few lines; empty if nothing is similar."""
    lines, target = text.split("\n"), old_string.split("\n")
    if all(_NUMBERED.match(line) for line in target if line):
        return "The numbers before the lines are not in the file: leave them out."
    if (at := _find_ignoring_spaces(lines, target)) is not None:
        match = "\n".join(lines[at : at + len(target)])
        return f"Only spaces and tabs differ at line {at + 1}, which has:\n{match}"
    if (at := _find_similar(lines, target)) is not None:
        match = "\n".join(line[:_MAX_CHARS] for line in lines[at : at + len(target)])
        return f"The nearest is at line {at + 1}:\n{match}"
    return ""


def _find_ignoring_spaces(lines: list[str], target: list[str]) -> int | None:
    """The first line where the same words are found with different spaces."""
    target_words = [line.split() for line in target]
    if not any(target_words):
        return None
    words = [line.split() for line in lines]
    for at in range(len(words) - len(target_words) + 1):
        if words[at] == target_words[0] and words[at : at + len(target_words)] == target_words:
            return at
    return None


def _find_similar(lines: list[str], target: list[str]) -> int | None:
    """The first line of the match, where the longest line of `target` has its most similar line."""
    offset, longest = max(enumerate(target), key=lambda line: len(line[1].strip()))
    matcher = SequenceMatcher(b=longest.strip()[:_MAX_CHARS], autojunk=False)
    best, where = _MIN_SIMILARITY, None
    for at, line in enumerate(lines[:_MAX_LINES]):
        matcher.set_seq1(line.strip()[:_MAX_CHARS])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best:
            ratio = matcher.ratio()
            if ratio > best:
                best, where = ratio, at
    return None if where is None else max(0, where - offset)


_SHOWN_PLACES = 10  # of a text that occurs several times


class _Input(Struct, frozen=True):
    file_path: str
    old_string: str
    new_string: str
    replace_all: bool = False

    @property
    def old(self) -> str:
        return to_lf(self.old_string)

    @property
    def new(self) -> str:
        return to_lf(self.new_string)


def edit_tool(files: SessionFiles) -> Tool:
    async def plan(call: Call) -> PlannedChange:
        change = msgspec.convert(dict(call.input), _Input)
        file_state = await files.read_if_present(change.file_path)
        if file_state is None:
            raise FileMissing(f"{change.file_path}: there is no such file; use write to create it")
        source = decode_text(file_state.content)
        if source is None:
            raise ToolError(f"{change.file_path} is not text, so it cannot be edited")
        files.check_read(call, change.file_path, file_state)
        after = await to_thread.run_sync(_apply_edit, source, change)
        return PlannedChange(
            path=change.file_path,
            content=_encode_edit(source, after),
            expected=file_state.version,
            before=source.plain,
            after=to_lf(after),
        )

    async def probe(call: Call) -> ToolResult | None:
        change = msgspec.convert(dict(call.input), _Input)
        path = change.file_path
        if not await files.has_effect(call, path, lambda text: _is_applied(text.plain, change)):
            return None
        return ToolResult.text(f"{change.file_path} was changed.")

    @tool(probe=probe, max_chars=100_000, on_interrupt="block")
    async def edit(
        call: Call, file_path: str, old_string: str, new_string: str, replace_all: bool = False
    ) -> ToolResult:
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

    return files.changing_tool(edit, plan)


def _is_applied(text: str, change: _Input) -> bool:
    """Whether the new text is there, and the old one nowhere outside it."""
    other_text = text.replace(change.new, "\0") if change.new else text
    return change.new in text and change.old not in other_text


def _apply_edit(source: DecodedText, change: _Input) -> str:
    """Raises ToolError: there is nothing to replace, or more than one place."""
    if not change.old:
        raise ToolError("old_string is empty: to create or rewrite a file, use write")
    if change.old == change.new:
        raise ToolError("old_string and new_string are the same: nothing would change")
    text = source.plain
    places = list(islice(occurrences(text, change.old), _SHOWN_PLACES + 1))
    if not places:
        near = nearest_match_hint(text, change.old)
        raise ToolError(f"old_string is not in {change.file_path}. {near}".rstrip())
    if len(places) > 1 and not change.replace_all:
        raise ToolError(_ambiguous(text, places))
    return replace_text(source, change.old, change.new, everywhere=change.replace_all)


def _ambiguous(text: str, places: list[int]) -> str:
    lines = [text.count("\n", 0, at) + 1 for at in places[:_SHOWN_PLACES]]
    line_list = ", ".join(map(str, lines))
    more = " and more" if len(places) > _SHOWN_PLACES else ""
    return (
        f"old_string occurs more than once, at lines {line_list}{more}: include more of"
        " the surrounding text, or set replace_all"
    )


def _encode_edit(source: DecodedText, after: str) -> bytes:
    try:
        return source.encoded(after)
    except UnicodeEncodeError as error:
        odd = ascii(error.object[error.start : error.start + 1])
        raise ToolError(f"the file is in {source.encoding}, which has no {odd}") from None
