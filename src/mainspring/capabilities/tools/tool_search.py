"""The tool_search tool: finds deferred tools, so that their schemas need not be sent before."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from mainspring.capabilities.tools.define import tool
from mainspring.core.content import TextBlock
from mainspring.core.facts import ToolsLoaded
from mainspring.core.model import ToolSpec
from mainspring.core.tool import Outcome, Tool

_SELECT = "select:"
_MAX_LISTED_CHARS = 20_000
_MAX_LINE = 120
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_]+")
_K1, _B = 1.2, 0.6  # the usual ones of BM25; descriptions differ in length for no deep reason
_NAME_WEIGHT = 4


def tool_search(deferred: Sequence[ToolSpec]) -> Tool:
    specs = {spec.name: spec for spec in sorted(deferred, key=lambda spec: spec.name)}
    ranking = Ranking(list(specs.values()))

    @tool(description=_description(list(specs.values())), read_only=True, in_doubt="retry")
    async def tool_search(
        query: str, max_results: Annotated[int, Meta(ge=1, le=20)] = 5
    ) -> Outcome:
        """Find tools.

        Args:
            query: Words that say what the tool is to do, or "select:name1,name2" for exactly these.
            max_results: How many tools to load at most.
        """
        if query.strip().lower().startswith(_SELECT):
            names = [name.strip() for name in query.strip()[len(_SELECT) :].split(",")]
            found = [specs[name] for name in dict.fromkeys(names) if name in specs]
            missing = [name for name in names if name and name not in specs]
        else:
            found, missing = ranking.best(query, max_results), []
        return _outcome(found, missing, ranking)

    return tool_search


def _description(specs: Sequence[ToolSpec]) -> str:
    lines: list[str] = []
    room = _MAX_LISTED_CHARS
    for spec in specs:
        line = f"- {spec.name}: {one_line(spec.description)}"
        room -= len(line)
        if room < 0:
            lines.append(f"- and {len(specs) - len(lines)} more, which a search finds")
            break
        lines.append(line)
    intro = (
        "Load tools that are not loaded yet. Only their names are known until then: find them by"
        " what they do, or name them, and they can be called from the next message on. There are:"
    )
    return "\n".join([intro, *lines])


def one_line(description: str) -> str:
    """The beginning of a description, as one line."""
    first = " ".join(description.strip().partition("\n\n")[0].split())
    sentence = first.partition(". ")[0].rstrip(".")
    return sentence if len(sentence) <= _MAX_LINE else f"{sentence[: _MAX_LINE - 1]}…"


def _outcome(found: Sequence[ToolSpec], missing: Sequence[str], ranking: Ranking) -> Outcome:
    notes = [f"There is no deferred tool {name!r}.{_like(name, ranking)}" for name in missing]
    if not found:
        text = " ".join(notes) or "No tool fits. Try other words for what it is to do."
        return Outcome.text(text, ok=False, error="failed")
    shown = [msgspec.json.encode(spec, order="sorted").decode() for spec in found]
    text = "\n".join(["Loaded; call them like any other tool:", *shown, *notes])
    return Outcome((TextBlock(text),), facts=(ToolsLoaded(names=tuple(s.name for s in found)),))


def _like(name: str, ranking: Ranking) -> str:
    similar = ", ".join(spec.name for spec in ranking.best(name, 3))
    return f" Similar: {similar}." if similar else ""


@dataclass(frozen=True, slots=True)
class _Document:
    spec: ToolSpec
    words: Mapping[str, int]
    length: int


class Ranking:
    """BM25 over the words of names and descriptions; a name's words count more."""

    def __init__(self, specs: Sequence[ToolSpec]) -> None:
        self._documents = [_document(spec) for spec in specs]
        self._frequency = Counter(word for each in self._documents for word in each.words)
        total = sum(each.length for each in self._documents)
        self._mean = total / len(self._documents) if self._documents else 1.0

    def best(self, query: str, count: int) -> list[ToolSpec]:
        """The tools that fit a query, best first; the same order for the same tools."""
        asked = words_of(query)
        scored = [(self._score(asked, query, each), each.spec) for each in self._documents]
        fitting = [pair for pair in scored if pair[0] > 0]
        fitting.sort(key=lambda pair: (-pair[0], pair[1].name))
        return [spec for _, spec in fitting[:count]]

    def _score(self, asked: Sequence[str], query: str, document: _Document) -> float:
        exact = 1000.0 if query.strip().lower() == document.spec.name.lower() else 0.0
        return exact + sum(self._weight(word, document) for word in asked)

    def _weight(self, word: str, document: _Document) -> float:
        count = document.words.get(word, 0)
        if not count:
            return 0.0
        having = self._frequency[word]
        rarity = math.log(1 + (len(self._documents) - having + 0.5) / (having + 0.5))
        spread = _K1 * (1 - _B + _B * document.length / self._mean)
        return rarity * count * (_K1 + 1) / (count + spread)


def _document(spec: ToolSpec) -> _Document:
    name, described = words_of(spec.name), words_of(spec.description)
    words = Counter(described)
    for word in name:
        words[word] += _NAME_WEIGHT
    return _Document(spec, words, len(described) + _NAME_WEIGHT * len(name))


def words_of(text: str) -> list[str]:
    """The words of a text or of a name in any case; plural and singular are one."""
    return [_stem(word.lower()) for word in _WORD.findall(text)]


def _stem(word: str) -> str:
    for endings in (("ies", "es", "s"), ("ing", "ed", "e", "y")):
        for ending in endings:
            if len(word) - len(ending) >= 3 and word.endswith(ending) and not word.endswith("ss"):
                word = word[: -len(ending)]
                break
    return word
