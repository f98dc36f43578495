"""Slash commands: what is one, what each reads or asks for, and how it is shown."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.subagents.scripted_threads import LEAD, newest, staged, troupe, turn_of
from tests.senders import TESTER

from mainspring import InvalidInput, Session, tool
from mainspring.capabilities.providers.scripted import ScriptAnswer
from mainspring.config import read_settings
from mainspring.core.model import Request
from mainspring.edges.cli.chat import slash_output
from mainspring.edges.cli.render.printing import Screen
from mainspring.function_tools.wrap import renamed, with_approval
from mainspring.runtime.command_results import (
    AgentsResult,
    ContextResult,
    CostResult,
    PendingCallsResult,
    SkillsResult,
    SlashCommandResult,
    SubmittedResult,
    TextResult,
)
from mainspring.runtime.skills.skill import Skill
from mainspring.runtime.slash_commands import (
    CommandContext,
    ParsedSlashCommand,
    available_commands,
    mode_of,
    parse_command,
    run_command,
    similar_names,
    unescape_message,
)
from mainspring.testing import calls, says

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


def lead(request: Request) -> ScriptAnswer:
    if turn_of(request):
        return says(f"so: {newest(request)}")
    return calls("agent", description="ship it", prompt="part ship", subagent_type="general")


def ship(request: Request) -> ScriptAnswer:
    return says("shipped") if turn_of(request) else calls("deploy", where="prod")


@asynccontextmanager
async def open_waiting_session(folder: Path) -> AsyncGenerator[tuple[Session, CommandContext]]:
    """A session whose subagent waits for a person."""
    async with staged(folder, troupe({"begin": lead, "part ship": ship})) as runtime:
        session = await runtime.start(AGENT, "begin")
        await session.run()
        yield (
            session,
            CommandContext(
                log=session.log, session_id=session.id, agent=AGENT, sender=TESTER, window=1000
            ),
        )


@pytest.mark.parametrize(
    ("message", "meant"),
    [
        ("/help", ParsedSlashCommand("help", "")),
        ("/compact the  names\nand more", ParsedSlashCommand("compact", "the  names\nand more")),
        ("/plugin:name x", ParsedSlashCommand("plugin:name", "x")),
        ("/", ParsedSlashCommand("", "")),
        ("//help", None),
        ("/usr/bin/env is missing", None),
        ("help /me", None),
    ],
)
def test_a_slash_followed_by_a_name_is_parsed_as_a_command(
    message: str, meant: ParsedSlashCommand | None
):
    assert parse_command(message) == meant


@given(st.text(max_size=40))
def test_any_text_can_be_sent_with_an_additional_slash(words: str):
    message = f"/{words}"
    assert parse_command(f"/{message}") is None
    assert unescape_message(f"/{message}") == message


def test_available_commands_are_builtin_and_agent_commands_with_suggestions():
    names = [available_command.name for available_command in available_commands(AGENT)]
    assert names.count("cost") == 1
    assert "inner" not in names
    assert available_commands(AGENT)[-1].usage == "/review FILE"
    assert similar_names("modle", available_commands(AGENT)) == ["mode", "model"]
    assert similar_names("rev", available_commands(AGENT)) == ["review"]
    assert similar_names("zzz", available_commands(AGENT)) == []


async def test_an_approval_of_a_subagent_is_listed_with_its_agent_and_answered(tmp_path: Path):
    async with open_waiting_session(tmp_path) as (session, at):
        listed = await run_command(at, "approve")
        assert isinstance(listed, PendingCallsResult)
        [call] = listed.calls
        assert (call.number, call.path, call.name) == (1, ("general",), "deploy")
        for wrong in ("2 yes", "maybe", "1", "1 perhaps"):
            with pytest.raises(InvalidInput):
                await run_command(at, "approve", wrong)
        sent = await run_command(at, "approve", "yes")
        assert isinstance(sent, SubmittedResult)
        assert sent.is_work
        result = await session.run()
        assert result is not None
        assert "shipped" in result.text
        assert await run_command(at, "approve") == PendingCallsResult(calls=())
        with pytest.raises(InvalidInput, match="nothing waits"):
            await run_command(at, "approve", "yes")


async def test_a_denial_keeps_its_reason_and_always_adds_a_session_rule(tmp_path: Path):
    async with open_waiting_session(tmp_path) as (session, at):
        assert isinstance(await run_command(at, "approve", "1 always"), SubmittedResult)
        await session.run()
        assert "permission.updated" in [event.type for event in await session.events()]
    (tmp_path / "other").mkdir()
    async with open_waiting_session(tmp_path / "other") as (session, at):
        await run_command(at, "approve", "no not on Fridays")
        await session.run()
        events = await session.events()
        assert any(b"not on Fridays" in event.body for event in events)


async def test_cost_context_agents_and_skills_of_a_session_can_be_queried(tmp_path: Path):
    async with open_waiting_session(tmp_path) as (_, at):
        cost = await run_command(at, "cost")
        assert isinstance(cost, CostResult)
        assert cost.turns == 1
        context = await run_command(at, "context")
        assert isinstance(context, ContextResult)
        assert context.parts.total > 0
        agents = await run_command(at, "agents")
        assert isinstance(agents, AgentsResult)
        assert [item.name for item in agents.types] == ["explore", "general", "plan", "verify"]
        [called] = agents.threads
        assert (called.agent, called.status) == ("general", "requires_action")
        skills = await run_command(at, "skills")
        assert isinstance(skills, SkillsResult)
        assert len(skills.skills) == 3
        assert await run_command(at, "clear") is None
        assert await run_command(at, "review") is None


async def test_mode_is_set_by_name_and_plan_includes_its_task(tmp_path: Path):
    async with staged(tmp_path, troupe({"": lambda request: says(newest(request))})) as runtime:
        session = await runtime.start(LEAD)
        at = CommandContext(log=session.log, session_id=session.id, agent=LEAD, sender=TESTER)
        assert isinstance(await run_command(at, "mode"), TextResult)
        for wrong in ("bold", "bubble"):
            with pytest.raises(InvalidInput):
                await run_command(at, "mode", wrong)
        sent = await run_command(at, "plan", "mend it")
        assert isinstance(sent, SubmittedResult)
        assert sent.is_work
        assert await mode_of(session.log, session.id) == "plan"
        result = await session.run()
        assert result is not None
        assert "The permission mode is now plan" in result.text
        assert "end your turn with the plan" in result.text
        assert "mend it" in result.text
        await run_command(at, "mode", "acceptEdits")
        assert await session.run() is None  # nothing to answer yet
        assert await mode_of(session.log, session.id) == "acceptEdits"


async def test_every_command_result_is_printed_as_plain_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    async with open_waiting_session(tmp_path) as (_, at):
        names = ("cost", "context", "agents", "skills", "approve", "mode")
        replies: list[SlashCommandResult | None] = [await run_command(at, name) for name in names]
    notes = Screen(read_settings(environ={"NO_COLOR": "1"}, folder=tmp_path), stderr=True)
    for reply in replies:
        assert reply is not None
        slash_output.print_reply(notes, reply)
    slash_output.print_help(notes, available_commands(AGENT))
    slash_output.print_unknown_command(notes, "modle", available_commands(AGENT))
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
