"""Adapts tools of other libraries by their methods, without importing the libraries."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Protocol, Unpack, cast

from mainspring.core.errors import InvalidInput
from mainspring.core.model import ToolSpec
from mainspring.core.tool import Call, Tool, ToolResult, Traits
from mainspring.function_tools.define import ToolOptions, tool_traits
from mainspring.function_tools.input_types import is_model_type
from mainspring.function_tools.results import (
    ToolError,
    call_function,
    error_result,
    to_tool_result,
)


class LangChainTool(Protocol):
    """The part of `langchain_core.tools.BaseTool` that we need."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def tool_call_schema(self) -> object: ...
    def ainvoke(self, input: Any) -> Awaitable[object]: ...  # noqa: ANN401 (any input)


def from_langchain(tool: LangChainTool, **options: Unpack[ToolOptions]) -> Tool:
    """A LangChain tool. It validates its input itself; the model reads its errors.

    Raises:
        InvalidInput: it has no schema of its arguments.
    """
    schema = tool.tool_call_schema
    if is_model_type(schema):
        schema = schema.model_json_schema(ref_template="#/$defs/{model}")
    if not isinstance(schema, Mapping):
        raise InvalidInput(f"tool {tool.name} of LangChain has no schema of its arguments")

    async def run(call: Call) -> ToolResult:
        return await _result_of(partial(tool.ainvoke, dict(call.input)))

    return _tool(tool.name, tool.description, cast("Mapping[str, object]", schema), run, options)


def from_openai(
    definition: Mapping[str, object],
    function: Callable[..., object],
    **options: Unpack[ToolOptions],
) -> Tool:
    """A function with a definition for OpenAI's APIs: `{"type": "function", "function": {"name",
    "description", "parameters"}}`, or without the outer object.

    Raises:
        InvalidInput: the definition has no name or no parameters.
    """
    inner = definition.get("function", definition)
    fields = cast("Mapping[str, object]", inner if isinstance(inner, Mapping) else {})
    name, schema = fields.get("name"), fields.get("parameters")
    if not isinstance(name, str) or not isinstance(schema, Mapping):
        raise InvalidInput("the definition of a function must have a name and parameters")

    async def run(call: Call) -> ToolResult:
        return await _result_of(partial(call_function, function, call.input))

    description = str(fields.get("description") or inspect.getdoc(function) or name)
    return _tool(name, description, cast("Mapping[str, object]", schema), run, options)


class McpToolSource(Protocol):
    """The part of `mcp.Client`, or `mcp.ClientSession` before version 2, that we need."""

    # any type, since the models differ from version to version
    def list_tools(self, *, cursor: str | None = None) -> Awaitable[Any]: ...
    def call_tool(self, name: str, arguments: dict[str, Any]) -> Awaitable[Any]: ...


async def from_mcp(client: McpToolSource, **options: Unpack[ToolOptions]) -> list[Tool]:
    """The tools of an MCP server that the program has connected to with the official SDK. The
    options apply to all of them; `name` and `description` have no effect.

    Raises:
        InvalidInput: the server lists more than 2,000 tools.
    """
    definitions: list[object] = []
    cursor: str | None = None
    while True:
        page: object = await (client.list_tools(cursor=cursor) if cursor else client.list_tools())
        definitions += cast("list[object]", _attribute(page, "tools") or [])
        cursor = cast("str | None", _attribute(page, "next_cursor", "nextCursor"))
        if len(definitions) > _MAX_MCP_TOOLS:
            raise InvalidInput(f"the MCP server lists more than {_MAX_MCP_TOOLS:,} tools")
        if not cursor:
            return [_mcp_tool(client, definition, options) for definition in definitions]


_MAX_MCP_TOOLS = 2_000  # of one server; a list that goes on for ever ends here
_MAX_MCP_DESCRIPTION = 2_048  # characters, as for servers that we connect


def _mcp_tool(client: McpToolSource, definition: object, options: ToolOptions) -> Tool:
    name = str(_attribute(definition, "name"))
    description = str(_attribute(definition, "description") or name)[:_MAX_MCP_DESCRIPTION]
    schema = cast(
        "Mapping[str, object]", _attribute(definition, "input_schema", "inputSchema") or {}
    )

    async def run(call: Call) -> ToolResult:
        return await _result_of(partial(_call_mcp, client, name, call.input))

    tool_options: ToolOptions = {**options, "name": name, "description": description}
    return _tool(name, description, {"additionalProperties": True, **schema}, run, tool_options)


async def _call_mcp(client: McpToolSource, name: str, args: Mapping[str, object]) -> object:
    result: object = await client.call_tool(name, dict(args))
    parts = cast("list[object]", _attribute(result, "content") or [])
    texts = [text for part in parts if isinstance(text := _attribute(part, "text"), str)]
    if _attribute(result, "is_error", "isError"):
        raise ToolError("\n".join(texts) or "the tool failed without a message")
    if not texts:
        return _attribute(result, "structured_content", "structuredContent") or "(no text)"
    return "\n".join(texts)


def _attribute(value: object, *names: str) -> object:
    """The first of these attributes that exists: version 2 of the SDK has renamed them."""
    values = (getattr(value, name) for name in names if hasattr(value, name))
    return next(values, None)


def _tool(
    name: str,
    description: str,
    schema: Mapping[str, object],
    run: Callable[[Call], Awaitable[ToolResult]],
    options: ToolOptions,
) -> Tool:
    traits: Traits = tool_traits(name, options)
    return Tool(
        spec=ToolSpec(
            name=options.get("name") or name,
            description=options.get("description") or description,
            input_schema={"type": "object", "properties": {}, **schema},
        ),
        run=run,
        traits=lambda _: traits,
        probe=options.get("probe"),
        invalid=partial(_input_error, schema),
    )


def _input_error(schema: Mapping[str, object], args: Mapping[str, object]) -> str | None:
    """Missing and unknown arguments; the library checks the types."""
    properties = cast("Mapping[str, object]", schema.get("properties") or {})
    required = cast("list[str]", schema.get("required") or [])
    problems = [f"- {name}: missing" for name in required if name not in args]
    if schema.get("additionalProperties") is not True:
        hint = f"unknown; the fields are: {', '.join(properties) or 'none'}"
        problems += [f"- {name}: {hint}" for name in args if name not in properties]
    return "\n".join(["The input is not valid:", *problems]) if problems else None


async def _result_of(run: Callable[[], Awaitable[object]]) -> ToolResult:
    try:
        return to_tool_result(await run())
    # This is third-party code: the model reads whatever it raises.
    except (Exception, SystemExit) as error:  # noqa: BLE001
        return error_result(error)
