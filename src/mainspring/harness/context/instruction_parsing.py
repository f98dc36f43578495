"""Parsing of instruction files: when a rule applies (frontmatter), Markdown imports and
comments, and where a file that is too long is cut.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias, cast

from msgspec import Struct

from mainspring.core.errors import InvalidInput
from mainspring.retrieval.globs import expand_braces


class RuleConditions(Struct, frozen=True):
    globs: tuple[str, ...] = ()
    """Globs of files that it applies to; all files if empty."""
    is_read: bool = True
    note: str | None = None
    offer: str = ""
    """Its description: only this is shown, and the model reads the file when needed."""


ALWAYS = RuleConditions()


def read_conditions(
    kind: Literal["rule", "steering", "cursor"], head: Mapping[str, object], name: str
) -> RuleConditions:
    """Raises: InvalidInput."""
    match kind:
        case "rule":
            return claude_conditions(head)
        case "steering":
            return kiro_conditions(head, name)
        case "cursor":
            return cursor_conditions(head)


def cursor_conditions(head: Mapping[str, object]) -> RuleConditions:
    """Parse a Cursor rule: `alwaysApply`, `globs`, `description`.

    Raises: InvalidInput.
    """
    if head.get("alwaysApply") in (True, "true"):
        return ALWAYS
    if globs := _globs(head, "globs"):
        return RuleConditions(_in_any_folder(globs))
    if description := str(head.get("description") or "").strip():
        return RuleConditions(offer=description)
    how = "give it `globs`, a `description` or `alwaysApply: true`"
    return RuleConditions(is_read=False, note=f"is not loaded automatically: {how}")


def claude_conditions(head: Mapping[str, object]) -> RuleConditions:
    """Parse a Claude Code rule: `paths`.

    Raises: InvalidInput.
    """
    return RuleConditions(_globs(head, "paths"))


def kiro_conditions(head: Mapping[str, object], name: str) -> RuleConditions:
    """Parse a Kiro steering file: `inclusion`, and `fileMatchPattern` with `fileMatch`.

    Raises: InvalidInput.
    """
    match head.get("inclusion", "always"):
        case "always":
            return ALWAYS
        case "auto":
            return RuleConditions(note="`inclusion: auto` is read like `always`")
        case "manual":
            how = f"to use #{name}, name it in a message, or import it with @ from a CLAUDE.md"
            return RuleConditions(
                is_read=False, note=f"`inclusion: manual` is not loaded automatically: {how}"
            )
        case "fileMatch":
            globs = _globs(head, "fileMatchPattern")
            if not globs:
                raise InvalidInput("`inclusion: fileMatch` needs a `fileMatchPattern`")
            return RuleConditions(_in_any_folder(globs))
        case unknown:
            raise InvalidInput(f"its `inclusion` is unknown: {unknown}")


def _in_any_folder(globs: tuple[str, ...]) -> tuple[str, ...]:
    """A name without a folder matches files of that name in any folder."""
    return tuple(glob if "/" in glob else f"**/{glob}" for glob in globs)


def _globs(head: Mapping[str, object], key: str) -> tuple[str, ...]:
    """A list, or one string with commas."""
    value = head.get(key)
    if value is None:
        return ()
    if isinstance(value, str):
        parts = (part.strip() for part in re.split(r",(?![^{}]*\})", value))
        globs = [part for part in parts if part]
    else:
        items = cast("list[object]", value) if isinstance(value, list) else [None]
        globs = [item for item in items if isinstance(item, str)]
        if len(globs) < len(items):
            raise InvalidInput(f"its `{key}` is not a list of globs")
    return tuple(part for glob in globs for part in expand_braces(glob))


_HEADING = re.compile(r"^#{1,6} ", re.MULTILINE)
# Of the context that all instructions together may take; the rest is left for the work.
_SHARE_OF_WINDOW = 0.15
_CHARS_PER_TOKEN = 3.5  # of English and code
_DEFAULT_WINDOW = 200_000  # tokens, of models that are not in the catalogue


class InstructionLimits(Struct, frozen=True, kw_only=True):
    max_chars: int = round(_DEFAULT_WINDOW * _SHARE_OF_WINDOW * _CHARS_PER_TOKEN)
    """The limit of all files together."""
    max_files: int = 200

    @classmethod
    def of_window(cls, tokens: int) -> InstructionLimits:
        """The share of a model's context window that instruction files may take."""
        return cls(max_chars=round(tokens * _SHARE_OF_WINDOW * _CHARS_PER_TOKEN))


