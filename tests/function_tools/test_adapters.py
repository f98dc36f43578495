"""Tools of other libraries: of LangChain and MCP's SDK by their methods, functions with an OpenAI
definition.
"""

from types import SimpleNamespace

import pydantic
import pytest
from tests.function_tools.samples import failure_of, text_of

from mainspring.core.errors import InvalidInput
from mainspring.tools import from_langchain, from_mcp, from_openai

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


async def test_a_tool_of_langchain_is_a_tool():
    made = from_langchain(Weather(), read_only=True)
    assert made.spec.input_schema["required"] == ["city"]
    assert made.traits({}).read_only
    assert await text_of(made, city="Rome") == "sunny in Rome"
    assert made.invalid({}) == "The input is not valid:\n- city: missing"
    assert "valid string" in await failure_of(made, city=1)


async def test_a_function_with_an_openai_definition_is_a_tool():
    for definition in (SUM, SUM["function"]):
        made = from_openai(definition, add)  # pyright: ignore[reportArgumentType] (a plain dict)
        assert (made.spec.name, made.spec.description) == ("add", "Add two numbers.")
        assert await text_of(made, a=1, b=2) == "3"
        assert made.invalid({"a": 1, "c": 2}) == (
            "The input is not valid:\n- b: missing\n- c: unknown; the fields are: a, b"
        )
    with pytest.raises(InvalidInput, match="has a name, a description and parameters"):
        from_openai({"name": "add"}, add)


class Snake:
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


class Camel(Snake):
    schema, error = "inputSchema", "isError"
    cursor, structured = "nextCursor", "structuredContent"


@pytest.mark.parametrize("client", [Snake(), Camel()])
async def test_the_tools_of_a_connected_mcp_server_are_tools(client: Snake):
    first, second = await from_mcp(client, read_only=True)
    assert (first.spec.name, second.spec.name) == ("first", "second")
    assert len(first.spec.description) == 2_048
    assert first.traits({}).read_only
    assert first.invalid({}) == "The input is not valid:\n- x: missing"
    assert await text_of(second, x="1") == "second 1"
    assert await text_of(first, x="structured") == '{"a":1}'
    assert await failure_of(first, x="bad") == "first bad"


async def test_an_endless_list_of_tools_is_refused():
    class Endless(Snake):
        async def list_tools(self, *, cursor: str | None = None) -> SimpleNamespace:
            tools = [SimpleNamespace(name="t", description="", input_schema={})] * 500
            return SimpleNamespace(tools=tools, next_cursor="more")

    with pytest.raises(InvalidInput, match="more than 2,000 tools"):
        await from_mcp(Endless())
