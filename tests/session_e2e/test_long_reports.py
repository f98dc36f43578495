"""The X-ray of a session by page: the same as of the whole log, whatever its length."""

from pathlib import Path

import pytest
from tests.harness.session_setup import echo

from mainspring import Agent, open_runtime
from mainspring.core.content import TextBlock
from mainspring.core.events import AgentMessage
from mainspring.log.session_lease import hold_session
from mainspring.runtime.session import xrays
from mainspring.runtime.session.xrays import read_shots, read_shots_between
from mainspring.service.sessions.session_reports import MAX_EVENTS
from mainspring.testing import Scripted, calls, says

MODEL = "anthropic:claude-sonnet-5"
CALLS = 5


@pytest.mark.parametrize("filler", [0, pytest.param(MAX_EVENTS, marks=pytest.mark.slow)])
async def test_each_page_of_model_calls_is_a_part_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filler: int
):
    model = Scripted(
        *(calls("look", path=f"{number}.txt") for number in range(CALLS - 1)), says("Done.")
    )
    agent = Agent(name="helper", model=MODEL, tools=[echo("look")])
    async with open_runtime(store=str(tmp_path / "store.db")) as runtime:
        runtime.models.put(MODEL, model)
        session = await runtime.start(agent, "look around")
        await session.run()
        if filler:
            async with hold_session(runtime.log, session.id) as writer:
                text = AgentMessage(content=(TextBlock("more"),))
                for _ in range(filler // 1000):
                    await writer.append(*[text] * 1000)
        else:
            monkeypatch.setattr(xrays, "_EVENTS_AT_ONCE", 3)
        row = await runtime.log.session(session.id)
        shots = await read_shots(runtime.log, row)
        assert len(shots) == CALLS
        for first in range(1, CALLS + 2):
            for last in range(first, CALLS + 2):
                part, has_more = await read_shots_between(runtime.log, row, first, last)
                assert part == shots[first - 1 : last]
                assert has_more is (last < CALLS)
            if filler:
                break
