"""Functions of a Python file as tools, resources and prompts of an MCP server."""

from __future__ import annotations

import base64
import importlib.util
import logging
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import anyio
import msgspec
from anyio import from_thread

from mainspring.capabilities.mcp.protocol.messages import (
    Content,
    Image,
    Prompt,
    PromptArgument,
    PromptMessage,
    PromptResult,
    Resource,
    ResourceContent,
    ResourceTemplate,
    SkillEntry,
    Text,
    ToolAnnotations,
    ToolDefinition,
)
from mainspring.capabilities.mcp.server.exchange import Exchange
from mainspring.capabilities.mcp.server.features import (
    CompletionRequest,
    FeatureChangeFeed,
    ToolReply,
    no_prompt,
    no_tool,
)
from mainspring.capabilities.mcp.server.refusals import invalid, no_resource
from mainspring.core import ids
from mainspring.core.content import Base64Source, Block, ImageBlock, plain_text
from mainspring.core.errors import InvalidInput
from mainspring.core.tool import Call, Tool, ToolResult
from mainspring.function_tools.served_functions import FunctionPrompt, FunctionResource

_MAX_STEPS = 1_000  # progress messages of one call that wait; further ones are dropped
_LOG = logging.getLogger("mainspring.mcp.server")


@dataclass(frozen=True, slots=True)
class ServedFunctions:
    tools: Mapping[str, Tool]
    resources: Sequence[FunctionResource]
    prompts: Mapping[str, FunctionPrompt]


def load_functions(file: Path) -> ServedFunctions:
    """Run a Python file and collect the tools, resources and prompts that it defines.

    Raises:
        InvalidInput: there is no such file, it fails, or it has nothing to serve.
    """
    module = _load(file)
    values = list(vars(module).values())
    tools = [value for value in values if isinstance(value, Tool)]
    served = ServedFunctions(
        {tool.spec.name: tool for tool in tools},
        [value for value in values if isinstance(value, FunctionResource)],
        {value.name: value for value in values if isinstance(value, FunctionPrompt)},
    )
    if not (served.tools or served.resources or served.prompts):
        raise InvalidInput(f"{file}: no function is decorated with @tool, @resource or @prompt")
    if len(served.tools) < len(tools):
        raise InvalidInput(f"{file}: two tools have the same name")
    return served


