"""The tools `history_search` and `history_read`, which find in the log what compaction removed
from the context.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from mainspring.core.errors import BlobNotFound, InvalidInput
from mainspring.core.model import ToolSpec
from mainspring.core.tool import SAFE_READ, Call, Tool, ToolResult

NAME = "history_search"
_DEFAULT_LIMIT = 10  # results
_MAX_LIMIT = 50  # results, about 5,000 tokens
_SPEC = ToolSpec(
    name=NAME,
    description=(
        "Search all messages and tool results of this session, including those that were removed"
        " from the conversation to save space. Events that have all words of the query come first,"
        " then those with some of them; use a few distinctive words."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "Words to look for."},
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": _MAX_LIMIT,
                "description": f"The maximum number of results; {_DEFAULT_LIMIT} by default.",
            },
        },
        "required": ["query"],
        "additionalProperties": False,
    },
)


class HistoryHit(Protocol):
    @property
    def seq(self) -> int: ...
    @property
    def snippet(self) -> str: ...


def history_search(search: Callable[[str, int], Awaitable[Sequence[HistoryHit]]]) -> Tool:
    """The search tool of one session; `search` gets the query and the maximum number of hits."""

    async def run(call: Call) -> ToolResult:
        query, limit = str(call.input["query"]), call.input.get("limit", _DEFAULT_LIMIT)
        try:
            hits = await search(query, limit if isinstance(limit, int) else _DEFAULT_LIMIT)
        except InvalidInput as wrong:
            return ToolResult.text(str(wrong), ok=False)
        if not hits:
            return ToolResult.text(f"Nothing in this session has any word of {query!r}.")
        return ToolResult.text("\n".join(f"event {hit.seq}: {hit.snippet}" for hit in hits))

    return Tool(spec=_SPEC, run=run, traits=lambda _: SAFE_READ, invalid=_invalid)


def _invalid(args: Mapping[str, object]) -> str | None:
    limit = args.get("limit", _DEFAULT_LIMIT)
    if not isinstance(args.get("query"), str):
        return "history_search needs a query: words to look for, as a string."
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _MAX_LIMIT:
        return f"history_search takes a limit of 1 to {_MAX_LIMIT}, not {limit!r}."
    return None


_READ_CHARS = 20_000  # of one answer, about 5,000 tokens
_READ_SPEC = ToolSpec(
    name="history_read",
    description=(
        "Read a long tool result of this session that was shown only in part. Takes the blob's"
        f" name and where to begin; returns up to {_READ_CHARS} characters."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "blob": {"type": "string", "description": "As named in the result: sha256:..."},
            "offset": {"type": "integer", "minimum": 0, "description": "0 by default."},
        },
        "required": ["blob"],
        "additionalProperties": False,
    },
)


def history_read(fetch: Callable[[str], Awaitable[bytes]]) -> Tool:
    """The tool that reads blobs of one session, and of no other."""

    async def run(call: Call) -> ToolResult:
        offset = call.input.get("offset", 0)
        begin = offset if isinstance(offset, int) else 0
        try:
            text = (await fetch(str(call.input["blob"]))).decode(errors="replace")
        except BlobNotFound as error:
            return ToolResult.text(str(error), ok=False)
        part = text[begin : begin + _READ_CHARS]
        unread = len(text) - begin - len(part)
        more = (
            f"\n[{unread} more characters; continue at offset {begin + len(part)}]"
            if unread > 0
            else ""
        )
        return ToolResult.text(part + more)

    return Tool(
        spec=_READ_SPEC,
        run=run,
        traits=lambda _: replace(SAFE_READ, max_chars=2 * _READ_CHARS),
        invalid=_invalid_read,
    )


def _invalid_read(args: Mapping[str, object]) -> str | None:
    offset = args.get("offset", 0)
    if not isinstance(args.get("blob"), str):
        return "history_read needs the name of a blob, as a string."
    if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
        return f"history_read takes an offset of 0 or more, not {offset!r}."
    return None
