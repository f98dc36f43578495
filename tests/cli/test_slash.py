"""Slash commands: what is one, what each reads or asks for, and how it is shown."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.crew.troupe import LEAD, newest, staged, troupe, turn_of

from mainspring import InvalidInput, Session, calls, says, tool
from mainspring.capabilities.providers.scripted import Answer
from mainspring.capabilities.tools.wrap import renamed, with_approval
from mainspring.config import read_settings
from mainspring.core.model import Request
from mainspring.edges.cli import slash
from mainspring.edges.cli.render import Screen
from mainspring.runtime.commands import At, Typed, known, near, perform, typed, unescaped
from mainspring.runtime.modes import mode_of
from mainspring.runtime.replies import (
    Agents,
    Context,
    Cost,
    Reply,
    Said,
    Sent,
    Skills,
    Waiting,
)
from mainspring.runtime.skills.skill import Skill
from mainspring.testing.senders import TESTER

SKILLS = (
    Skill(name="review", description="Reviews.", file="", folder="", hash="", argument_hint="FILE"),
    Skill(name="cost", description="Taken.", file="", folder="", hash=""),
    Skill(name="inner", description="For models.", file="", folder="", hash="", for_user=False),
)


@tool
def _deploy(where: str) -> str:
    """Deploy."""
    return f"deployed to {where}"


AGENT = replace(LEAD, skills=SKILLS, tools=[with_approval(renamed(_deploy, "deploy"))])


def lead(request: Request) -> Answer:
    if turn_of(request):
        return says(f"so: {newest(request)}")
    return calls("agent", description="ship it", prompt="part ship", subagent_type="general")


def ship(request: Request) -> Answer:
    return says("shipped") if turn_of(request) else calls("deploy", where="prod")


@asynccontextmanager
async def waiting(folder: Path) -> AsyncGenerator[tuple[Session, At], None]:
    """A session whose subagent waits for a person."""
    async with staged(folder, troupe({"begin": lead, "part ship": ship})) as runtime:
        session = await runtime.start(AGENT, "begin")
        await session.run()
        yield (
            session,
            At(log=session.log, session_id=session.id, agent=AGENT, sender=TESTER, window=1000),
        )


@pytest.mark.parametrize(
    ("message", "meant"),
    [
        ("/help", Typed("help", "")),
        ("/compact the  names\nand more", Typed("compact", "the  names\nand more")),
        ("/plugin:name x", Typed("plugin:name", "x")),
        ("/", Typed("", "")),
        ("//help", None),
        ("/usr/bin/env is missing", None),
        ("help /me", None),
    ],
)
def test_a_message_is_a_command_if_it_begins_with_one_slash_and_a_name(
    message: str, meant: Typed | None
):
    assert typed(message) == meant


@given(st.text(max_size=40))
def test_whatever_is_typed_can_be_sent_with_one_more_slash(words: str):
    message = f"/{words}"
    assert typed(f"/{message}") is None
    assert unescaped(f"/{message}") == message


def test_commands_are_ours_and_the_agents_and_near_ones_are_named():
    names = [each.name for each in known(AGENT)]
    assert names.count("cost") == 1
    assert "inner" not in names
    assert known(AGENT)[-1].usage == "/review FILE"
    assert near("modle", known(AGENT)) == ["mode", "model"]
    assert near("rev", known(AGENT)) == ["review"]
    assert near("zzz", known(AGENT)) == []


async def test_an_approval_of_a_subagent_is_listed_with_who_asks_and_answered(tmp_path: Path):
    async with waiting(tmp_path) as (session, at):
        listed = await perform(at, "approve")
        assert isinstance(listed, Waiting)
        [call] = listed.calls
        assert (call.number, call.path, call.name) == (1, ("general",), "deploy")
        for wrong in ("2 yes", "maybe", "1", "1 perhaps"):
            with pytest.raises(InvalidInput):
                await perform(at, "approve", wrong)
        sent = await perform(at, "approve", "yes")
        assert isinstance(sent, Sent)
        assert sent.is_work
        result = await session.run()
        assert result is not None
        assert "shipped" in result.text
        assert await perform(at, "approve") == Waiting(calls=())
        with pytest.raises(InvalidInput, match="nothing waits"):
            await perform(at, "approve", "yes")


async def test_a_refusal_has_a_reason_and_always_is_a_rule_of_the_session(tmp_path: Path):
    async with waiting(tmp_path) as (session, at):
        assert isinstance(await perform(at, "approve", "1 always"), Sent)
        await session.run()
        kinds = [event.type for event in await session.events()]
        assert "permission.updated" in kinds
    (tmp_path / "other").mkdir()
    async with waiting(tmp_path / "other") as (session, at):
        await perform(at, "approve", "no not on Fridays")
        await session.run()
        events = await session.events()
        assert any(b"not on Fridays" in event.body for event in events)


async def test_what_a_session_took_and_is_made_of_can_be_asked(tmp_path: Path):
    async with waiting(tmp_path) as (_, at):
        cost = await perform(at, "cost")
        assert isinstance(cost, Cost)
        assert cost.turns == 1
        context = await perform(at, "context")
        assert isinstance(context, Context)
        assert context.parts.total > 0
        agents = await perform(at, "agents")
        assert isinstance(agents, Agents)
        assert [each.name for each in agents.types] == ["explore", "general", "plan", "verify"]
        [called] = agents.threads
        assert (called.agent, called.status) == ("general", "requires_action")
        skills = await perform(at, "skills")
        assert isinstance(skills, Skills)
        assert len(skills.skills) == 3
        assert await perform(at, "clear") is None
        assert await perform(at, "review") is None


async def test_a_mode_is_set_by_name_and_plan_takes_its_task_along(tmp_path: Path):
    async with staged(tmp_path, troupe({"": lambda request: says(newest(request))})) as runtime:
        session = await runtime.start(LEAD)
        at = At(log=session.log, session_id=session.id, agent=LEAD, sender=TESTER)
        assert isinstance(await perform(at, "mode"), Said)
        for wrong in ("bold", "bubble"):
            with pytest.raises(InvalidInput):
                await perform(at, "mode", wrong)
        sent = await perform(at, "plan", "mend it")
        assert isinstance(sent, Sent)
        assert sent.is_work
        assert await mode_of(session.log, session.id) == "plan"
        result = await session.run()
        assert result is not None
        assert "The permission mode is plan" in result.text
        assert "end your turn with the plan" in result.text
        assert "mend it" in result.text
        await perform(at, "mode", "acceptEdits")
        assert await session.run() is None  # nothing to answer yet
        assert await mode_of(session.log, session.id) == "acceptEdits"


async def test_every_reply_can_be_shown_in_plain_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    async with waiting(tmp_path) as (_, at):
        names = ("cost", "context", "agents", "skills", "approve", "mode")
        replies: list[Reply | None] = [await perform(at, name) for name in names]
    notes = Screen(read_settings(environ={"NO_COLOR": "1"}, folder=tmp_path), stderr=True)
    for reply in replies:
        assert reply is not None
        slash.show(notes, reply)
    slash.show_help(notes, known(AGENT))
    slash.show_unknown(notes, "modle", known(AGENT))
    told = capsys.readouterr().err
    assert "\x1b" not in told
    for words in (
        "1 turn, ",
        "newest turn",
        "general",
        "requires action",
        "(project, not trusted: text only) Reviews.",
        "1  general > deploy prod",
        "mode default: ",
        "/review FILE",
        "there is no /modle: nothing was sent. did you mean /mode or /model?",
    ):
        assert words in told
