from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anthropic
import pytest
from anthropic import AsyncAnthropic
from tests.api.agents_api import MODEL, made, served_agents
from tests.api.api_server import Served


@pytest.fixture
async def api(tmp_path: Path) -> AsyncGenerator[Served]:
    async with served_agents(tmp_path) as running:
        yield running


async def test_a_coordinator_pins_the_versions_of_its_agents(acme: AsyncAnthropic):
    writer = await made(acme, name="writer")
    await acme.beta.agents.update(writer.id, system="Write.")
    reader = await made(acme, name="reader")
    lead = await made(
        acme,
        name="lead",
        multiagent={
            "type": "coordinator",
            "agents": [
                {"type": "agent", "id": writer.id, "version": 1},
                reader.id,
                {"type": "self"},
                {"type": "advisor", "model": MODEL},
            ],
        },
    )
    assert lead.multiagent is not None
    roster: list[dict[str, object]] = [
        {"type": "agent", "id": writer.id, "version": 1},
        {"type": "agent", "id": reader.id, "version": 1},
        {"type": "agent", "id": lead.id, "version": 1},
        {"type": "advisor", "model": MODEL},
    ]
    assert lead.multiagent.to_dict() == {"type": "coordinator", "agents": roster}
    renamed = await acme.beta.agents.update(lead.id, name="chief")
    assert renamed.multiagent is not None
    roster[2]["version"] = 2  # it is itself, as it is now
    assert renamed.multiagent.to_dict() == {"type": "coordinator", "agents": roster}
    assert (await acme.beta.agents.update(lead.id, multiagent=None)).multiagent is None


async def test_an_invalid_roster_is_refused(acme: AsyncAnthropic, rival: AsyncAnthropic):
    gone = await made(acme, name="gone")
    await acme.beta.agents.archive(gone.id)
    one = await made(acme, name="one")
    lead = await made(acme, multiagent={"type": "coordinator", "agents": [one.id]})
    refused: list[tuple[list[Any], str]] = [
        ([], "length"),
        (["agent_none"], "no agent agent_none"),
        ([{"type": "agent", "id": one.id, "version": 7}], "no version 7"),
        ([gone.id], "archived"),
        ([lead.id], "multiagent of its own"),
        ([one.id, one.id], "twice"),
        ([{"type": "self"}, {"type": "self"}], "twice"),
        ([one.id] * 21, "length"),
        ([{"type": "advisor", "model": MODEL}] * 2, "one advisor"),
        ([{"type": "advisor", "model": "no-such-model"}], "no model"),
    ]
    for agents, reason in refused:
        with pytest.raises(anthropic.BadRequestError, match=reason):
            await made(acme, multiagent={"type": "coordinator", "agents": agents})
    with pytest.raises(anthropic.BadRequestError, match="no agent"):
        await made(rival, multiagent={"type": "coordinator", "agents": [one.id]})


async def test_the_newer_multiagent_has_defaults_and_is_merged_by_updates(acme: AsyncAnthropic):
    kind = "multiagent_20261001"
    anyone: dict[str, object] = {
        "type": "enabled",
        "inline_agents": {"type": "enabled"},
        "predefined_agents": [],
    }
    one = await made(acme, name="one")
    lead = await made(acme, multiagent={"type": kind})
    assert lead.multiagent is not None
    assert lead.multiagent.to_dict() == {
        "type": kind,
        "advisor": {"type": "disabled"},
        "subagents": anyone,
        "workflows": anyone,
    }
    narrowed = await acme.beta.agents.update(
        lead.id,
        multiagent={
            "type": kind,
            "advisor": {"type": "enabled", "model": MODEL},
            "subagents": {"type": "enabled", "predefined_agents": [one.id, {"type": "self"}]},
            "workflows": {"type": "disabled"},
        },
    )
    closed = await acme.beta.agents.update(
        lead.id,
        multiagent={
            "type": kind,
            "subagents": {"type": "enabled", "inline_agents": {"type": "disabled"}},
            "workflows": None,
        },
    )
    assert narrowed.multiagent is not None
    assert closed.multiagent is not None
    assert closed.version == 3
    assert closed.multiagent.to_dict() == {
        "type": kind,
        "advisor": {"type": "enabled", "model": MODEL},
        "subagents": {
            "type": "enabled",
            "inline_agents": {"type": "disabled"},
            "predefined_agents": [
                {"type": "agent", "id": one.id, "version": 1},
                {"type": "agent", "id": lead.id, "version": 3},
            ],
        },
        "workflows": anyone,
    }
    with pytest.raises(anthropic.BadRequestError, match="at least one"):
        await acme.beta.agents.update(
            lead.id,
            multiagent={
                "type": kind,
                "workflows": {"type": "enabled", "inline_agents": {"type": "disabled"}},
            },
        )
