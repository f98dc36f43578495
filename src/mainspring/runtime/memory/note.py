"""A memory as a Markdown file: frontmatter and text. Files that people wrote are read leniently;
Mainspring writes only the fields of `Note`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from difflib import unified_diff
from pathlib import PurePosixPath
from typing import Literal, TypeAlias, cast, get_args

import msgspec

from mainspring.core.errors import InvalidInput
from mainspring.harness.context.frontmatter import read_frontmatter

NoteType: TypeAlias = Literal["user", "feedback", "project", "reference", "procedure", "episode"]
RULE_TYPES = frozenset[NoteType](("feedback", "procedure", "user"))
"""Types of memories that say how to behave; foreign text becomes one only if a person agrees."""
Trust: TypeAlias = Literal["person", "agent", "foreign"]
"""Where a memory comes from: a person, the agent's own work, or text that others wrote (pages,
tools, other agents)."""

_TRUST_ORDER: tuple[Trust, ...] = ("foreign", "agent", "person")

NOTE_TYPES: tuple[str, ...] = get_args(NoteType)
INDEX_FILE = "MEMORY.md"
CONFLICTS = "conflicts"
"""The field with the paths of memories that a memory disagrees with."""
MAX_BYTES = 102_400  # the Managed Agents API's limit for a memory
_MAX_PATH = 200  # bytes
_MAX_DESCRIPTION = 300  # characters of its line in the index
_SAFE = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9 _./,()'+-]*")
_DAILY = re.compile(r"(?:.*/)?\d{4}-\d{2}-\d{2}\.md")
_CONFLICT = re.compile(rb"(?m)^<{7} .*\n(?s:.*?)^={7}\n(?s:.*?)^>{7} ")
_SLUG = re.compile(r"[^a-z0-9]+")
_OWN_FIELDS = frozenset(
    (
        *("name", "description", "type", "created", "updated", "links", "supersedes"),
        *("session", "events", "trust"),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    path: str
    """Relative to the folder."""
    body: str
    name: str = ""
    description: str = ""
    """The text that recall reads."""
    type: NoteType = "reference"
    created: str = ""
    updated: str = ""
    """ISO dates, as in the file."""
    links: tuple[str, ...] = ()
    """Paths of related memories."""
    supersedes: tuple[str, ...] = ()
    """Paths of memories that this one replaces: they are no longer recalled."""
    session: str = ""
    events: tuple[str, ...] = ()
    trust: Trust = "person"
    other_fields: Mapping[str, object] = field(default_factory=dict[str, object])
    """Other fields of the frontmatter, which are preserved."""

    @property
    def is_daily(self) -> bool:
        return _DAILY.fullmatch(self.path) is not None


def content_hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def has_git_conflict(content: bytes | None) -> bool:
    """Whether git has left both sides of a merge in a file."""
    return content is not None and _CONFLICT.search(content) is not None


def check_note_path(path: str) -> str:
    """
    Raises:
        InvalidInput: not the relative path of a visible Markdown file.
    """
    pure = PurePosixPath(path)
    is_plain = not pure.is_absolute() and pure.as_posix() == path and path.isprintable()
    is_hidden = any(part.startswith(".") for part in pure.parts)
    if not is_plain or is_hidden or not path.endswith(".md") or len(path.encode()) > _MAX_PATH:
        raise InvalidInput(f"{path!r} is not a memory path: use one like project_release.md")
    return path


def note_path(note_type: str, name: str) -> str:
    """The path of a new memory: `feedback_short_answers.md`."""
    slug = _SLUG.sub("_", name.lower()).strip("_")[:80].strip("_")
    return f"{note_type}_{slug or content_hash(name.encode())[:12]}.md"


def parse_note(path: str, text: str) -> Note:
    """Parse any text as a note. Without frontmatter, its first line is its name."""
    head = read_frontmatter(text)
    fields = head.fields
    trust = fields.get("trust")
    kind = fields.get("type")
    default: NoteType = "episode" if _DAILY.fullmatch(path) else "reference"
    return Note(
        path=path,
        body=head.body.strip("\n"),
        name=_text(fields.get("name")) or _first_line(head.body) or PurePosixPath(path).stem,
        description=_text(fields.get("description")),
        type=cast("NoteType", kind) if kind in NOTE_TYPES else default,
        created=_text(fields.get("created")),
        updated=_text(fields.get("updated")),
        links=_texts(fields.get("links")),
        supersedes=_texts(fields.get("supersedes")),
        session=_text(fields.get("session")),
        events=_texts(fields.get("events")),
        trust=cast("Trust", trust) if trust in get_args(Trust) else "person",
        other_fields={key: value for key, value in fields.items() if key not in _OWN_FIELDS},
    )


def is_more_trusted(trust: Trust, other: Trust) -> bool:
    return _TRUST_ORDER.index(trust) > _TRUST_ORDER.index(other)


def cap_trust(path: str, text: str, trust: Trust) -> str:
    """Return the text of a memory, with its trust lowered to at most `trust`."""
    note = parse_note(path, text)
    return render_note(replace(note, trust=trust)) if is_more_trusted(note.trust, trust) else text


def render_note(note: Note) -> str:
    fields: dict[str, object] = {
        "name": note.name,
        "description": " ".join(note.description.split())[:_MAX_DESCRIPTION],
        "type": note.type,
        "created": note.created,
        "updated": note.updated,
        "links": list(note.links),
        "supersedes": list(note.supersedes),
        "session": note.session,
        "events": list(note.events),
        "trust": note.trust,
        **note.other_fields,
    }
    lines = [f"{key}: {_yaml(value)}" for key, value in fields.items() if value not in ("", [])]
    return "\n".join(["---", *lines, "---", "", note.body.strip("\n"), ""])


def with_index_line(text: str, note: Note) -> str:
    """Return an index file with the memory's line added or replaced."""
    if note.is_daily or note.path == INDEX_FILE:
        return text
    line = f"- [{note.name}]({note.path})"
    line += f": {note.description}" if note.description else ""
    lines = text.splitlines()
    for number, existing in enumerate(lines):
        if f"]({note.path})" in existing:
            lines[number] = line
            return "\n".join([*lines, ""])
    return "\n".join([*(lines or ["# Memory", ""]), line, ""])


def without_index_line(text: str, path: str) -> str:
    lines = [line for line in text.splitlines() if f"]({path})" not in line]
    return "\n".join([*lines, ""]) if lines else ""


def _yaml(value: object) -> str:
    """Encode as JSON, which is valid YAML; plain words need no quotes."""
    is_plain = isinstance(value, str) and _SAFE.fullmatch(value) and not value.endswith(" ")
    return str(value) if is_plain else msgspec.json.encode(value).decode()


def _text(value: object) -> str:
    return " ".join(str(value).split()) if isinstance(value, str | int | float) else ""


def _texts(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,) if value else ()
    if not isinstance(value, list):
        return ()
    return tuple(item for item in cast("list[object]", value) if isinstance(item, str))


def _first_line(body: str) -> str:
    line = next((line for line in body.splitlines() if line.strip()), "")
    return line.lstrip("# ").strip()[:80]


def age_in_words(updated: datetime, now: datetime) -> str:
    """How old a memory is; empty for today and yesterday."""
    days = (now.date() - updated.date()).days
    return f"{days} days old" if days > 1 else ""


def text_diff(path: str, before: str, after: str) -> str:
    """The change of a file, in the format of `diff -u`."""
    lines = unified_diff(before.splitlines(), after.splitlines(), path, path, lineterm="")
    return "\n".join(lines)
