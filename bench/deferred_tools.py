"""How well `tool_search` finds one of 2,000 tools, and what they cost in the prompt until then."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from report import Measure, percentile

from mainspring.capabilities.providers.token_estimate import text_tokens
from mainspring.capabilities.tools.tool_search import search_text, tool_search
from mainspring.core.model import ToolSpec
from mainspring.retrieval.bm25 import Bm25Index
from mainspring.retrieval.stems import name_words, stem

TOOLS = 2_000
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
    ranks: list[tuple[bool, int]] = []
    for query, right in queries("heldout"):
        began = time.process_time()
        names = index.search(query, 15)
        seconds.append(time.process_time() - began)
        rank = next((at for at, name in enumerate(names) if name in right), len(names) + 99)
        ranks.append((has_name_word(query, right), rank))
    indirect = [rank for is_named, rank in ranks if not is_named]
    return [
        Measure(
            name="tools, prompt",
            value=text_tokens(description),
            unit="tokens",
            target="<= 3000",
            detail=f"{len(specs):,} deferred tools of {len(servers(specs))} servers",
        ),
        Measure(
            name="tools, first 5",
            value=_share([rank for _, rank in ranks], 5),
            unit="%",
            target=">= 85",
            detail=f"of {len(ranks)} queries",
        ),
        Measure(
            name="tools, first 5, no word of the name",
            value=_share(indirect, 5),
            unit="%",
            detail=f"of {len(indirect)} queries",
        ),
        Measure(name="tools, first 15", value=_share([rank for _, rank in ranks], 15), unit="%"),
        Measure(name="tools, search p50", value=1000 * percentile(seconds, 50), unit="ms CPU"),
    ]


def _share(ranks: list[int], count: int) -> float:
    return 100 * sum(rank < count for rank in ranks) / len(ranks)


def has_name_word(query: str, right: list[str]) -> bool:
    asked = {stem(word) for word in name_words(query)}
    return any(asked & {stem(word) for word in name_words(name)} - {"mcp"} for name in right)


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
