"""The client as the conformance suite drives it: `-m tests.mcp.conformance_client URL`."""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import cast

import anyio
import msgspec
from tests.mcp.authorization import agreeing_grant
from tests.mcp.peers import http_client

from mainspring.capabilities.mcp.login.oauth import ClientConfig
from mainspring.capabilities.mcp.login.oauth_grants import OAuthGrant
from mainspring.capabilities.mcp.protocol.client import McpClient
from mainspring.capabilities.mcp.protocol.messages import (
    SKILLS_EXTENSION,
    SkillEntry,
    SkillFile,
    ToolDefinition,
    decode_result,
)
from mainspring.capabilities.mcp.server_skills import load_skill, read_skill_file
from mainspring.core.errors import McpFailed
from mainspring.harness.context.frontmatter import read_frontmatter

Fields = dict[str, object]
_VALUES: dict[object, object] = {"string": "test", "integer": 1, "number": 1, "boolean": True}


class Accepting:
    """Accepts every form with its defaults."""

    capabilities: Mapping[str, object] = {
        "elicitation": {"form": {"applyDefaults": True}},
        "sampling": {},
        "roots": {"listChanged": False},
    }

    async def __call__(self, method: str, params: bytes) -> Mapping[str, object]:
        asked = cast(Fields, msgspec.json.decode(params))
        match method:
            case "elicitation/create":
                schema = cast(Fields, asked.get("requestedSchema", {}))
                return {"action": "accept", "content": arguments_of(schema)}
            case "sampling/createMessage":
                content = {"type": "text", "text": "four"}
                return {"role": "assistant", "content": content, "model": "test"}
            case "roots/list":
                return {"roots": []}
            case _:
                raise McpFailed(f"{method} is not supported")


def arguments_of(schema: Fields) -> Fields:
    properties = cast("dict[str, Fields]", schema.get("properties", {}))
    return {name: value_of(field) for name, field in properties.items()}


def value_of(field: Fields) -> object:
    if "default" in field:
        return field["default"]
    if "enum" in field:
        return cast("list[object]", field["enum"])[0]
    if field.get("type") == "object":
        return arguments_of(field)
    return [] if field.get("type") == "array" else _VALUES.get(field.get("type"))


def oauth_grant(url: str, known: Fields) -> OAuthGrant:
    config = ClientConfig(
        client_id=cast("str | None", known.get("client_id")),
        client_secret=cast("str | None", known.get("client_secret")),
        client_metadata_url="https://conformance-test.local/client-metadata.json",
    )
    return agreeing_grant(url, config=config)


async def main(url: str) -> None:
    known = msgspec.json.decode(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")  # noqa: TID251
    async with http_client(url, input_handler=Accepting(), auth=oauth_grant(url, known)) as client:
        info = await client.connect()
        calls = cast("list[Fields]", known.get("toolCalls", []))
        tools = (await client.list_tools()).tools
        for name, arguments in [(str(item["name"]), item["arguments"]) for item in calls] or [
            (tool.name, example_of(tool)) for tool in tools
        ]:
            with suppress(McpFailed):  # an error of a tool is a scenario, too
                await client.call_tool(name, cast(Fields, arguments))
        if "prompts" in info.capabilities:
            for prompt in await client.list_prompts():
                await client.get_prompt(prompt.name, {})
        if SKILLS_EXTENSION in cast(Fields, info.capabilities.get("extensions", {})):
            await use_skills(client)
        elif "resources" in info.capabilities:
            for resource in await client.list_resources():
                await client.read_resource(resource.uri)


async def use_skills(client: McpClient) -> None:
    """Reads the files of a skill only if its manifest is what was announced. The scenario about
    reading too early ends before that."""
    entries = [decode_result(raw, SkillEntry, "") for raw in await client.list_skills()]
    if os.environ["MCP_CONFORMANCE_SCENARIO"].endswith("no-prefetch"):  # noqa: TID251
        return
    for entry in entries:
        await load_skill(client, entry, read_frontmatter)
        for file in entry.resources:
            await read_skill_file(client, cast(SkillFile, file))


def example_of(tool: ToolDefinition) -> Fields:
    return arguments_of(tool.input_schema)


if __name__ == "__main__":
    anyio.run(main, sys.argv[-1])
