"""What the official conformance suite expects of a server, offered by ours.

Run as a program, it serves at a free port of this machine and prints the address; or with `--stdio`
over standard input and output.
"""

import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec
from tests.mcp.conformance_tools import PNG, TOOLS, Arguments, Handler, schema_of, text_field

from mainspring.capabilities.mcp.protocol.messages import (
    SKILLS_EXTENSION,
    EmbeddedResource,
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
    ToolDefinition,
)
from mainspring.capabilities.mcp.server.connection import McpConnection
from mainspring.capabilities.mcp.server.exchange import Exchange
from mainspring.capabilities.mcp.server.features import (
    PROMPTS_CHANGED,
    TOOLS_CHANGED,
    CompletionRequest,
    FeatureChangeFeed,
    ToolReply,
    no_prompt,
    no_tool,
)
from mainspring.capabilities.mcp.server.stdio import serve_lines
from mainspring.edges.mcp.http_endpoint import HostRules, HttpTimes
from mainspring.edges.mcp.http_server import mcp_http_server, mcp_routes, new_server
from mainspring.edges.mcp.skill_features import SkillFeatures
from mainspring.edges.mcp.standard_streams import standard_streams
from mainspring.runtime.definition_files.scopes import PartLocation
from mainspring.runtime.skills.skill import Skill
from mainspring.runtime.skills.skill_file import read_skill


async def published_skills() -> Sequence[Skill]:
    """As `mainspring mcp serve` has them."""
    folder = Path(__file__).parent / "published_skills"
    file = folder / "reporting/SKILL.md"
    skill, _ = read_skill(file, PartLocation(folder, "project"), file.name)
    return [] if skill is None else [skill]


