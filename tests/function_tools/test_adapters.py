"""Tools of other libraries: of LangChain and MCP's SDK by their methods, functions with an OpenAI
definition.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pydantic
import pytest
from tests.function_tools.samples import failure_of, text_of

from mainspring.core.errors import InvalidInput
from mainspring.tools import from_langchain, from_mcp, from_openai

SOURCE = Path(__file__).parents[2] / "src"
PACKAGES = [
    path.parent
    for path in (Path(sys.prefix) / "peers/python").glob("lib/python*/site-packages/langchain_core")
]
SUM = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}


class Arguments(pydantic.BaseModel):
    city: str


class Weather:
    """What `langchain_core.tools.tool` makes of a function has these, and more."""

    name = "weather"
    description = "Tell the weather."
    tool_call_schema = Arguments

    async def ainvoke(self, input: dict[str, object]) -> str:
        return f"sunny in {Arguments.model_validate(input).city}"


def add(a: int, b: int) -> int:
    return a + b


async def test_a_langchain_tool_can_be_adapted():
    made = from_langchain(Weather(), read_only=True)
    assert made.spec.input_schema["required"] == ["city"]
    assert made.traits({}).read_only
    assert await text_of(made, city="Rome") == "sunny in Rome"
    assert made.invalid({}) == "The input is not valid:\n- city: missing"
    assert "valid string" in await failure_of(made, city=1)


REAL = """
import anyio, json
from langchain_core.tools import StructuredTool, tool
from mainspring.core.content import plain_text
from mainspring.core.tool import Call
from mainspring.tools import from_langchain

@tool
def weather(city: str, days: int = 1) -> str:
    "Tell the weather."
    return f"sunny in {city} for {days}"

def forecast(city: str) -> str:
    if city == "Atlantis":
        raise ValueError("it sank")
    return "rain"

def call(**given):
    return Call(id="1", name="x", input=given, idempotency_key="k", session_id="s", thread_id="t")

async def main():
    made = from_langchain(weather, read_only=True)
    other = from_langchain(StructuredTool.from_function(forecast, description="Forecast."))
    texts = [await made.run(call(city="Rome", days=2)), await made.run(call(city=1))]
    texts += [await other.run(call(city="Atlantis"))]
    print(json.dumps({
        "required": made.spec.input_schema["required"],
        "description": made.spec.description,
        "invalid": made.invalid({}),
        "results": [[result.ok, plain_text(result.content)] for result in texts],
    }))

anyio.run(main)
"""


@pytest.mark.slow
@pytest.mark.skipif(not PACKAGES, reason="langchain-core: run `make peers`")
def test_tools_of_the_real_langchain_package_can_be_adapted():
    """It runs here with the packages of `make peers` behind our own."""
    result = subprocess.run(
        [sys.executable, "-c", REAL],
        env={"PYTHONPATH": os.pathsep.join(map(str, (SOURCE, *PACKAGES)))},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    seen = json.loads(result.stdout)
    assert (seen["required"], seen["description"]) == (["city"], "Tell the weather.")
    assert seen["invalid"] == "The input is not valid:\n- city: missing"
    [first, second, third] = seen["results"]
    assert first == [True, "sunny in Rome for 2"]
    assert (second[0], "valid string" in second[1]) == (False, True)
    assert (third[0], "it sank" in third[1]) == (False, True)


async def test_a_function_with_an_openai_definition_can_be_adapted():
    for definition in (SUM, SUM["function"]):
        made = from_openai(definition, add)  # pyright: ignore[reportArgumentType] (a plain dict)
        assert (made.spec.name, made.spec.description) == ("add", "Add two numbers.")
        assert await text_of(made, a=1, b=2) == "3"
        assert made.invalid({"a": 1, "c": 2}) == (
            "The input is not valid:\n- b: missing\n- c: unknown; the fields are: a, b"
        )
    with pytest.raises(InvalidInput, match="must have a name and parameters"):
        from_openai({"name": "add"}, add)


class SnakeCaseClient:
    """Pages and results as `mcp` has them since version 2."""

    schema, error = "input_schema", "is_error"
    cursor, structured = "next_cursor", "structured_content"

    async def list_tools(self, *, cursor: str | None = None) -> SimpleNamespace:
        name = "second" if cursor else "first"
        schema = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}
        tool = SimpleNamespace(name=name, description="d" * 3_000, **{self.schema: schema})
        return SimpleNamespace(tools=[tool], **{self.cursor: None if cursor else "next"})

    async def call_tool(self, name: str, arguments: dict[str, object]) -> SimpleNamespace:
        if arguments["x"] == "structured":
            return SimpleNamespace(content=[], **{self.structured: {"a": 1}, self.error: False})
        text = SimpleNamespace(type="text", text=f"{name} {arguments['x']}")
        failed = arguments["x"] == "bad"
        return SimpleNamespace(content=[text], **{self.error: failed})


class CamelCaseClient(SnakeCaseClient):
    schema, error = "inputSchema", "isError"
    cursor, structured = "nextCursor", "structuredContent"


@pytest.mark.parametrize("client", [SnakeCaseClient(), CamelCaseClient()])
async def test_tools_of_a_connected_mcp_server_can_be_adapted(client: SnakeCaseClient):
    first, second = await from_mcp(client, read_only=True)
    assert (first.spec.name, second.spec.name) == ("first", "second")
    assert len(first.spec.description) == 2_048
    assert first.traits({}).read_only
    assert first.invalid({}) == "The input is not valid:\n- x: missing"
    assert await text_of(second, x="1") == "second 1"
    assert await text_of(first, x="structured") == '{"a":1}'
    assert await failure_of(first, x="bad") == "first bad"


async def test_an_endless_list_of_tools_is_refused():
    class Endless(SnakeCaseClient):
        async def list_tools(self, *, cursor: str | None = None) -> SimpleNamespace:
            tools = [SimpleNamespace(name="t", description="", input_schema={})] * 500
            return SimpleNamespace(tools=tools, next_cursor="more")

    with pytest.raises(InvalidInput, match="more than 2,000 tools"):
        await from_mcp(Endless())
