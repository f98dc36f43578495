"""What MCP servers ask, change and offer in the middle of a session."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.session_e2e.session_setup import (
    MODEL,
    Scene,
    at_work,
    read_by_model,
    read_results,
    spoken,
)

from mainspring.capabilities.providers.scripted import ScriptAnswer, Scripted, calls, says
from mainspring.core.events import ApprovalRequested, BudgetSettled, ContextAdded
from mainspring.core.model import Request
from mainspring.wiring.settings_files import trust

ROOT = Path(__file__).parents[2]
SERVER = ROOT / "tests/mcp/asking_server.py"


def with_server(scene: Scene, era: str) -> None:
    scene.write("server.py", SERVER.read_text())
    server = {"command": "python3", "args": ["server.py", era], "env": {"TOKEN": "sk-hush-1234567"}}
    scene.write(".mcp.json", json.dumps({"mcpServers": {"air": server}}))
    scene.user(permissions={"allow": ["mcp__air"]})
    trust(scene.workspace, home=scene.home)


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_question_of_a_server_is_an_approval_and_the_call_continues_with_the_answer(
    scene: Scene, era: str
) -> None:
    with_server(scene, era)
    async with scene.play(calls("mcp__air__book"), says("booked")) as play:
        waits = await play.run()
        assert waits.reason == "requires_action"
        [request] = await play.events(ApprovalRequested)
        assert request.question == "The MCP server air asks: Which seat?"
        [call_id] = waits.waiting_for
        await play.session.answer(call_id, "allow", form={"seat": "aisle"})
        assert (await play.run()).ok
        [booked] = read_results(play.model.requests[-1])
    assert booked == "booked {'action': 'accept', 'content': {'seat': 'aisle'}}"
    assert scene.read("calls.txt") == ("book\nbook\n" if era == "modern" else "book\n")


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_an_answer_to_a_server_is_valid_in_another_process(scene: Scene, era: str) -> None:
    with_server(scene, era)
    async with scene.play(calls("mcp__air__book")) as play:
        [call_id] = (await play.run()).waiting_for
        session_id = play.session.id
    async with scene.play(says("booked"), go_on=session_id) as play:
        await play.session.answer(call_id, "allow", form={"seat": "window"})
        assert (await play.run()).ok
        [booked] = read_results(play.model.requests[-1])
        assert len(await play.events(ApprovalRequested)) == 1
    assert booked == "booked {'action': 'accept', 'content': {'seat': 'window'}}"
    assert scene.read("calls.txt") == "book\nbook\n"  # a modern server goes on where it was


@pytest.mark.slow
async def test_a_call_that_asks_continues_after_any_number_of_kills(
    scene: Scene,
) -> None:
    with_server(scene, "modern")
    async with scene.runtime() as runtime:
        runtime.models.put(MODEL, Scripted())
        session_id = (await runtime.start(at_work(), "tour")).id
    for number, seat in enumerate(("aisle", "window", "aisle"), start=1):
        await run_and_kill(scene, session_id)
        async with scene.runtime() as runtime:
            runtime.models.put(MODEL, Scripted())
            session = await runtime.resume(at_work(), session_id)
            requests = [item for item in await session.events()
                        if isinstance(item.payload, ApprovalRequested)]  # fmt: skip
            assert len(requests) == number
            asked = requests[-1].payload
            assert isinstance(asked, ApprovalRequested)
            assert asked.tool_use_id is not None
            await session.answer(asked.tool_use_id, "allow", form={"seat": seat})
    async with scene.play(says("done"), go_on=session_id) as play:
        assert (await play.run()).ok
        [toured] = read_results(play.model.requests[-1])
    assert toured == "toured aisle window aisle"
    assert scene.read("calls.txt") == "tour\n" * 4
    stored = b"".join(file.read_bytes() for file in scene.home.rglob("*") if file.is_file())
    assert b"eyJhbGciOiJIUzI1NiJ9" not in stored


async def run_and_kill(scene: Scene, session_id: str) -> None:
    """Another process runs the session until it waits for a person."""
    command = [sys.executable, "-m", "tests.mcp.asked_worker"]
    command += [str(scene.home), str(scene.workspace), session_id]
    with anyio.fail_after(60):
        async with await anyio.open_process(command, cwd=ROOT, stderr=None) as worker:
            assert worker.stdout is not None
            assert await worker.stdout.receive() == b"waits\n"
            worker.kill()


async def test_tools_that_change_during_a_session_are_announced_after_the_prefix(
    scene: Scene,
) -> None:
    with_server(scene, "legacy")
    async with scene.play(calls("mcp__air__grow"), says("so it is")) as play:
        assert (await play.run()).ok
        before, after = play.model.requests
        notes = [item.text for item in await play.events(ContextAdded) if item.source == "mcp"]
        assert "Removed: mcp__air__grow." in notes[0]
        assert "harvest" not in notes[0]  # nobody has accepted it yet
        assert any("it is new since you first used the server" in item for item in scene.warnings)
    assert after.tools == before.tools
    assert after.system == before.system
    assert notes[0] in spoken(after)


async def test_accepted_new_tools_are_appended_to_the_tool_list(scene: Scene) -> None:
    with_server(scene, "legacy")

    def accept(_: Request) -> ScriptAnswer:
        (scene.home / ".mainspring/mcp-tools.json").unlink()  # as `mcp accept` does
        return calls("mcp__air__grow")

    async with scene.play(accept, calls("mcp__air__harvest"), says("done")) as play:
        assert (await play.run()).ok
        before, after, last = play.model.requests
        assert read_results(last)[-1] == "harvested"
    assert after.tools[: len(before.tools)] == before.tools
    assert [tool.name for tool in after.tools[len(before.tools) :]] == ["mcp__air__harvest"]
    assert "New: mcp__air__harvest." in spoken(after)


async def test_a_message_can_mention_resources_and_prompts(scene: Scene) -> None:
    with_server(scene, "modern")
    async with scene.play(says("hello"), says("ok"), says("ok")) as play:
        assert (await play.run()).ok
        assert (await play.run("Look at @air:note://one, and at @air:note://two.")).ok
        assert (await play.run("/mcp__air__say_hello Ada how='very politely'")).ok
        one, two, prompt = [
            item.text for item in await play.events(ContextAdded) if item.source == "mcp"
        ]
        assert one.startswith("Resource note://one of the MCP server air:")
        assert "the first note" in one
        assert two.startswith("Resource note://two of the MCP server air could not be read:")
        assert prompt == "Greet {'how': 'very politely', 'who': 'Ada'}"
        assert prompt in spoken(play.model.requests[-1])
        assert "sk-hush" not in read_by_model(play.model.requests)


async def test_an_agent_gets_its_resources_with_the_first_message_and_reads_others_if_allowed(
    scene: Scene,
) -> None:
    with_server(scene, "modern")
    tools = ("*", "read_mcp_resource")
    agent = replace(at_work(), built_ins=tools, resources=("air:note://one",))
    async with scene.runtime() as runtime:
        model = Scripted(
            calls("read_mcp_resource", server="air", uri="note://one"),
            calls("read_mcp_resource", server="sea"),
            says("read"),
            says("again"),
        )
        runtime.models.put(MODEL, model)
        session = await runtime.start(agent, "look")
        with anyio.fail_after(60):
            assert (await session.run()) is not None
            await session.send("and now?")
            assert (await session.run()) is not None
        added = [e.payload.text for e in await session.events()
                 if isinstance(e.payload, ContextAdded) and e.payload.source == "mcp"]  # fmt: skip
    assert len(added) == 1
    assert added[0].startswith("Resource note://one of the MCP server air:")
    one, none = read_results(model.requests[2])
    assert "the first note" in one
    assert "There is no MCP server sea: air." in none
    assert "read_mcp_resource" in {tool.name for tool in model.requests[0].tools}
    async with scene.play(says("hello")) as play:  # `*` does not include it
        assert (await play.run()).ok
        assert "read_mcp_resource" not in {tool.name for tool in play.model.requests[0].tools}


@pytest.mark.parametrize("is_allowed", [True, False])
async def test_a_server_learns_the_workspace_root_and_may_sample_only_if_allowed(
    scene: Scene, is_allowed: bool
) -> None:
    with_server(scene, "legacy")
    entry = json.loads(scene.read(".mcp.json"))["mcpServers"]["air"]
    servers = {"air": {**entry, "sampling": is_allowed}, "again": entry}  # the same content
    scene.write(".mcp.json", json.dumps({"mcpServers": servers}))
    trust(scene.workspace, home=scene.home)
    steps = [calls("mcp__air__ask_model"), *([says("42")] if is_allowed else []), says("done")]
    async with scene.play(*steps) as play:
        assert (await play.run()).ok
        [answer] = read_results(play.model.requests[-1])
        spent = await play.events(BudgetSettled)
        names = {tool.name for tool in play.model.requests[0].tools}
    answers = json.loads(answer)
    assert answers["roots"] == {"roots": [{"uri": scene.workspace.as_uri(), "name": "workspace"}]}
    assert not [name for name in names if name.startswith("mcp__again__")]
    if is_allowed:
        assert answers["model"]["content"] == {"type": "text", "text": "42"}
        assert play.model.requests[1].max_tokens == 50
        assert play.model.requests[1].tools == ()
        assert len(spent) == 3  # two turns and the reply to the server
    else:
        assert answers["model"]["code"] == -32601
        assert len(spent) == 2


async def test_unavailable_servers_are_reported_and_the_session_continues(scene: Scene) -> None:
    half = SERVER.read_text().replace('method == "tools/list"', 'method == "tools/none"')
    scene.write("half.py", half)
    lies = "import sys; sys.stdin.readline(); print('<html>busy</html>'); sys.exit(1)"
    servers = {
        "unreachable": {"url": "http://127.0.0.1:9/mcp"},
        "half": {"command": "python3", "args": ["half.py", "modern"]},
        "lying": {"command": "python3", "args": ["-c", lies]},
        "missing": {"command": "no-such-program"},
        "odd": {"url": "ftp://127.0.0.1/"},
    }
    scene.write(".mcp.json", json.dumps({"mcpServers": servers}))
    trust(scene.workspace, home=scene.home)
    async with scene.play(says("fine")) as play:
        assert (await play.run()).ok
        read = read_by_model(play.model.requests)
    for name in servers:
        assert f"The MCP server {name} is not available: " in read
        assert any(f"MCP server {name}: " in warning for warning in scene.warnings)
