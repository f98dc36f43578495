"""Memories as tools of an MCP server. A client may read them. Text that it wants to store is
untrusted, so the client asks its user first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from mainspring.capabilities.mcp.protocol.messages import ToolAnnotations, ToolDefinition
from mainspring.capabilities.mcp.server.exchange import Exchange
from mainspring.capabilities.mcp.server.features import ToolReply
from mainspring.core import ids
from mainspring.core.content import plain_text
from mainspring.core.tool import Call, Tool, ToolResult

SERVED = ("memory_search", "memory_read", "memory_write")
_FORM: dict[str, object] = {
    "type": "object",
    "properties": {"decision": {"type": "string", "enum": ["allow", "deny"], "title": "Decision"}},
    "required": ["decision"],
}
_NOBODY = (
    "Nothing was stored: a person must agree first, and this client cannot ask one."
    " To store it yourself, run `mainspring memory add`."
)
_DENIED = "Nothing was stored: the user did not agree."


class MemoryFeatures:
    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self._tools = {name: tool for name, tool in tools.items() if name in SERVED}

    def definitions(self) -> Sequence[ToolDefinition]:
        return [
            ToolDefinition(
                name=name,
                description=tool.spec.description,
                input_schema=dict(tool.spec.input_schema),
                annotations=ToolAnnotations(
                    read_only_hint=name != "memory_write", open_world_hint=False
                ),
            )
            for name, tool in self._tools.items()
        ]

    def has(self, name: str) -> bool:
        return name in self._tools

    async def call(
        self, name: str, arguments: Mapping[str, object], exchange: Exchange
    ) -> ToolReply:
        tool = self._tools[name]
        if (problem := tool.invalid(arguments)) is not None:
            return ToolReply.text(f"The input is not valid: {problem}", is_error=True)
        call = Call(
            id=f"mcp_{_hash(msgspec.json.encode(arguments))}",  # the same if the client repeats it
            name=name,
            input=arguments,
            idempotency_key=ids.new_id("mcp"),
            session_id="",
            thread_id="",
        )
        if name != "memory_write":
            return _reply(await tool.run(call))
        if not exchange.can_ask():
            return ToolReply.text(_NOBODY, is_error=True)
        preview = "" if tool.preview is None else await tool.preview(call) or ""
        question = f"Remember this? It was written by the client's model.\n{preview[:4_000]}"
        answer = await exchange.elicit(f"memory_{_hash(question.encode())}", question, _FORM)
        if answer.action != "accept" or answer.content.get("decision") != "allow":
            return ToolReply.text(_DENIED, is_error=True)
        return _reply(await tool.run(replace(call, is_approved=True)))


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:24]


def _reply(result: ToolResult) -> ToolReply:
    return ToolReply.text(plain_text(result.content), is_error=not result.ok)
