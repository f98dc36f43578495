"""How well `tool_search` finds one of 2,000 tools, and what they cost in the prompt until then."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from report import Measure, percentile

from mainspring.capabilities.providers.token_estimate import text_tokens
from mainspring.capabilities.tools.tool_search import search_text, tool_search
from mainspring.core.model import ToolSpec
from mainspring.retrieval.bm25 import Bm25Index
from mainspring.retrieval.static_vectors import read_static_table
from mainspring.retrieval.stems import STOP_WORDS, name_words, stem

TOOLS = 2_000
TABLE = Path(__file__).parents[2] / "shared/data/vectors/potion-base-8M-int8-128.npz"
"""Beside the repository, only for measuring."""
FOLDER = Path(__file__).parent / "tool_search"
VERBS = {
    "list": "List every {noun} with filters and paging.",
    "get": "Get the details of one {noun} by its id.",
    "create": "Create a new {noun}.",
    "update": "Update fields of an existing {noun}.",
    "delete": "Delete a {noun} permanently.",
    "search": "Search for a {noun} by text and attributes.",
    "export": "Export each {noun} as CSV or JSON.",
    "archive": "Archive a {noun} so that it is hidden from lists.",
    "assign": "Assign a {noun} to a person or team.",
}


async def measure() -> list[Measure]:
    specs = all_specs()
    description = tool_search(specs).spec.description
    index = Bm25Index([search_text(spec) for spec in specs])
    seconds: list[float] = []
    measures = [
        Measure(
            name="tools, prompt",
            value=text_tokens(description),
            unit="tokens",
            target="<= 3000",
            detail=f"{len(specs):,} deferred tools of {len(servers(specs))} servers",
        )
    ]
    for kind in ("heldout", "dev"):
        measures += _measures(kind, [*_ranks(index, kind, seconds)])
    measures.append(
        Measure(name="tools, search p50", value=1000 * percentile(seconds, 50), unit="ms CPU")
    )
    return [*measures, *_measures_with_vectors(specs)]


def _measures_with_vectors(specs: list[ToolSpec]) -> Iterator[Measure]:
    """The same queries with the optional `encode`, if there is a table of vectors."""
    if not TABLE.exists():
        return
    table = read_static_table(TABLE)

    def encode(texts: Sequence[str]) -> list[list[float]]:
        return table.encode(texts).tolist()

    texts = [search_text(spec) for spec in specs]
    index = Bm25Index(texts, encode=encode)
    seconds: list[float] = []
    for kind in ("heldout", "dev"):
        yield from _measures(f"{kind} with vectors", [*_ranks(index, kind, seconds)])
    milliseconds = 1000 * percentile(seconds, 50)
    yield Measure(name="tools, with vectors, search p50", value=milliseconds, unit="ms CPU")


def _ranks(index: Bm25Index, kind: str, seconds: list[float]) -> Iterator[tuple[bool, int]]:
    for query, right in queries(kind):
        began = time.process_time()
        names = index.search(query, 15)
        seconds.append(time.process_time() - began)
        rank = next((at for at, name in enumerate(names) if name in right), len(names) + 99)
        yield has_name_word(query, right), rank


def _measures(kind: str, ranks: list[tuple[bool, int]]) -> list[Measure]:
    indirect = [rank for is_named, rank in ranks if not is_named]
    of_all = [rank for _, rank in ranks]
    target = ">= 85" if kind == "heldout" else ""
    return [
        Measure(
            name=f"tools, {kind}, first 5",
            value=_share(of_all, 5),
            unit="%",
            target=target,
            detail=f"of {len(ranks)} queries",
        ),
        Measure(
            name=f"tools, {kind}, first 5, no word of the name",
            value=_share(indirect, 5),
            unit="%",
            detail=f"of {len(indirect)} queries",
        ),
        Measure(name=f"tools, {kind}, first 15", value=_share(of_all, 15), unit="%"),
    ]


def _share(ranks: list[int], count: int) -> float:
    return 100 * sum(rank < count for rank in ranks) / len(ranks)


def has_name_word(query: str, right: list[str]) -> bool:
    asked = content_stems(query)
    return any(asked & content_stems(name) - {"mcp"} for name in right)


def content_stems(text: str) -> set[str]:
    return {stem(word) for word in name_words(text) if word not in STOP_WORDS}


def queries(kind: str) -> Iterator[tuple[str, list[str]]]:
    for line in (FOLDER / "queries.tsv").read_text().splitlines():
        of_kind, query, right = line.split("\t")
        if of_kind == kind:
            yield query, [f"mcp__{name}" for name in right.split()]


def all_specs() -> list[ToolSpec]:
    lists = msgspec.json.decode(
        (FOLDER / "tool_lists.json").read_bytes(), type=dict[str, list[ToolSpec]]
    )
    real = [
        msgspec.structs.replace(spec, name=f"mcp__{server}__{spec.name}")
        for server, specs in lists.items()
        for spec in specs
    ]
    return [*real, *generated_tools(TOOLS - len(real))]


def servers(specs: list[ToolSpec]) -> set[str]:
    return {spec.name.split("__")[1] for spec in specs}


def generated_tools(count: int) -> list[ToolSpec]:
    lines = (FOLDER / "generated_nouns.txt").read_text().splitlines()
    nouns_of = dict(line.split(": ") for line in lines)
    return [
        ToolSpec(
            name=f"mcp__{server}__{verb}_{noun.replace(' ', '_')}",
            description=text.format(noun=noun),
            input_schema={"type": "object", "properties": {f"{noun.split()[-1]}_id": {}}},
        )
        for verb, text in VERBS.items()
        for server, nouns in nouns_of.items()
        for noun in nouns.split(",")
    ][:count]
