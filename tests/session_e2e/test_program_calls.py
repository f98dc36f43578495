"""A program that the model wrote calls tools: each through the gates, only its result shown."""

import pytest
from tests.session_e2e.session_setup import DONE, Scene, leave

from mainspring.capabilities.providers.scripted import calls
from mainspring.core.content import plain_text
from mainspring.core.events import ProgramCallEnded, ProgramCallStarted, WorkspaceSnapshotted
from mainspring.core.tool import Tool
from mainspring.function_tools.define import tool

pytest.importorskip("pydantic_monty")
PRICES = {"lamp": 19, "desk": 120, "chair": 45}


def price_tool(asked: list[str]) -> Tool:
    @tool
    async def price(item: str) -> str:
        """What an item costs."""
        asked.append(item)
        return f"{PRICES[item]} secret-{item}"

    return price


SUM = """
total = 0
for item in ["lamp", "desk", "chair"]:
    total += int(call_tool("price", item=item).split()[0])
total
"""


async def test_a_program_calls_tools_and_the_model_sees_only_its_result(scene: Scene):
    asked: list[str] = []
    async with scene.play(calls("python", code=SUM), DONE, tools=[price_tool(asked)]) as play:
        await play.session.permit(leave("price"))
        assert (await play.run()).ok
        assert await play.results() == ["184"]
        assert asked == ["lamp", "desk", "chair"]
        started = await play.events(ProgramCallStarted)
        assert [(event.name, event.input, event.gate) for event in started] == [
            ("price", {"item": item}, "rule") for item in asked
        ]
        ended = await play.events(ProgramCallEnded)
        assert [plain_text(event.content) for event in ended] == [
            f"{PRICES[item]} secret-{item}" for item in asked
        ]
        assert "secret-lamp" not in str(play.model.requests[-1])


ATTEMPTS = """
for name, inputs in [
    ("price", {"item": "lamp"}),
    ("price", {"size": 3}),
    ("bash", {"command": "touch made"}),
    ("write", {"file_path": "made", "content": "x"}),
    ("python", {"code": "1"}),
    ("tool_search", {"query": "x"}),
    ("ask_user", {"questions": []}),
    ("nothing", {}),
]:
    try:
        print(name, "said", call_tool(name, **inputs))
    except RuntimeError as error:
        print(name, "refused:", str(error).split(chr(10))[0])
"""


async def test_program_calls_that_need_approval_are_denied_or_invalid_are_refused(scene: Scene):
    asked: list[str] = []
    scene.user(permissions={"deny": ["price"]})
    async with scene.play(calls("python", code=ATTEMPTS), DONE, tools=[price_tool(asked)]) as play:
        assert (await play.run()).ok
        (text,) = await play.results()
        assert text.count("refused:") == 8
        assert "said" not in text
        assert asked == []
        assert not (scene.workspace / "made").exists()
        assert await play.events(ProgramCallStarted) == []


async def test_a_change_by_a_program_needs_a_rule_and_is_snapshotted(scene: Scene):
    code = 'call_tool("write", file_path="made.txt", content="x")'
    async with scene.play(calls("python", code=code), DONE, mode="acceptEdits") as play:
        assert (await play.run()).ok
        assert scene.read("made.txt") == "x"
        assert len(await play.events(WorkspaceSnapshotted)) == 2
