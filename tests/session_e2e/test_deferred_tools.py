"""Many tools: the model is told the names, and loads what it wants to call."""

from dataclasses import replace
from typing import NoReturn

from msgspec import structs
from tests.retrieval.vector_tables import write_table
from tests.session_e2e.session_setup import Scene, leave

from mainspring.capabilities.providers.scripted import calls
from mainspring.core.events import ToolsLoaded
from mainspring.core.tool import Tool
from mainspring.function_tools.define import tool
from mainspring.runtime.memory.search.vector_settings import set_vectors


def numbered_tool(number: int, *, server: str = "") -> Tool:
    @tool(name=f"{server}tool_{number}")
    async def made(size: int) -> str:
        """Measure the thing. Then say how large it is."""
        return f"{number} is {size} large"

    return made


async def test_server_tools_are_loaded_before_they_are_called(scene: Scene):
    own = [numbered_tool(number) for number in range(5)]
    theirs = [numbered_tool(number, server="mcp__zoo__") for number in range(41)]
    async with scene.play(
        calls("mcp__zoo__tool_7", width=1),
        calls("tool_search", query="select:mcp__zoo__tool_7"),
        calls("mcp__zoo__tool_7", size=3),
        tools=[*own, *theirs],
    ) as play:
        await play.session.permit(leave("mcp__zoo"))
        assert (await play.run()).ok
        first, *_, last = play.model.requests
        offered = {spec.name: spec for spec in first.tools}
        assert {"tool_0", "tool_4", "bash", "tool_search"} <= offered.keys()
        assert not any(name.startswith("mcp__") for name in offered)
        assert "- mcp__zoo__tool_7: Measure the thing\n" in offered["tool_search"].description
        wrong, _, measured = await play.results()
        assert "select:mcp__zoo__tool_7" in wrong
        assert measured == "7 is 3 large"
        assert [spec.name for spec in last.tools][-1] == "mcp__zoo__tool_7"
        assert last.tools[: len(first.tools)] == first.tools
        loads = [event.names for event in await play.events(ToolsLoaded)]
        assert loads == [(), ("mcp__zoo__tool_7",)]
    async with scene.play(go_on=play.session.id, tools=[*own, *theirs]) as play:
        await play.run("and now?")
        assert "mcp__zoo__tool_7" in {spec.name for spec in play.model.requests[0].tools}


async def test_a_few_small_server_tools_are_loaded_at_once_and_later_ones_deferred(
    scene: Scene,
):
    theirs = [numbered_tool(number, server="mcp__zoo__") for number in range(40)]
    async with scene.play(tools=theirs) as play:
        await play.run()
        offered = [spec.name for spec in play.model.requests[0].tools]
        assert "tool_search" not in offered
        assert offered[-40:] == [tool.spec.name for tool in theirs]
    late = numbered_tool(1, server="mcp__late__")
    async with scene.play(go_on=play.session.id, tools=[*theirs, late]) as play:
        await play.run("and now?")
        offered = [spec.name for spec in play.model.requests[0].tools]
        assert "mcp__late__tool_1" not in offered
        assert {"mcp__zoo__tool_39", "tool_search"} <= set(offered)


async def test_large_server_tools_are_deferred_and_stay_deferred(scene: Scene):
    def large(number: int) -> Tool:
        made = numbered_tool(number, server="mcp__zoo__")
        return replace(made, spec=structs.replace(made.spec, description="Measures. " * 20_000))

    async with scene.play(tools=[large(number) for number in range(10)]) as play:
        await play.run()
        assert "mcp__zoo__tool_0" not in {spec.name for spec in play.model.requests[0].tools}
    async with scene.play(go_on=play.session.id, tools=[large(0)]) as play:
        await play.run("and now?")
        assert "mcp__zoo__tool_0" not in {spec.name for spec in play.model.requests[0].tools}


async def test_a_few_own_tools_are_sent_in_full(scene: Scene):
    async with scene.play(tools=[numbered_tool(number) for number in range(40)]) as play:
        await play.run()
        offered = {spec.name for spec in play.model.requests[0].tools}
        assert "tool_39" in offered
        assert "tool_search" not in offered


async def test_of_many_own_tools_the_first_40_are_sent_in_full(scene: Scene):
    async with scene.play(tools=[numbered_tool(number) for number in range(60)]) as play:
        await play.run()
        offered = {spec.name for spec in play.model.requests[0].tools}
        assert "tool_39" in offered
        assert "tool_40" not in offered


def no_endpoint(model: str) -> NoReturn:
    raise AssertionError(model)


async def test_tool_search_uses_the_vector_table(scene: Scene):
    @tool(name="mcp__pets__kitten")
    async def kitten() -> str:
        """Sleeps."""
        return ""

    theirs = [kitten, *(numbered_tool(number, server="mcp__zoo__") for number in range(41))]
    for table in (None, write_table(scene.home / "table.npz")):
        if table is not None:
            set_vectors(scene.home, str(table), no_endpoint)
        async with scene.play(calls("tool_search", query="cats"), tools=theirs) as play:
            await play.run()
            (answer,) = await play.results()
            assert ("mcp__pets__kitten" in answer) == (table is not None)
