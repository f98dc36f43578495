"""A candidate: the texts of an agent that may change, by path; and the edits that lead from one
candidate to another. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from functools import cached_property
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from mainspring.runtime.versions import render_diff

Texts: TypeAlias = Mapping[str, str]
_ENCODER = msgspec.json.Encoder(order="deterministic")
_TEXTS = msgspec.json.Decoder(dict[str, str])


class Candidate(Struct, frozen=True, dict=True):
    """One state of everything that may change."""

    texts: dict[str, str]
    """Contents by path."""

    @cached_property
    def hash(self) -> str:
        return f"sha256:{hashlib.sha256(encode(self)).hexdigest()}"

    def __hash__(self) -> int:
        return hash(self.hash)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Candidate) and self.hash == other.hash

    def with_text(self, path: str, text: str | None) -> Candidate:
        """The candidate with another text at `path`; `None` removes it."""
        texts = {name: value for name, value in self.texts.items() if name != path}
        if text is not None:
            texts[path] = text
        return Candidate(texts)


def text_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def encode(candidate: Candidate) -> bytes:
    return _ENCODER.encode(candidate.texts)


def decode(content: bytes) -> Candidate:
    return Candidate(_TEXTS.decode(content))


def candidate_diff(before: Candidate, after: Candidate) -> str:
    """The difference in the format of `diff -u`."""
    return "".join(
        render_diff(_content(before.texts.get(path)), _content(after.texts.get(path)), [path, path])
        for path in changed_paths(before, after)
    )


def changed_paths(before: Candidate, after: Candidate) -> list[str]:
    paths = sorted(before.texts.keys() | after.texts.keys())
    return [path for path in paths if before.texts.get(path) != after.texts.get(path)]


def changed_lines(before: Candidate, after: Candidate) -> int:
    """The number of added and removed lines."""
    lines = candidate_diff(before, after).splitlines()
    return sum(line[:1] in "+-" and line[:3] not in ("+++", "---") for line in lines)


def added_text(before: Candidate, after: Candidate) -> str:
    """The lines that `after` has and `before` has not."""
    return "\n".join(
        line
        for path in changed_paths(before, after)
        for line in after.texts.get(path, "").splitlines()
        if line not in before.texts.get(path, "").splitlines()
    )


def _content(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


class Edit(Struct, frozen=True):
    """A contiguous change of one text."""

    path: str
    kind: Literal["add", "remove", "replace"]
    before: tuple[str, ...] = ()
    """The lines that it removes."""
    after: tuple[str, ...] = ()
    """The lines that it adds."""
    position: int = 0
    """The line of the original at which it begins."""
    is_file: bool = False
    """Whether it adds or removes the whole text."""

    @property
    def identity(self) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
        """Equal for edits that change the same in different places."""
        return self.path, self.before, self.after


def edits_between(before: Candidate, after: Candidate) -> list[Edit]:
    """The edits that make `after` of `before`."""
    return [
        edit
        for path in changed_paths(before, after)
        for edit in _edits_of(path, before.texts.get(path), after.texts.get(path))
    ]


def _edits_of(path: str, old: str | None, new: str | None) -> Iterator[Edit]:
    if old is None or new is None:
        yield Edit(
            path,
            "add" if old is None else "remove",
            tuple((old or "").splitlines()),
            tuple((new or "").splitlines()),
            is_file=True,
        )
        return
    before, after = old.splitlines(), new.splitlines()
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    kinds: dict[str, Literal["add", "remove", "replace"]] = {
        "insert": "add",
        "delete": "remove",
        "replace": "replace",
    }
    for tag, start, end, first, last in matcher.get_opcodes():
        if tag in kinds:
            yield Edit(path, kinds[tag], tuple(before[start:end]), tuple(after[first:last]), start)


def apply_edits(candidate: Candidate, edits: Iterable[Edit]) -> Candidate:
    """Apply edits of this candidate, all with positions in its texts."""
    by_path: dict[str, list[Edit]] = {}
    for edit in edits:
        by_path.setdefault(edit.path, []).append(edit)
    for path, changes in by_path.items():
        if changes[0].is_file:
            added = None if changes[0].kind == "remove" else _joined(changes[0].after)
            candidate = candidate.with_text(path, added)
            continue
        lines = candidate.texts[path].splitlines()
        for edit in sorted(changes, key=lambda item: item.position, reverse=True):
            lines[edit.position : edit.position + len(edit.before)] = edit.after
        ending = "\n" if candidate.texts[path].endswith("\n") else ""
        candidate = candidate.with_text(path, "\n".join(lines) + ending)
    return candidate


def _joined(lines: tuple[str, ...]) -> str:
    return "".join(f"{line}\n" for line in lines)


def smallest_changes(before: Candidate, after: Candidate) -> list[Candidate]:
    """What a proposal consists of, the smallest first: each addition or replacement alone, then all
    of them, and removals only if there is nothing else. A proposal thus never removes on the side
    what it was not asked to change, and a useful part is not refused for a harmful one."""
    edits = edits_between(before, after)
    additions = [edit for edit in edits if edit.kind != "remove"]
    if not additions:
        return [apply_edits(before, [edit]) for edit in edits]
    singles = [apply_edits(before, [edit]) for edit in additions]
    if len(singles) == 1 or len(singles) > _MAX_SINGLES:
        return [apply_edits(before, additions)]
    return [*singles, apply_edits(before, additions)]


_MAX_SINGLES = 4
"""Edits; a proposal with more is one rewrite, and its parts mean nothing alone."""
