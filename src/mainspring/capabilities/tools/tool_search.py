"""The tool_search tool: which tools are deferred, and how the model finds and loads them, so that
their schemas are not sent earlier."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, TypeAlias, cast

import msgspec
from anyio import to_thread
from msgspec import Meta, Struct

from mainspring.core.content import TextBlock
from mainspring.core.events import ToolsLoaded
from mainspring.core.lazy_module import LazyModule
from mainspring.core.model import ToolSpec
from mainspring.core.model_facts import ModelFacts
from mainspring.core.tool import Tool, ToolResult
from mainspring.function_tools.define import tool

if TYPE_CHECKING:
    from mainspring.retrieval import bm25
else:
    bm25 = LazyModule("mainspring.retrieval.bm25")  # most sessions have no deferred tools

MAX_LOADED_TOOLS = 40  # at once; each costs tokens in every request, which is what searching saves
_SHARE_OF_WINDOW = 10
"""Tools of MCP servers may take at most 1/10 of the context window."""
_MAX_LISTED_TOOLS = 100
"""With more tools than this, only their servers are listed."""
_SELECT = "select:"
_MAX_LISTED_SERVERS = 150  # in the tool's description
_MAX_LINE = 120  # characters for each of them
_MAX_ALSO_NAMED = 10
"""How many tools a search names without loading them."""
_MAX_SCHEMA_DEPTH = 3  # levels of a schema that are searched for names
_MAX_VALUES = 20
"""How many values of an input are included in the search."""
_SERVER_PREFIX = "mcp__"

OpenEncode: TypeAlias = "Callable[[], bm25.Encode | None]"
"""Called at the first search: reading a table of vectors takes a moment."""


def _words_alone() -> None:
    return None


class ToolLoading(Struct, frozen=True):
    """How a thread's tools are presented to the model."""

    deferred: frozenset[str]
    """Tools that are not in the prompt until they are loaded."""
    facts: tuple[ToolsLoaded, ...]
    """The tools to load immediately, if this call decides that; it applies to the whole session."""
    search_tools: tuple[Tool, ...]
    make_search: Callable[[Sequence[ToolSpec]], Tool] | None = None
    """Creates the search tool again when the deferred tools change, if there is one."""


def plan_tool_loading(
    tools: Mapping[str, Tool],
    loaded: tuple[str, ...] | None,
    model: ModelFacts,
    open_encode: OpenEncode = _words_alone,
) -> ToolLoading:
    """Tools of MCP servers are loaded at once if they are few and small, and so are the first of
    the agent's own. `loaded`: the tools that the log says were loaded, `None` if nothing was
    decided."""
    own = [name for name in tools if not name.startswith(_SERVER_PREFIX)]
    foreign = [name for name in tools if name.startswith(_SERVER_PREFIX)]
    facts: tuple[ToolsLoaded, ...] = ()
    if loaded is None and foreign:
        loaded = tuple(foreign) if _fits([tools[name] for name in foreign], model) else ()
        facts = (ToolsLoaded(names=loaded),)
    deferred = frozenset((*foreign, *own[MAX_LOADED_TOOLS:]))
    to_find = [tools[name].spec for name in tools if name in deferred]
    is_needed = not deferred <= frozenset(loaded or ())
    if not is_needed:
        return ToolLoading(deferred, facts, ())
    make_search = partial(tool_search, open_encode=open_encode)
    return ToolLoading(deferred, facts, (make_search(to_find),), make_search)


def _fits(tools: Sequence[Tool], model: ModelFacts) -> bool:
    size = sum(len(msgspec.json.encode(tool.spec)) for tool in tools)
    is_small = size / model.bytes_per_token <= model.window / _SHARE_OF_WINDOW
    return is_small and len(tools) <= MAX_LOADED_TOOLS


_INTRO = (
    "Load tools that are not loaded yet. Only their names are known until then: find them by"
    " what they do, or name them, and they can be called from the next message on. There are:"
)


def tool_search(deferred: Sequence[ToolSpec], open_encode: OpenEncode = _words_alone) -> Tool:
    specs = {spec.name: spec for spec in sorted(deferred, key=lambda spec: spec.name)}

    @cache
    def make_index() -> bm25.Bm25Index:
        return bm25.Bm25Index([search_text(spec) for spec in specs.values()], encode=open_encode())

    @tool(description=_description(list(specs.values())), read_only=True, in_doubt="retry")
    async def tool_search(
        query: str, max_results: Annotated[int, Meta(ge=1, le=20)] = 5
    ) -> ToolResult:
        """Find tools.

        Args:
            query: What the tool should do and to what, in a few words and the usual terms for it,
                such as "create calendar event meeting"; or "select:name1,name2" for exactly these.
            max_results: How many tools to load at most.
        """
        if query.strip().lower().startswith(_SELECT):
            names = [name.strip() for name in query.strip()[len(_SELECT) :].split(",")]
            tool_specs = [specs[name] for name in dict.fromkeys(names) if name in specs]
            missing_names = [name for name in names if name and name not in specs]
            index = await to_thread.run_sync(make_index) if missing_names else None
            return _selection_result(tool_specs, missing_names, index)
        index = await to_thread.run_sync(make_index)
        names = index.search(query, max_results + _MAX_ALSO_NAMED)
        tool_specs = [specs[name] for name in names[:max_results]]
        return _search_result(tool_specs, [specs[name] for name in names[max_results:]])

    return tool_search


