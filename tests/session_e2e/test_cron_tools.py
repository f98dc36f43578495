"""The cron tools: an agent schedules prompts, with a person's approval, within a budget, and never
past what its folder forbids.
"""

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import anyio
import pytest
from tests.harness.killable_sandbox_worker import settings_of

from mainspring.capabilities.providers.scripted import Scripted, calls, says
from mainspring.core.errors import InvalidInput
from mainspring.core.model import ToolResultBlock
from mainspring.core.ports import ScheduledPrompt
from mainspring.harness.limits import Limits
from mainspring.harness.permissions.policy import Mode
from mainspring.runtime.agent import Agent
from mainspring.runtime.run_options import RunOptions
from mainspring.wiring.builtin_tools import folder_schedules
from mainspring.wiring.runtime_assembly import open_runtime

AGENT = Agent(
    name="reporter",
    model="scripted:demo",
    built_ins=("cron_create", "cron_delete", "cron_list", "read"),
    limits=Limits(max_cost_usd=Decimal("0.25")),
)
DAILY = ScheduledPrompt(
    id="", cron="0 7 * * 1-5", timezone="Europe/Berlin", prompt="What broke?", budget_usd=Decimal(2)
)


async def play(tmp_path: Path, model: Scripted, *, mode: Mode = "bypassPermissions") -> str:
    """Why the run ended."""
    options = RunOptions(workspace=tmp_path / "w", mode=mode)
    with anyio.fail_after(60):
        async with open_runtime(settings_of(tmp_path), options=options) as runtime:
            runtime.models.put(AGENT.model, model)
            session = await runtime.start(AGENT, "Report every morning.")
            ended = await session.run()
            assert ended is not None
            return ended.reason


def last_result(model: Scripted) -> str:
    [part] = [
        part
        for part in model.requests[-1].messages[-1].content
        if isinstance(part, ToolResultBlock)
    ]
    return str(part.content)


async def test_an_agent_schedules_lists_and_deletes_a_prompt(tmp_path: Path):
    (tmp_path / "w").mkdir()
    create = calls("CronCreate", cron="0 7 * * 1-5", timezone="Europe/Berlin", prompt="What broke?")
    model = Scripted(create, calls("cron_list"), says("Done."))
    assert await play(tmp_path, model) == "completed"
    listed = last_result(model)
    assert "What broke?" in listed
    assert "0.25 US dollars a session" in listed, "no more than the agent itself may spend"
    schedule_id = listed[listed.index("depl_") :].split(":")[0]
    model = Scripted(
        calls("cron_delete", schedule_id="depl_other"),
        calls("cron_delete", schedule_id=schedule_id),
        calls("cron_list"),
        says("Done."),
    )
    assert await play(tmp_path, model) == "completed"
    assert "there is no scheduled prompt 'depl_other'" in str(model.requests[1].messages)
    assert "Nothing is scheduled." in last_result(model)


async def test_scheduling_a_prompt_asks_a_person(tmp_path: Path):
    (tmp_path / "w").mkdir()
    model = Scripted(calls("cron_create", cron="0 7 * * *", prompt="What broke?"))
    assert await play(tmp_path, model, mode="default") == "requires_action"


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"cron": "at dawn, daily", "prompt": "x"}, "Not scheduled"),
        ({"cron": "0 7 * * *", "prompt": "x", "timezone": "Mars/Olympus"}, "Not scheduled"),
        ({"cron": "0 7 * * *", "prompt": " "}, "prompt"),
        ({"cron": "0 7 * * *", "prompt": "x", "budget_cents": 0}, "budget_cents"),
    ],
)
async def test_an_invalid_schedule_is_explained_and_not_saved(
    tmp_path: Path, given: dict[str, object], word: str
):
    (tmp_path / "w").mkdir()
    model = Scripted(calls("cron_create", **given), calls("cron_list"), says("Done."))
    await play(tmp_path, model)
    assert word in str(model.requests[1].messages)
    assert "Nothing is scheduled." in last_result(model)


async def test_a_schedule_cannot_escape_the_restrictions_of_the_folder(tmp_path: Path):
    settings = tmp_path / "w" / ".claude" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"permissions": {"deny": ["Read(secret)"]}}))
    model = Scripted(calls("cron_create", cron="0 7 * * *", prompt="Read secret."), says("No."))
    await play(tmp_path, model)
    assert "permissions.deny" in last_result(model)


async def test_a_call_repeated_after_a_crash_schedules_nothing_twice(tmp_path: Path):
    folder = tmp_path / "w"
    folder.mkdir()
    async with open_runtime(settings_of(tmp_path)) as runtime:
        records = runtime.log.store.records
        schedules = folder_schedules(settings_of(tmp_path), records, AGENT, folder)
        first = await schedules.create(DAILY, key="call-1")
        assert await schedules.create(DAILY, key="call-1") == first
        assert [item.id for item in await schedules.list()] == [first.id]
        elsewhere = folder_schedules(settings_of(tmp_path), records, AGENT, tmp_path)
        assert await elsewhere.list() == []
        with pytest.raises(InvalidInput, match="no scheduled prompt"):
            await elsewhere.delete(first.id)
        unlimited = folder_schedules(
            settings_of(tmp_path), records, replace(AGENT, limits=Limits()), folder
        )
        assert (await unlimited.create(DAILY, key="call-2")).budget_usd == 2
