"""Checks of a candidate that cost no trial: its size, what it may touch, whether it compiles,
whether it quotes the cases, and whether it carries instructions for a reader."""

from __future__ import annotations

import ast
import fnmatch
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import yaml

from mainspring.core.errors import MainspringError
from mainspring.improve.evals.suite import Case
from mainspring.improve.evolution.candidate import (
    Candidate,
    added_text,
    changed_lines,
    changed_paths,
)
from mainspring.improve.evolution.observation import TrackName
from mainspring.improve.evolution.tracks.evolve_settings import PresetPolicy
from mainspring.improve.evolution.tracks.folder_texts import track_of
from mainspring.runtime.packages.scan import scan

_QUOTED_WORDS = 8
"""Words in a row that count as a quote: shorter phrases occur in any rule about the same domain."""
_MIN_GOLD = 12
"""Characters of an expected answer that count as a quote; shorter ones are single words."""
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticChecks:
    """Call it with the current version and a candidate: why it is refused, or `None`."""

    preset: PresetPolicy
    tracks: tuple[TrackName, ...]
    pinned: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    harness_files: tuple[str, ...] = ()
    quotes: frozenset[str] = frozenset()
    """What candidates must not contain: phrases and answers of the cases."""
    names: frozenset[str] = field(default_factory=frozenset[str])
    """The ids of the cases."""

    def __call__(self, current: Candidate, candidate: Candidate) -> str | None:
        checks = (self._boundary, self._size, self._syntax, self._leak, self._poison)
        return next((why for check in checks if (why := check(current, candidate))), None)

    def _boundary(self, current: Candidate, candidate: Candidate) -> str | None:
        for path in changed_paths(current, candidate):
            if ".." in Path(path).parts or Path(path).is_absolute():
                return f"{path} is outside the agent's folder"
            if any(fnmatch.fnmatchcase(path, pattern) for pattern in self.pinned):
                return f"{path} is pinned"
            track = track_of(path, harness_files=self.harness_files)
            if track not in self.tracks:
                return f"{path} belongs to no track of this campaign"
        before = {line.strip() for text in current.texts.values() for line in text.splitlines()}
        after = {line.strip() for text in candidate.texts.values() for line in text.splitlines()}
        for rule in self.protected:
            if rule.strip() in before and rule.strip() not in after:
                return f"it changes a protected rule: {rule.strip()}"
        return None

    def _size(self, current: Candidate, candidate: Candidate) -> str | None:
        files, lines = len(changed_paths(current, candidate)), changed_lines(current, candidate)
        if files > self.preset.max_files:
            return f"it changes {files} files, more than {self.preset.max_files}"
        if lines > self.preset.max_lines:
            return f"it changes {lines} lines, more than {self.preset.max_lines}"
        return None

    def _syntax(self, current: Candidate, candidate: Candidate) -> str | None:
        for path in changed_paths(current, candidate):
            text = candidate.texts.get(path)
            if text is not None and (problem := syntax_problem(path, text)) is not None:
                return f"{path}: {problem}"
        return None

    def _leak(self, current: Candidate, candidate: Candidate) -> str | None:
        added = added_text(current, candidate)
        for name in self.names:
            if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", added):
                return f"it names the case {name}"
        words = _WORD.findall(added.casefold())
        text = " ".join(words)
        phrases = set(_phrases(text)) | {text}
        if quoted := self.quotes & phrases:
            return f"it quotes a case: {min(quoted)!r}"
        long_answers = (item for item in self.quotes if len(item.split()) < _QUOTED_WORDS)
        for answer in sorted(long_answers):
            if f" {answer} " in f" {text} ":
                return f"it quotes a case: {answer!r}"
        return None

    def _poison(self, current: Candidate, candidate: Candidate) -> str | None:
        for path in changed_paths(current, candidate):
            if path in candidate.texts:
                text = added_text_of(current, candidate, path)
                if (problem := text_problem(text, path.replace("/", "__"))) is not None:
                    return f"{path}: {problem}"
        return None


def text_problem(text: str, name: str = "text.md") -> str | None:
    """What the scan of packages calls dangerous in a text. Blocks."""
    with TemporaryDirectory(prefix="mainspring-scan-") as place:
        file = Path(place, name)
        file.write_text(text, encoding="utf-8")
        try:
            hits = scan(file).of("danger")
        except MainspringError as error:
            return str(error)
    return f"{hits[0].rule}: {hits[0].why}" if hits else None


def added_text_of(current: Candidate, candidate: Candidate, path: str) -> str:
    """Scripts are scanned whole, since a line alone means little; prose only where it changed."""
    text = candidate.texts[path]
    if not path.endswith((".md", ".txt")):
        return text
    known = set(current.texts.get(path, "").splitlines())
    return "\n".join(line for line in text.splitlines() if line not in known)


def syntax_problem(path: str, text: str) -> str | None:
    try:
        match path.rsplit(".", 1)[-1]:
            case "py":
                ast.parse(text)
            case "json":
                msgspec.json.decode(text)
            case "yaml" | "yml":
                yaml.safe_load(text)
            case _:
                pass
    except (SyntaxError, ValueError, yaml.YAMLError, msgspec.DecodeError, RecursionError) as error:
        return f"{type(error).__name__}: {error}"
    if path.endswith("/SKILL.md") and not text.startswith("---\n"):
        return "a skill begins with its name and description between lines of ---"
    return None


def case_quotes(cases: Iterable[Case]) -> frozenset[str]:
    """Phrases and answers of cases, that would be memorised and not learned."""
    return frozenset(quote for case in cases for quote in _quotes(case))


def _quotes(case: Case) -> Iterator[str]:
    for message in case.messages:
        yield from _phrases(" ".join(_WORD.findall(message.casefold())))
    for text in case.files.values():
        yield from _phrases(" ".join(_WORD.findall(text.casefold())))
    if case.gold is not None and len(case.gold) >= _MIN_GOLD:
        yield " ".join(_WORD.findall(case.gold.casefold()))


def _phrases(text: str) -> Iterator[str]:
    words = text.split()
    for start in range(len(words) - _QUOTED_WORDS + 1):
        yield " ".join(words[start : start + _QUOTED_WORDS])