def _load(file: Path) -> ModuleType:
    if not file.is_file():
        raise InvalidInput(f"{file}: there is no such file")
    spec = importlib.util.spec_from_file_location("mainspring_served_functions", file)
    if spec is None or spec.loader is None:
        raise InvalidInput(f"{file}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # type hints are looked up there
    sys.path.insert(0, str(file.resolve().parent))  # as `python file` does
    try:
        spec.loader.exec_module(module)
    except InvalidInput as error:
        raise InvalidInput(f"{file}: {error}") from error
    except Exception as error:
        _LOG.debug("%s failed", file, exc_info=True)
        raise InvalidInput(f"{file}: {type(error).__name__}: {error}") from error
    return module


class FunctionFeatures:
    """`Features` over functions, the same for every caller."""

    def __init__(self, functions: ServedFunctions) -> None:
        self.changes = FeatureChangeFeed()
        self._functions = functions

    @property
    def capabilities(self) -> Mapping[str, Mapping[str, object]]:
        served = self._functions
        offered = {
            "tools": served.tools,
            "resources": served.resources,
            "prompts": served.prompts,
        }
        return {name: dict[str, object]() for name, items in offered.items() if items}

    async def tools(self) -> Sequence[ToolDefinition]:
        return [_definition(tool) for tool in self._functions.tools.values()]

    async def call_tool(
        self, name: str, arguments: Mapping[str, object], exchange: Exchange
    ) -> ToolReply:
        if (tool := self._functions.tools.get(name)) is None:
            raise no_tool(name)
        if (problem := tool.invalid(arguments)) is not None:
            return ToolReply.text(problem, is_error=True)
        steps, id_ = _Steps(), ids.new_id("toolu")
        results: list[ToolResult] = []
        call = Call(
            id=id_,
            name=name,
            input=arguments,
            idempotency_key=id_,
            session_id="",
            thread_id="",
            say=steps.say,
        )

        async def run() -> None:
            with steps.stream:
                results.append(await tool.run(call))

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            async for text in steps.received:
                await exchange.step(text)
        return _reply(results[0])

    async def resources(self) -> Sequence[Resource]:
        return [
            Resource(
                uri=item.uri,
                name=item.name,
                description=item.description or None,
                mime_type=item.mime_type,
            )
            for item in self._functions.resources
            if not item.is_template
        ]

    async def skills(self) -> Sequence[SkillEntry]:
        return []

    async def resource_templates(self) -> Sequence[ResourceTemplate]:
        return [
            ResourceTemplate(
                uri_template=item.uri,
                name=item.name,
                description=item.description or None,
                mime_type=item.mime_type,
            )
            for item in self._functions.resources
            if item.is_template
        ]

    async def read_resource(self, uri: str, exchange: Exchange) -> Sequence[ResourceContent]:
        for item in self._functions.resources:
            if (arguments := item.arguments(uri)) is not None:
                return [_content(uri, item.mime_type, await item.read(arguments))]
        raise no_resource(uri, exchange.client.era)

    async def prompts(self) -> Sequence[Prompt]:
        return [
            Prompt(
                name=item.name,
                description=item.description or None,
                arguments=[
                    PromptArgument(name=name, required=field.required)
                    for name, field in item.inputs.fields.items()
                ]
                or None,
            )
            for item in self._functions.prompts.values()
        ]

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str], exchange: Exchange
    ) -> PromptResult:
        del exchange
        if (item := self._functions.prompts.get(name)) is None:
            raise no_prompt(name)
        try:
            texts = await item.messages(arguments)
        except InvalidInput as error:
            raise invalid(str(error)) from error
        messages = [PromptMessage(role="user", content=Text(text)) for text in texts]
        return PromptResult(messages=messages, description=item.description or None)

    async def complete(self, request: CompletionRequest) -> Sequence[str]:
        del request
        return []


class _Steps:
    """Progress messages of a function. A function that is not async runs in its own thread."""

    def __init__(self) -> None:
        self.stream, self.received = anyio.create_memory_object_stream[str](_MAX_STEPS)
        self._thread = threading.get_ident()

    def say(self, text: str) -> None:
        """Send a message; it is dropped if the reader is too slow, or the function has ended."""
        with suppress(anyio.WouldBlock, anyio.ClosedResourceError, anyio.BrokenResourceError):
            if threading.get_ident() == self._thread:
                self.stream.send_nowait(text)
            else:
                from_thread.run_sync(self.stream.send_nowait, text)


def _definition(tool: Tool) -> ToolDefinition:
    traits = tool.traits({})
    return ToolDefinition(
        name=tool.spec.name,
        description=tool.spec.description,
        input_schema=dict(tool.spec.input_schema),
        annotations=ToolAnnotations(
            read_only_hint=traits.read_only,
            destructive_hint=traits.destructive or not traits.read_only,
        ),
    )


def _reply(result: ToolResult) -> ToolReply:
    return ToolReply(content=[_block(block) for block in result.content], is_error=not result.ok)


def _block(block: Block) -> Content:
    match block:
        case ImageBlock(source=Base64Source(media_type=media_type, data=data)):
            return Image(data=data, mime_type=media_type)
        case _:
            return Text(plain_text((block,)))


def _content(uri: str, mime_type: str, value: object) -> ResourceContent:
    match value:
        case str():
            return ResourceContent(uri=uri, mime_type=mime_type, text=value)
        case bytes():
            blob = base64.b64encode(value).decode("ascii")
            return ResourceContent(uri=uri, mime_type=mime_type, blob=blob)
        case _:
            text = msgspec.json.encode(value).decode()
            return ResourceContent(uri=uri, mime_type="application/json", text=text)