def search_text(spec: ToolSpec) -> bm25.RankedText:
    """The searchable text of a tool: its server, name, description, and inputs."""
    server, _, name = spec.name.removeprefix(_SERVER_PREFIX).partition("__")
    if not (spec.name.startswith(_SERVER_PREFIX) and name):
        server, name = "", spec.name
    inputs = " ".join(_schema_words(spec.input_schema, 0))
    return bm25.RankedText(spec.name, name, spec.description, inputs, group=server)


def _schema_words(schema: object, depth: int) -> Iterable[str]:
    if not isinstance(schema, dict) or depth > _MAX_SCHEMA_DEPTH:
        return
    fields = cast("dict[str, object]", schema)
    properties = fields.get("properties")
    yield str(fields.get("description", ""))
    if isinstance(values := fields.get("enum"), list):
        yield from [item for item in cast("list[object]", values) if isinstance(item, str)][
            :_MAX_VALUES
        ]
    if isinstance(properties, dict):
        for name, inner in cast("dict[str, object]", properties).items():
            yield name
            yield from _schema_words(inner, depth + 1)
    yield from _schema_words(fields.get("items"), depth + 1)


def _description(specs: Sequence[ToolSpec]) -> str:
    if len(specs) > _MAX_LISTED_TOOLS:
        return "\n".join([_INTRO, *_server_lines(specs)])
    lines = [f"- {spec.name}: {one_line(spec.description)}" for spec in specs]
    return "\n".join([_INTRO, *lines])


def _server_lines(specs: Sequence[ToolSpec]) -> list[str]:
    """The servers of the tools, with the number of tools and three of their names."""
    servers: dict[str, list[str]] = defaultdict(list)
    for spec in specs:
        server, _, name = spec.name.removeprefix(_SERVER_PREFIX).partition("__")
        is_foreign = spec.name.startswith(_SERVER_PREFIX) and bool(name)
        servers[server if is_foreign else ""].append(name if is_foreign else spec.name)
    lines = [
        f"- {server or 'the agent itself'}: {len(names)} tools, such as {', '.join(names[:3])}"
        for server, names in sorted(servers.items())
    ]
    unlisted = len(lines) - _MAX_LISTED_SERVERS
    more = [f"- and {unlisted} more servers"] if unlisted > 0 else []
    return [*(line[:_MAX_LINE] for line in lines[:_MAX_LISTED_SERVERS]), *more]


def one_line(description: str) -> str:
    """The beginning of a description, as one line."""
    first = " ".join(description.strip().partition("\n\n")[0].split())
    sentence = first.partition(". ")[0].rstrip(".")
    return sentence if len(sentence) <= _MAX_LINE else f"{sentence[: _MAX_LINE - 1]}…"


def _search_result(specs: Sequence[ToolSpec], also: Sequence[ToolSpec]) -> ToolResult:
    if not specs:
        text = "No tool matches. Describe what it should do in other words."
        return ToolResult.text(text, ok=False, error="failed")
    lines = [f"- {spec.name}: {one_line(spec.description)}" for spec in also]
    intro = "Not loaded, and less likely; load one with select:name:"
    return _loaded(specs, [intro, *lines] if lines else [])


def _selection_result(
    specs: Sequence[ToolSpec], missing: Sequence[str], index: bm25.Bm25Index | None
) -> ToolResult:
    notes = [f"There is no deferred tool {name!r}.{_like(name, index)}" for name in missing]
    if not specs:
        return ToolResult.text(" ".join(notes) or "No tool is named.", ok=False, error="failed")
    return _loaded(specs, notes)


def _loaded(specs: Sequence[ToolSpec], notes: Sequence[str]) -> ToolResult:
    encoded = [msgspec.json.encode(spec, order="sorted").decode() for spec in specs]
    text = "\n".join(["Loaded; call them like any other tool:", *encoded, *notes])
    return ToolResult((TextBlock(text),), facts=(ToolsLoaded(names=tuple(s.name for s in specs)),))


def _like(name: str, index: bm25.Bm25Index | None) -> str:
    similar = ", ".join(index.search(name, 3) if index else ())
    return f" Similar: {similar}." if similar else ""
