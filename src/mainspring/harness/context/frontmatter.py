"""The frontmatter of a Markdown file, parsed leniently: problems are reported, never raised.

Callers interpret the keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from math import isfinite
from textwrap import dedent
from typing import TYPE_CHECKING, Protocol, cast

import msgspec
from msgspec import Struct, field

from mainspring.core.lazy_module import LazyModule

if TYPE_CHECKING:
    import yaml
else:
    yaml = LazyModule("yaml")  # many sessions read no file with frontmatter

MAX_CHARS = 100_000  # of one frontmatter; a longer one is an error
_MAX_DEPTH = 20  # against an exhausted stack
_MAX_DIGITS = 15  # of an integer that JSON keeps exact
_OPENING = re.compile(r"(?:[ \t]*\n){0,20}---[ \t]*\n")
_CLOSING = re.compile(r"^---[ \t]*$", re.MULTILINE)
_KEY = re.compile(r"""(["']?)([A-Za-z_][\w.-]{0,99})\1 {0,9}:(?=\s|$)""")
_BLOCK_SIGN = re.compile(r"[|>][+-]?\n")
_QUOTED = r'"[ !#-\[\]-~\u00a1-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd]*"'
"""A text that is the same in JSON and in YAML."""
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_NOT_TEXT = frozenset((*_BOOLEANS, "null"))


class Events(Protocol):
    """A YAML text as a stream of events."""

    def get_event(self) -> yaml.Event: ...
    def check_event(self, *choices: type[yaml.Event]) -> bool: ...
    def resolve(self, kind: type[yaml.Node], value: str, implicit: tuple[bool, bool]) -> str: ...


class FrontmatterIssue(Struct, frozen=True):
    what: str
    line: int
    fix: str | None = None


class Frontmatter(Struct, frozen=True, kw_only=True):
    body: str
    """The text after the frontmatter."""
    fields: dict[str, object] = field(default_factory=dict[str, object])
    """Values as in JSON; dates, times and the like stay strings."""
    lines: dict[str, int] = field(default_factory=dict[str, int])
    """The line of each key in the file."""
    issues: tuple[FrontmatterIssue, ...] = ()
    is_there: bool = False
    """Whether the file begins with valid frontmatter."""


class _Pair(Struct, frozen=True):
    key: str
    value: object
    line: int


class _UnsupportedYaml(ValueError):
    """Valid YAML that we refuse: too deep, with aliases, or with keys that are not strings."""


class _NotFrontmatter(_UnsupportedYaml):
    """Text between two horizontal rules, which is not frontmatter."""


def read_frontmatter(text: str) -> Frontmatter:
    """Split a file into frontmatter and text. Never raises."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    opening = _OPENING.match(text)
    if opening is None:
        return Frontmatter(body=text)
    first_line = text.count("\n", 0, opening.end()) + 1
    closing = _CLOSING.search(text, opening.end())
    if closing is None:
        issue = FrontmatterIssue(
            "its frontmatter has no end", first_line - 1, "put a line --- after it"
        )
        return Frontmatter(body=text, issues=(issue,))
    body = text[closing.end() :].removeprefix("\n")
    header = text[opening.end() : closing.start()]
    if len(header) > MAX_CHARS:
        issue = FrontmatterIssue(
            f"its frontmatter has more than {MAX_CHARS} characters", first_line
        )
        return Frontmatter(body=body, issues=(issue,))
    try:
        return _frontmatter(body, _plain_pairs(header) or _pairs(header), first_line)
    except _NotFrontmatter:
        return Frontmatter(body=text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return _read_key_by_key(body, header, first_line, error)


def _frontmatter(
    body: str, pairs: list[_Pair], first_line: int, issues: Sequence[FrontmatterIssue] = ()
) -> Frontmatter:
    fields: dict[str, object] = {}
    lines: dict[str, int] = {}
    issues = list(issues)
    for pair in pairs:
        line = first_line + pair.line
        if pair.key in fields:
            what = f"`{pair.key}` occurs twice"
            issues.append(FrontmatterIssue(what, line, "the last one is used"))
        fields[pair.key] = pair.value
        lines[pair.key] = line
    return Frontmatter(body=body, fields=fields, lines=lines, issues=tuple(issues), is_there=True)


def _read_key_by_key(body: str, header: str, first_line: int, error: Exception) -> Frontmatter:
    """Parse each key separately, so that an error affects only its own key."""
    pairs: list[_Pair] = []
    issues: list[FrontmatterIssue] = []
    for block in _blocks(header):
        try:
            pairs += [_Pair(pair.key, pair.value, block.line) for pair in _pairs(block.text)]
        except (yaml.YAMLError, ValueError, RecursionError):
            pairs.append(_Pair(block.key, _as_written(block), block.line))
            what = f"`{block.key}` is not YAML and is read as plain text"
            line = first_line + block.line
            issues.append(FrontmatterIssue(what, line, "put its value in quotes"))
    if not issues:
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        line = first_line + getattr(getattr(error, "problem_mark", None), "line", 0)
        issues.append(FrontmatterIssue(f"its frontmatter is not a YAML mapping: {problem}", line))
    if not pairs:
        return Frontmatter(body=body, issues=tuple(issues))
    return _frontmatter(body, pairs, first_line, issues)


class _Block(Struct, frozen=True):
    """The lines of a key with everything nested below it."""

    key: str
    text: str
    line: int


def _blocks(header: str) -> Iterator[_Block]:
    lines = dedent(header.expandtabs(2)).split("\n")
    keys = {at: key[2] for at, line in enumerate(lines) if (key := _KEY.match(line))}
    for start, end in pairwise([*keys, len(lines)]):
        yield _Block(keys[start], "\n".join(lines[start:end]), start)


def _as_written(block: _Block) -> str:
    value = block.text.partition(":")[2].strip()
    value = _BLOCK_SIGN.sub("", value, count=1) if _BLOCK_SIGN.match(value) else value
    text = "\n".join(line.strip() for line in value.split("\n"))
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1] if is_quoted else text


@cache  # compiling it takes longer than importing this module
def _plain_line() -> re.Pattern[str]:
    return re.compile(
        r"(?P<key>[A-Za-z_][\w-]{0,99}): "
        r"(?:(?P<words>[A-Za-z](?:[A-Za-z0-9 _./()'+-]*[A-Za-z0-9_)])?|\d{4}-\d\d-\d\d)"
        rf"|(?P<quoted>{_QUOTED}|\[(?:{_QUOTED}(?:, ?{_QUOTED})*)?\]))",
        re.ASCII,
    )


def _plain_pairs(header: str) -> list[_Pair]:
    """The pairs of a header in which each line is a key with words, a day, a text in quotes or a
    list of these, as in the files that Mainspring writes. Empty if it is another: then YAML reads
    it, which takes ten times as long."""
    pairs: list[_Pair] = []
    for number, line in enumerate(header.splitlines()):
        match = _plain_line().fullmatch(line)
        if match is None:
            return []
        key, words, quoted = match["key"], match["words"], match["quoted"]
        if words is not None and words.lower() in _NOT_TEXT:
            return []
        value: object = words if words is not None else msgspec.json.decode(quoted)
        pairs.append(_Pair(key, value, number))
    return pairs


def _pairs(text: str) -> list[_Pair]:
    """Raises: yaml.YAMLError, ValueError."""
    # The loader in C is 20 times as fast. Only its events are used: it builds trees by recursion,
    # so deeply nested text would crash the process.
    load = cast("Callable[[str], Events]", getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    events = load(text)
    events.get_event()  # a stream starts
    if events.check_event(yaml.StreamEndEvent):
        return []
    events.get_event()  # a document starts
    root = events.get_event()
    if isinstance(root, yaml.ScalarEvent):
        raise _NotFrontmatter
    if not isinstance(root, yaml.MappingStartEvent):
        raise _UnsupportedYaml("it has no keys")
    pairs = list(_mapping(events, 1))
    events.get_event()  # the document ends
    if not events.check_event(yaml.StreamEndEvent):
        raise _UnsupportedYaml("it is more than one document")
    return pairs


def _mapping(events: Events, depth: int) -> Iterator[_Pair]:
    while not isinstance(key := events.get_event(), yaml.MappingEndEvent):
        if not isinstance(key, yaml.ScalarEvent):
            raise _UnsupportedYaml("a key is not a string")
        yield _Pair(str(key.value), _value(events, depth), key.start_mark.line)


def _sequence(events: Events, depth: int) -> Iterator[object]:
    while not events.check_event(yaml.SequenceEndEvent):
        yield _value(events, depth)
    events.get_event()


def _value(events: Events, depth: int) -> object:
    if depth > _MAX_DEPTH:
        raise _UnsupportedYaml("it is nested too deeply")
    match event := events.get_event():
        case yaml.ScalarEvent():
            return _scalar(events, event)
        case yaml.SequenceStartEvent():
            return list(_sequence(events, depth + 1))
        case yaml.MappingStartEvent():
            return {pair.key: pair.value for pair in _mapping(events, depth + 1)}
        case _:
            # a few aliases can expand to millions of values
            raise _UnsupportedYaml("it has aliases")


def _scalar(events: Events, event: yaml.ScalarEvent) -> object:
    text = str(event.value)
    tag = events.resolve(yaml.ScalarNode, text, event.implicit)
    match tag.rpartition(":")[2]:
        case "null":
            return None
        case "bool":
            return _BOOLEANS.get(text.lower(), text)
        case "int" if text.lstrip("+-").isdecimal() and len(text) <= _MAX_DIGITS:
            return int(text)
        case "float":
            try:
                number = float(text)
            except ValueError:  # a number in base 60: more likely a time
                return text
            return number if isfinite(number) else text
        case _:
            return text
