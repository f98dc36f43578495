"""Every turn with effects has a snapshot, however it ended."""

from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.harness.session_setup import Stage, always, echo, stage
from tests.harness.test_tool_pipeline import CountingSnapshots
from tests.testing.test_replay import Stop, run_until_killed

from mainspring.capabilities.providers.scripted import Scripted, calls, says
from mainspring.core.events import UserInterrupt, WorkspaceSnapshotted
from mainspring.core.tool import SAFE_READ, Call, Tool, ToolResult, Traits
from mainspring.harness.stop_reasons import Ended


async def snapshots(play: Stage) -> list[str]:
    payloads = [event.payload for event in await play.events()]
    return [payload.snapshot for payload in payloads if isinstance(payload, WorkspaceSnapshotted)]


def dying_tool(name: str, traits: Traits) -> Tool:
    lives = [Stop()]

    async def run(call: Call) -> ToolResult:
        if lives:
            raise lives.pop()
        return ToolResult.text("did it")

    async def found(call: Call) -> ToolResult | None:
        return ToolResult.text("it was done")

    return replace(echo(name), run=run, traits=always(traits), probe=found)


@pytest.mark.parametrize(
    "dies",
    [dying_tool("act", Traits(in_doubt="probe")), dying_tool("read", SAFE_READ)],
    ids=["in", "after"],
)
async def test_effects_before_a_crash_are_in_the_snapshot_of_their_turn(tmp_path: Path, dies: Tool):
    """The worker dies in a call with an effect, or in a read after it."""
    line = calls("act") if dies.spec.name == "act" else calls("echo") + calls("read")
    async with stage(
        tmp_path, Scripted(line, says("ok")), echo(), dies, snapshots=CountingSnapshots()
    ) as play:
        await run_until_killed(play, "go")
        assert len(await snapshots(play)) == 1  # of the beginning
        assert await play.play() == Ended("completed")
        assert len(await snapshots(play)) == 2


async def test_an_interrupted_turn_has_a_snapshot_of_its_effects(tmp_path: Path):
    async def hang(call: Call) -> ToolResult:
        await play.send(UserInterrupt())
        await anyio.sleep_forever()
        return ToolResult.text("never")

    tool = replace(echo("hang"), run=hang)
    async with stage(
        tmp_path, Scripted(calls("hang")), tool, snapshots=CountingSnapshots()
    ) as play:
        with anyio.fail_after(60):
            assert await play.play("go") == Ended("interrupted_tools")
        assert len(await snapshots(play)) == 2
