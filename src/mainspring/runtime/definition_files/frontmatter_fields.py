"""Typed access to the keys of a frontmatter. Reports wrong and unknown values.

`harness.context.frontmatter` parses the frontmatter itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from typing import TypeVar, cast

from mainspring.core.errors import InvalidInput
from mainspring.files.atomic_file import read_bounded
from mainspring.harness.context.frontmatter import Frontmatter, read_frontmatter
from mainspring.runtime.definition_files.finding import Finding, Level

__all__ = ["Fields", "Frontmatter", "first_paragraph", "read_frontmatter", "read_text", "split"]

T = TypeVar("T")
Name = TypeVar("Name", bound=str)
_BOOLEANS = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
_OPENING, _CLOSING = "({", ")}"


@dataclass(slots=True)
class Fields:
    """The fields of a frontmatter. `allowed-tools`, `allowed_tools` and `allowedTools` are the same
    key."""

    frontmatter: Frontmatter
    file: str
    """For display."""
    findings: list[Finding] = field(default_factory=list[Finding])
    _spellings: dict[str, str] = field(default_factory=dict[str, str])
    """The spelling of each key in this file, by its normalized form."""
    _keys_read: dict[str, str] = field(default_factory=dict[str, str])
    _extra: dict[str, object] = field(default_factory=dict[str, object])

    def __post_init__(self) -> None:
        for issue in self.frontmatter.issues:
            self._add("warning", issue.what, issue.line, issue.fix)
        for key, value in self.frontmatter.fields.items():
            first = self._spellings.setdefault(_normalized_key(key), key)
            if first != key:
                self._extra[key] = value
                self.warn(f"`{key}` is `{first}` a second time: it is ignored", key)

    def text(self, key: str) -> str:
        """Empty if the key is missing. Numbers and booleans are unquoted strings."""
        match self.value(key):
            case None:
                return ""
            case str(text):
                return text.strip()
            case bool(truth):
                return str(truth).lower()
            case int(number) | float(number):
                return str(number)
            case _:
                return self.wrong(key, "must be text", "")

    def flag(self, key: str, *, default: bool = False) -> bool:
        match self.value(key):
            case None:
                return default
            case bool(truth):
                return truth
            case str() | int() as value if str(value).strip().lower() in _BOOLEANS:
                return _BOOLEANS[str(value).strip().lower()]
            case _:
                return self.wrong(key, "must be true or false", default)

    def count(self, key: str) -> int | None:
        text = self.text(key)
        if not text:
            return None
        if text.isdecimal() and len(text) < 10 and int(text) > 0:
            return int(text)
        return self.wrong(key, "must be a number above 0", None)

    def choice(self, key: str, names: Sequence[Name]) -> Name | None:
        text = self.text(key)
        for name in names:
            if text == name:
                return name
        return self.wrong(key, f"must be one of {', '.join(names)}", None) if text else None

    def words(self, key: str) -> tuple[str, ...] | None:
        """A list, or one string separated by commas or spaces; `None` if the key is missing."""
        text = self._joined(key)
        # A list that is not valid YAML is a string with brackets.
        return None if text is None else split(text.strip("[]"), ", \t\n")

    def globs(self, key: str) -> tuple[str, ...]:
        """A list, or one string separated by commas."""
        return split(self._joined(key) or "", ",\n")

    def mapping(self, key: str) -> dict[str, object]:
        value = self.value(key)
        if isinstance(value, dict):
            return cast("dict[str, object]", value)
        return {} if value is None else self.wrong(key, "must be names with values", {})

    def value(self, key: str) -> object:
        """The value as it is; `None` if the key is missing."""
        normalized = _normalized_key(key)
        self._keys_read[normalized] = key
        spelling = self._spellings.get(normalized)
        return None if spelling is None else self.frontmatter.fields[spelling]

    def extra(self) -> dict[str, object]:
        """The keys that were never read, and values of the wrong type. Call it last."""
        unknown = [
            key for normalized, key in self._spellings.items() if normalized not in self._keys_read
        ]
        for key in unknown:
            similar = get_close_matches(key, self._keys_read.values(), n=1, cutoff=0.8)
            fix = f"did you mean {similar[0]}?" if similar else None
            self.warn(f"`{key}` is unknown: it is kept and has no effect", key, fix)
        return {**{key: self.frontmatter.fields[key] for key in unknown}, **self._extra}

    def wrong(self, key: str, what: str, instead: T) -> T:
        """Report a wrong value, and keep it for `extra`."""
        spelling = self._spellings[_normalized_key(key)]
        self._extra[spelling] = self.frontmatter.fields[spelling]
        self.warn(f"`{spelling}` {what}: it is ignored", key)
        return instead

    def warn(self, what: str, key: str = "", fix: str | None = None) -> None:
        self._add("warning", what, self.line(key), fix)

    def note(self, what: str, key: str = "") -> None:
        self._add("note", what, self.line(key), None)

    def fail(self, what: str, fix: str | None = None) -> None:
        self._add("error", what, None, fix)

    def line(self, key: str) -> int | None:
        return self.frontmatter.lines.get(
            key, self.frontmatter.lines.get(self._spellings.get(_normalized_key(key), ""))
        )

    def _joined(self, key: str) -> str | None:
        """The values as one string, because YAML splits `[Agent(a, b)]` in two."""
        value = self.value(key)
        if value is None or isinstance(value, str):
            return value and value.strip()
        items = cast("list[object]", value) if isinstance(value, list) else None
        if items is None or any(isinstance(item, dict | list) for item in items):
            return self.wrong(key, "must be a list of texts", None)
        return ", ".join(str(item) for item in items if item is not None)

    def _add(self, level: Level, what: str, line: int | None, fix: str | None) -> None:
        self.findings.append(Finding(level=level, file=self.file, what=what, line=line, fix=fix))


def read_text(file: Path, display_path: str) -> str | Finding:
    """The text of a file, or the finding that says why it is skipped."""
    try:
        content = read_bounded(file)
        if content is not None:
            return content.decode("utf-8")
        problem = "it is gone"
    except UnicodeDecodeError:
        problem = "not UTF-8"
    except InvalidInput as error:
        problem = str(error).removeprefix(f"{file}: ")
    return Finding(level="error", file=display_path, what=f"{problem}: skipped")


def first_paragraph(body: str) -> str:
    """The first paragraph in one line; replaces a missing description."""
    paragraphs = body.split("\n\n")
    first = next((paragraph for paragraph in paragraphs if any(map(str.isalnum, paragraph))), "")
    return " ".join(line.strip("# \t") for line in first.strip().splitlines())


def split(text: str, at: str) -> tuple[str, ...]:
    """Split at any of these characters, except inside brackets; quotes around a part are
    removed."""
    cuts = [-1]
    depth = 0
    for index, char in enumerate(text):
        if char in _OPENING:
            depth += 1
        elif char in _CLOSING:
            depth = max(0, depth - 1)
        elif depth == 0 and char in at:
            cuts.append(index)
    parts = (text[start + 1 : end] for start, end in pairwise([*cuts, len(text)]))
    return tuple(part for part in (item.strip(" \t\n\"'") for item in parts) if part)


def _normalized_key(key: str) -> str:
    return key.replace("-", "").replace("_", "").lower()