def cut_point(text: str, max_chars: int) -> int:
    """Cut before the last heading that fits, if that keeps at least half; else at a line end."""
    headings = [mark.start() for mark in _HEADING.finditer(text, max_chars // 2, max_chars)]
    return headings[-1] if headings else (text.rfind("\n", 0, max_chars) + 1 or max_chars)


MarkdownKind: TypeAlias = Literal["text", "code", "comment"]

_MARK = re.compile(r"`+|~{3,}|<!--")
_BACKTICKS = re.compile(r"`+")
_REFERENCE = re.compile(r"#\[\[file:([^\[\]\n\0]{1,1000})\]\]")
_BEFORE_FENCE = " \t>-*+.)0123456789"  # quotes and list items have fences too
_MAX_FENCE_INDENT = 40  # columns; deeper ones are text


def without_comments(text: str) -> str:
    """The text without HTML comments, except in code."""
    result = ""
    is_after_comment = False
    for kind, piece in _pieces(text):
        if kind == "comment":
            is_after_comment = True
            continue
        # A comment on lines of its own is removed with its last line break.
        had_lines = is_after_comment and (not result or result.endswith("\n"))
        result += piece.removeprefix("\n") if had_lines else piece
        is_after_comment = False
    return result


def import_mentions(text: str) -> tuple[str, ...]:
    """The paths mentioned as `@path` outside of code and comments, in order, once each."""
    words = (word for word in _masked(text).split() if word.startswith("@") and "\0" not in word)
    return tuple(dict.fromkeys(word[1:] for word in words if len(word) > 1))


def file_references(text: str) -> tuple[str, ...]:
    """The paths of `#[[file:path]]`, the import syntax of Kiro."""
    return tuple(dict.fromkeys(name.strip() for name in _REFERENCE.findall(_masked(text))))


def line_of(text: str, words: str) -> int | None:
    """The first line, from 1, that contains these words outside of code and comments."""
    line = 1
    for kind, piece in _pieces(text):
        at = piece.find(words) if kind == "text" else -1
        if at >= 0:
            return line + piece.count("\n", 0, at)
        line += piece.count("\n")
    return None


def is_only_imports(text: str) -> bool:
    """Whether a text consists only of imports (true for blank text)."""
    return all(word.startswith("@") for word in _masked(text).split())


def _masked(text: str) -> str:
    pieces = _pieces(without_comments(text))
    return "".join(piece if kind == "text" else "\0" for kind, piece in pieces)


def _pieces(text: str) -> Iterator[tuple[MarkdownKind, str]]:
    """Split text into code, comments and prose. Linear time, since the files are untrusted."""
    runs = defaultdict[int, list[int]](list)
    for run in _BACKTICKS.finditer(text):
        runs[len(run[0])].append(run.start())
    last_comment_end = text.rfind("-->")
    start = at = 0
    while mark := _MARK.search(text, at):
        kind: MarkdownKind = "comment" if mark[0] == "<!--" else "code"
        if kind == "code":
            end = _fence_end(text, mark) or _span_end(text, mark, runs[len(mark[0])])
        else:
            end = text.find("-->", mark.end()) + 3 if mark.end() <= last_comment_end else None
        if end is None:
            at = mark.end()
            continue
        if start < mark.start():
            yield "text", text[start : mark.start()]
        yield kind, text[mark.start() : end]
        start = at = end
    if start < len(text):
        yield "text", text[start:]


def _fence_end(text: str, mark: re.Match[str]) -> int | None:
    if len(mark[0]) < 3 or not _opens_fence(text, mark):
        return None
    closing = rf"^[ \t>]*{mark[0][0]}{{{len(mark[0])},}}[ \t]*$"
    closing_fence = re.compile(closing, re.MULTILINE).search(text, mark.end())
    return len(text) if closing_fence is None else closing_fence.end()


def _opens_fence(text: str, mark: re.Match[str]) -> bool:
    search_start = max(0, mark.start() - _MAX_FENCE_INDENT)
    line_start = text.rfind("\n", search_start, mark.start()) + 1
    before = text[line_start or search_start : mark.start()]
    if before.strip(_BEFORE_FENCE) or (not line_start and search_start):
        return False
    line_end = text.find("\n", mark.end())
    after = text[mark.end() : len(text) if line_end < 0 else line_end]
    return mark[0].startswith("~") or "`" not in after


def _span_end(text: str, mark: re.Match[str], runs: Sequence[int]) -> int | None:
    """The position of the closing run of backticks in the same paragraph."""
    if mark[0].startswith("~"):
        return None
    following = bisect_right(runs, mark.start())
    if following == len(runs) or text.find("\n\n", mark.end(), runs[following]) >= 0:
        return None
    return runs[following] + len(mark[0])


_PACKAGE = re.compile(
    r"@[a-z0-9~-][\w.~-]*/(?!.*\.(?:md|mdx|mdc|txt)$)[a-z0-9~][\w.~-]*(?:@[^\s/]+)?(?:/[\w.~-]*)*"
)


def is_npm_package(mention: str) -> bool:
    """`@scope/name`, perhaps with a version or a path in the package."""
    return _PACKAGE.fullmatch(mention) is not None
