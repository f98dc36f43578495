"""Skills called by users, by the files they are about, by types of subagents; and kept."""

from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.harness.session_setup import Stage, echo, stage
from tests.runtime.skills.skill_sessions import (
    FACTS,
    agent,
    decisions,
    found,
    results,
    site,
    uses,
    written,
)

from mainspring.core.content import TextBlock, plain_text
from mainspring.core.errors import InvalidInput
from mainspring.core.events import ContextAdded, ContextCompacted, SkillUsed
from mainspring.core.model import Request
from mainspring.core.model_facts import ModelFacts
from mainspring.core.tool import Call, Tool, ToolResult
from mainspring.runtime.agent import skill_folders
from mainspring.runtime.agent_folder.folder_instructions import skills_for_path
from mainspring.runtime.settings.pinned_policy import reading_rules
from mainspring.runtime.skills.skill import Skill
from mainspring.runtime.skills.skill_body import (
    refusing_runner,
    run_embedded_commands,
    split_commands,
)
from mainspring.runtime.skills.skill_command import expand_command
from mainspring.runtime.skills.substitution import SkillSubstitution, typed_text
from mainspring.runtime.subagent import BUILT_IN_SUBAGENTS, Subagent
from mainspring.testing import Scripted, calls, says


@settings(max_examples=50)
@given(st.text(alphabet="!`\n a", max_size=60))
def test_split_commands_preserves_the_text(body: str):
    assert "".join(piece.text for piece in split_commands(body)) == body


async def test_a_text_without_commands_gets_only_substitutions():
    skill = Skill(name="a", description="", file="", folder="", hash="")
    text = await run_embedded_commands(
        "KEY=!`no` $0", SkillSubstitution("x", skill, FACTS), refusing_runner("never")
    )
    assert text == "KEY=!`no` x"


async def test_a_user_invokes_a_skill_by_its_name(tmp_path: Path):
    written(tmp_path, "deploy", "allowed-tools: Bash(make:*)\n", body="Deploy $0.")
    skills = found(tmp_path)
    expanded = await expand_command("/deploy staging now", skills=skills, skill_facts=FACTS)
    assert expanded is not None
    blocks, used = expanded
    text = plain_text(blocks)
    assert "<command-name>/deploy</command-name>" in text
    assert "<command-args>staging now</command-args>" in text
    assert "Deploy staging." in text
    assert (used.by, used.allowed_tools) == ("user", ("Bash(make:*)",))
    assert typed_text(blocks) == "/deploy staging now"
    assert typed_text((TextBlock("words"),)) == "words"
    for words in ("deploy it", "/usr/bin/env is missing", "/ what", "// note"):
        assert await expand_command(words, skills=skills, skill_facts=FACTS) is None


async def test_an_unknown_command_is_reported_with_suggestions(tmp_path: Path):
    written(tmp_path, "deploy")
    written(tmp_path, "legacy", "user-invocable: false\n")
    skills = found(tmp_path)
    with pytest.raises(InvalidInput, match=r"no command /deplyo; did you mean /deploy\?"):
        await expand_command("/deplyo staging", skills=skills, skill_facts=FACTS)
    with pytest.raises(InvalidInput, match="only the agent can use"):
        await expand_command("/legacy", skills=skills, skill_facts=FACTS)


async def test_a_user_invokes_a_forked_skill_that_the_model_may_not(tmp_path: Path):
    written(tmp_path, "audit", "context: fork\ndisable-model-invocation: true\n", "Audit $0.")

    def answer(request: Request):
        said = plain_text(tuple(p for p in request.messages[0].content if isinstance(p, TextBlock)))
        if "Audit src." in said:
            return says("All well.")
        is_first = len(request.messages) == 1
        return calls("skill", name="audit", arguments="src") if is_first else says("done")

    async with site(tmp_path, Scripted(otherwise=answer)) as played:
        lead = agent(found(tmp_path), BUILT_IN_SUBAGENTS)
        expanded = await expand_command("/audit src", skills=lead.skills, skill_facts=FACTS)
        assert expanded is not None
        session = await played.runtime.start(lead)
        await session.send(expanded[0], skill=expanded[1].name)
        with anyio.fail_after(60):
            await session.run()
        assert "All well." in results(await session.events())[-1]


def test_skills_with_paths_are_offered_for_matching_files(tmp_path: Path):
    written(tmp_path, "styles", "paths: 'web/**/*.{css,scss}'\n")
    written(tmp_path, "any")
    bring = skills_for_path(found(tmp_path))
    [section] = bring("web/a/b.scss")
    assert section.source == "skill:styles"
    assert "The skill styles applies to this file: Does styles." in section.text
    assert bring("src/main.py") == []


async def test_files_of_skills_may_be_read_in_any_location(tmp_path: Path):
    place = written(tmp_path, "deploy")
    lead = agent(found(tmp_path))
    assert skill_folders(lead) == [place]
    reading = echo("read")
    model = Scripted(
        calls("read", file_path=str(place / "a.md")) + calls("read", file_path=str(tmp_path / "b"))
    )
    async with site(tmp_path, model, *reading_rules(lead)) as played:
        session = await played.played(replace(lead, tools=[reading]), "read")
        events = await session.events()
    assert [decision for decision, _ in decisions(events)] == ["allow", "ask"]


async def test_a_subagent_starts_with_the_full_text_of_its_skills(tmp_path: Path):
    written(tmp_path, "style", body="Two spaces, never tabs.")
    kind = Subagent(name="writer", description="Writes.", prompt="Write.", skills=("style", "no"))
    prompts: list[str] = []

    def answer(request: Request):
        prompts.append("\n".join(request.system))
        is_lead = "Write." not in prompts[-1]
        if is_lead and len(request.messages) == 1:
            return calls("agent", subagent_type="writer", description="x", prompt="Go.")
        return says("done")

    async with site(tmp_path, Scripted(otherwise=answer)) as played:
        session = await played.played(agent(found(tmp_path), (kind,)), "write")
        events = await session.events()
    assert "Two spaces, never tabs." in prompts[1]
    assert "Two spaces" not in prompts[0]
    assert [(used.name, used.by) for used in uses(events)] == [("style", "agent")]


def noisy_tool(text: str) -> Tool:
    """What the tool `skill` does, without a folder."""

    async def run(call: Call) -> ToolResult:
        used = SkillUsed(name="style", hash="0", by="model", tool_use_id=call.id)
        return ToolResult((TextBlock(text),), facts=(used,))

    return replace(echo("skill"), run=run)


async def test_a_skill_in_use_is_restored_after_a_compaction(tmp_path: Path):
    text = "Two spaces, never tabs. " * 20
    small = ModelFacts(id="scripted:test", window=20_000, max_output=2_000)
    steps = [calls("echo", x=f"{at} {'word ' * 1500}") for at in range(12)]
    model = Scripted(calls("skill", name="style"), *steps, otherwise=says("done"))
    async with stage(tmp_path, model, echo(), noisy_tool(text), facts=small) as played:
        with anyio.fail_after(60):
            await played.play("go")
        events = await played.events()
        await _is_seen(played, text)
    kinds = [type(event.payload) for event in events]
    added = [item.payload for item in events if isinstance(item.payload, ContextAdded)]
    assert kinds.index(ContextCompacted) < kinds.index(ContextAdded)
    assert {item.source for item in added} == {"skill style"}


async def _is_seen(played: Stage, text: str) -> None:
    context = await played.context()
    assert any(text in str(message) for message in context.thread.transcript.upcoming())
