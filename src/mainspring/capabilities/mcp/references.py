"""References to MCP servers in a user's message: a prompt at its beginning, `/mcp__server__prompt`,
and resources, `@server:uri`. Their text is added after the message for the model, which can read
other resources with a tool.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence

from mainspring.capabilities.mcp.protocol import messages
from mainspring.capabilities.mcp.protocol.foreign_text import clean_line, clean_text
from mainspring.capabilities.mcp.protocol.messages import Prompt
from mainspring.capabilities.mcp.server_connection import ServerConnection
from mainspring.capabilities.mcp.tools import content_text, plain_name, resource_text
from mainspring.core.errors import McpFailed
from mainspring.core.tool import Tool
from mainspring.function_tools.define import tool

_PROMPT = re.compile(r"/mcp__(?P<server>[A-Za-z0-9_-]+?)__(?P<prompt>[A-Za-z0-9_-]+)(\s+|$)")
_RESOURCE = re.compile(r"(?:^|(?<=\s))@(?P<server>[A-Za-z0-9_-]{1,64}):(?P<uri>\S{1,2000})")
_MAX_RESOURCES = 10  # attached to one message; each is read from its server first
_MAX_CHARS = 100_000  # of one resource, about 25,000 tokens
_MAX_LISTED = 200  # resources of a server that a list shows


def message_context(
    connections: Mapping[str, ServerConnection], resources: Sequence[str]
) -> Callable[[str], Awaitable[Sequence[str]]]:
    """Resolves the references of each message and, with the first one, the agent's own `resources`
    (`server:uri`)."""
    own = list(resources)

    async def context(message: str) -> Sequence[str]:
        mentions = [f"@{item}" for item in own]
        own.clear()
        return await referenced_texts("\n".join((message, *mentions)), connections)

    return context


async def referenced_texts(message: str, connections: Mapping[str, ServerConnection]) -> list[str]:
    """One text for each prompt and resource; if one cannot be read, its text says so."""
    texts: list[str] = []
    prompt = _PROMPT.match(message)
    if prompt is not None and (connection := connections.get(prompt["server"])) is not None:
        texts.append(await _prompt_text(connection, prompt["prompt"], message[prompt.end() :]))
    mentions = {(match["server"], match["uri"].rstrip(".,;)")): None for match in
                _RESOURCE.finditer(message)}  # fmt: skip
    for server, uri in list(mentions)[:_MAX_RESOURCES]:
        if (connection := connections.get(server)) is not None:
            texts.append(await read_resource(connection, server, uri))
    return texts


async def read_resource(connection: ServerConnection, server: str, uri: str) -> str:
    """A resource as text for the model; errors become text."""
    head = f"Resource {clean_line(uri, 500)} of the MCP server {server}"
    try:
        result = await (await connection.client()).read_resource(uri)
    except McpFailed as error:
        return f"{head} could not be read: {clean_line(str(error), 300)}"
    text = "\n".join(resource_text(item) for item in result.contents)
    return _cut(f"{head}:\n{text}")


async def _prompt_text(connection: ServerConnection, name: str, arguments: str) -> str:
    try:
        client = await connection.client()
        prompts = await client.list_prompts()
        prompt = next((item for item in prompts if plain_name(item.name) == name), None)
        if prompt is None:
            return f"There is no prompt {name} of this MCP server."
        result = await client.get_prompt(prompt.name, _prompt_arguments(prompt, arguments))
    except (McpFailed, ValueError) as error:
        return f"The prompt {name} could not be read: {clean_line(str(error), 300)}"
    return _cut("\n".join(_message_text(message) for message in result.messages))


def _prompt_arguments(prompt: Prompt, text: str) -> dict[str, str]:
    """Arguments in their order, or by `name=value`; the last one takes the rest.

    Raises ValueError: an argument is missing.
    """
    names = [item.name for item in prompt.arguments or []]
    try:
        words = shlex.split(text)
    except ValueError:  # an unclosed quotation mark
        words = text.split()
    arguments: dict[str, str] = {}
    for word in [word for word in words if word.partition("=")[0] in names and "=" in word]:
        words.remove(word)
        arguments[word.partition("=")[0]] = word.partition("=")[2]
    open_names = [name for name in names if name not in arguments]
    if len(words) > len(open_names) > 0:
        words[len(open_names) - 1 :] = [" ".join(words[len(open_names) - 1 :])]
    arguments |= dict(zip(open_names, words, strict=False))
    required = [item.name for item in prompt.arguments or [] if item.required]
    if missing_names := [name for name in required if name not in arguments]:
        raise ValueError(f"it needs {', '.join(missing_names)}")
    return arguments


def _message_text(message: messages.PromptMessage) -> str:
    text = content_text(message.content)
    return text if message.role == "user" else f"[assistant] {text}"


def _cut(text: str) -> str:
    text = clean_text(text)
    if len(text) <= _MAX_CHARS:
        return text
    return f"{text[:_MAX_CHARS]}\n[{len(text) - _MAX_CHARS:,} characters left out]"


def resource_tool(connections: Mapping[str, ServerConnection]) -> Tool:
    """`connections`: by the server's name in the names of its tools."""

    @tool(read_only=True, concurrent=True)
    async def read_mcp_resource(server: str, uri: str = "") -> str:
        """Read a resource of an MCP server, or list the resources that it has.

        Args:
            server: The server, as in `mcp__SERVER__tool`.
            uri: The resource; without it, all are listed.
        """
        connection = connections.get(server)
        if connection is None:
            return f"There is no MCP server {clean_line(server, 80)}: {', '.join(connections)}."
        if uri:
            return await read_resource(connection, server, uri)
        try:
            resources = await (await connection.client()).list_resources()
        except McpFailed as error:
            return f"The resources could not be listed: {clean_line(str(error), 300)}"
        lines = [clean_line(f"{item.uri} {item.title or item.name}", 500) for item in resources]
        more = [f"[{len(lines) - _MAX_LISTED:,} more]"] if len(lines) > _MAX_LISTED else []
        return "\n".join([*lines[:_MAX_LISTED], *more]) or "It has none."

    return read_mcp_resource
