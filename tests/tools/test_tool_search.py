"""tool_search: finding what is not loaded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.function_tools.samples import call

from mainspring.capabilities.tools.tool_search import tool_search
from mainspring.core.content import plain_text
from mainspring.core.events import ToolsLoaded
from mainspring.core.model import ToolSpec
from mainspring.core.tool import ToolResult


def spec(name: str, description: str) -> ToolSpec:
    schema: dict[str, object] = {"type": "object", "properties": {"x": {"type": "string"}}}
    return ToolSpec(name=name, description=description, input_schema=schema)


SPECS = [
    spec("mcp__github__create_issue", "Open a new issue in a repository."),
    spec("mcp__github__list_pulls", "List the pull requests of a repository."),
    spec("mcp__mail__sendMessage", "Send an e-mail message to somebody. Attachments are allowed."),
    spec("mcp__db__query", "Run a SQL query against the database."),
    spec("mcp__calendar__find", "Find events and meetings in a calendar."),
]


async def search_tools(query: str, **more: object) -> ToolResult:
    return await tool_search(SPECS).run(call(query=query, **more))


async def loaded_names(query: str, **more: object) -> tuple[str, ...]:
    (fact,) = (await search_tools(query, **more)).facts
    assert isinstance(fact, ToolsLoaded)
    return fact.names


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("create an issue on github", "mcp__github__create_issue"),
        ("pull requests", "mcp__github__list_pulls"),
        ("send email message", "mcp__mail__sendMessage"),
        ("database querying", "mcp__db__query"),
        ("meeting", "mcp__calendar__find"),
        ("MCP__DB__QUERY", "mcp__db__query"),
    ],
)
async def test_the_best_match_comes_first(query: str, best: str):
    assert (await loaded_names(query))[0] == best


async def test_at_most_max_results_tools_are_loaded():
    assert len(await loaded_names("repository", max_results=1)) == 1


async def test_tools_can_be_selected_by_name():
    outcome = await search_tools("select: mcp__db__query, mcp__mail__sendMessage,nope")
    assert outcome.facts == (ToolsLoaded(names=("mcp__db__query", "mcp__mail__sendMessage")),)
    text = plain_text(outcome.content)
    assert '"input_schema"' in text
    assert "no deferred tool 'nope'" in text


async def test_an_unknown_tool_is_reported_with_similar_ones():
    outcome = await search_tools("select:github_create_issues")
    assert not outcome.ok
    assert "Similar: mcp__github__create_issue" in plain_text(outcome.content)
    nothing = await search_tools("zzz")
    assert (nothing.ok, nothing.facts) == (False, ())


@given(st.permutations(SPECS))
def test_the_description_does_not_depend_on_the_order(specs: list[ToolSpec]):
    assert tool_search(specs).spec == tool_search(SPECS).spec


def test_the_description_has_a_line_for_each_tool():
    assert "- mcp__mail__sendMessage: Send an e-mail message to somebody" in (
        tool_search(SPECS).spec.description
    )


def test_of_more_than_a_hundred_tools_only_the_servers_are_listed():
    many = [spec(f"mcp__zoo{at % 4}__tool_{at:05}", "does things " * 30) for at in range(101)]
    description = tool_search(many).spec.description
    assert "- zoo1: 25 tools, such as tool_00001, tool_00005, tool_00009" in description
    assert "does things" not in description
    servers = [spec(f"mcp__zoo{at}__tool", "does things " * 30) for at in range(5000)]
    assert len(tool_search(servers).spec.description) < 25_000


@given(st.text())
async def test_any_query_gets_a_result(query: str):
    assert (await search_tools(query)).content


def test_invalid_inputs_are_explained():
    made = tool_search(SPECS)
    assert "query: missing" in (made.invalid({}) or "")
    assert "max_results" in (made.invalid({"query": "x", "max_results": 0}) or "")


async def test_without_deferred_tools_a_search_fails():
    assert not (await tool_search([]).run(call(query="x"))).ok