class ConformanceFeatures:
    def __init__(self) -> None:
        self.changes = FeatureChangeFeed()
        self._cancelled = anyio.Event()
        self._skills = SkillFeatures(published_skills)
        self._tools: dict[str, tuple[str, dict[str, object], Handler]] = {}
        for handler, schema in (
            *TOOLS,
            (self.trigger_tool_change, schema_of()),
            (self.trigger_prompt_change, schema_of()),
            (self.wait, schema_of()),
            (self.was_cancelled, schema_of()),
        ):
            bare = handler.__name__
            name = bare if bare.startswith("json") else f"test_{bare}"
            self._tools[name] = (bare.replace("_", " "), schema, handler)

    @property
    def capabilities(self) -> Mapping[str, Mapping[str, object]]:
        return {
            "tools": {"listChanged": True},
            "resources": {"subscribe": True},
            "prompts": {"listChanged": True},
            "completions": {},
            "logging": {},
            "extensions": {SKILLS_EXTENSION: {}},
        }

    async def tools(self) -> Sequence[ToolDefinition]:
        return [
            ToolDefinition(name=name, description=description, input_schema=schema)
            for name, (description, schema, _) in self._tools.items()
        ]

    async def call_tool(self, name: str, arguments: Arguments, exchange: Exchange) -> ToolReply:
        if name not in self._tools:
            raise no_tool(name)
        return await self._tools[name][2](arguments, exchange)

    async def resources(self) -> Sequence[Resource]:
        return [
            Resource(uri=f"test://{name}", name=name, description=name, mime_type=type_)
            for name, type_ in (
                ("static-text", "text/plain"),
                ("static-binary", "image/png"),
                ("watched-resource", "text/plain"),
            )
        ] + [*await self._skills.resources()]

    async def skills(self) -> Sequence[SkillEntry]:
        return await self._skills.skills()

    async def resource_templates(self) -> Sequence[ResourceTemplate]:
        return [
            ResourceTemplate(
                uri_template="test://template/{id}/data",
                name="template",
                description="A template",
                mime_type="application/json",
            )
        ]

    async def read_resource(self, uri: str, exchange: Exchange) -> Sequence[ResourceContent]:
        match uri.removeprefix("test://").split("/"):
            case ["static-text"]:
                text = "This is the content of the static text resource."
                return [ResourceContent(uri=uri, mime_type="text/plain", text=text)]
            case ["static-binary"]:
                return [ResourceContent(uri=uri, mime_type="image/png", blob=PNG)]
            case ["watched-resource"]:
                return [ResourceContent(uri=uri, mime_type="text/plain", text="watched")]
            case ["template", id_, "data"]:
                data = {"id": id_, "templateTest": True, "data": f"Data for ID: {id_}"}
                text = msgspec.json.encode(data).decode()
                return [ResourceContent(uri=uri, mime_type="application/json", text=text)]
            case _:
                return await self._skills.read_resource(uri, exchange)

    async def prompts(self) -> Sequence[Prompt]:
        def prompt(name: str, *arguments: str) -> Prompt:
            parts = [
                PromptArgument(name=item, description=item, required=True) for item in arguments
            ]
            return Prompt(name=name, description=name, arguments=parts or None)

        return [
            prompt("test_simple_prompt"),
            prompt("test_prompt_with_arguments", "arg1", "arg2"),
            prompt("test_prompt_with_embedded_resource", "resourceUri"),
            prompt("test_prompt_with_image"),
            prompt("test_input_required_result_prompt"),
        ]

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str], exchange: Exchange
    ) -> PromptResult:
        content: list[Text | Image | EmbeddedResource]
        match name:
            case "test_simple_prompt":
                content = [Text("This is a simple prompt for testing.")]
            case "test_prompt_with_arguments":
                one, two = arguments.get("arg1"), arguments.get("arg2")
                content = [Text(f"Prompt with arguments: arg1='{one}', arg2='{two}'")]
            case "test_prompt_with_embedded_resource":
                resource = ResourceContent(
                    uri=arguments["resourceUri"],
                    mime_type="text/plain",
                    text="Embedded resource content for testing.",
                )
                text = Text("Please process the embedded resource above.")
                content = [EmbeddedResource(resource=resource), text]
            case "test_prompt_with_image":
                image = Image(data=PNG, mime_type="image/png")
                content = [image, Text("Please analyze the image above.")]
            case "test_input_required_result_prompt":
                question = "What context should the prompt use?"
                answer = await exchange.elicit(
                    "user_context", question, schema_of(context=text_field())
                )
                content = [Text(f"With context {answer.content}")]
            case _:
                raise no_prompt(name)
        return PromptResult(messages=[PromptMessage(role="user", content=it) for it in content])

    async def complete(self, request: CompletionRequest) -> Sequence[str]:
        return [f"{request.value}{end}" for end in ("", "1", "2")]

    async def trigger_tool_change(self, _: Arguments, _exchange: Exchange) -> ToolReply:
        self.changes.announce(TOOLS_CHANGED)
        return ToolReply.text("announced")

    async def trigger_prompt_change(self, _: Arguments, _exchange: Exchange) -> ToolReply:
        self.changes.announce(PROMPTS_CHANGED)
        return ToolReply.text("announced")

    async def wait(self, _: Arguments, exchange: Exchange) -> ToolReply:
        await exchange.progress(1)
        try:
            await anyio.sleep(600)
        finally:
            self._cancelled.set()
        return ToolReply.text("never")

    async def was_cancelled(self, _: Arguments, _exchange: Exchange) -> ToolReply:
        await self._cancelled.wait()
        return ToolReply.text("yes")


@asynccontextmanager
async def conformance_server(
    times: HttpTimes | None = None,
) -> AsyncGenerator[str, None]:
    """Serves what the suite expects, without keys; gives the address."""
    features = ConformanceFeatures()
    server = new_server("conformance")
    routes = mcp_routes(server, lambda _principal: features, HostRules(), times)
    async with mcp_http_server(routes) as url:
        yield url


async def main() -> None:
    if sys.argv[1:] == ["--stdio"]:
        with standard_streams() as streams:
            sys.stdout.write("what somebody prints does not break the protocol")
            connection = McpConnection(caller="local", features=ConformanceFeatures())
            await serve_lines(new_server("conformance"), connection, streams)
        return
    async with conformance_server() as url:
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main)
