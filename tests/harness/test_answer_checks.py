"""Checks of an answer, and commands that must have passed after the last edit."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from mainspring import Agent, Runtime, open_runtime, tool
from mainspring.events import HookRan
from mainspring.harness.answer_checks import AnswerCheck, proves
from mainspring.runtime.agent_folder.manifest import read_manifest
from mainspring.testing import Scripted, calls, says


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncGenerator[Runtime]:
    async with open_runtime(store=str(tmp_path / "log.db")) as runtime:
        yield runtime


async def test_a_failing_answer_is_sent_back_twice_and_then_returned_with_its_failed_checks(
    runtime: Runtime,
):
    def broken(text: str) -> str | None:
        raise KeyError("lost")

    check = AnswerCheck(max_chars=20, banned=("Sorry",), must_mention=("six",), citations=True)
    agent = Agent(checks=[check])
    script = Scripted(says("sorry"), says("At six, see [1]."), says("next"), otherwise=says("no"))
    runtime.models.put(agent.model, script)
    session = await runtime.start(agent, "When?")
    result = await session.run()
    assert result is not None
    assert (result.output, dict(result.failed_checks)) == ("At six, see [1].", {})
    await session.send("And now?")
    result = await session.run()
    assert result is not None
    assert result.ok
    assert result.failed_checks.keys() == {"must_mention", "citations"}
    assert len(script.requests) == 5  # two for the first answer, three for the second
    failing = Agent(checks=[broken], model="scripted:other")
    runtime.models.put(failing.model, Scripted(otherwise=says("crash")))
    session = await runtime.start(failing, "When?")
    result = await session.run()
    assert result is not None
    assert result.failed_checks == {"broken": "the check failed: KeyError: 'lost'"}


async def test_after_an_edit_the_required_command_must_pass(runtime: Runtime):
    @tool
    def edit(path: str) -> str:
        """Edit a file."""
        return "done"

    @tool
    def bash(command: str) -> str:
        """Run a command."""
        return "ok"

    agent = Agent(tools=[edit, bash], require_evidence=["make test"])
    script = Scripted(
        calls("bash", command="make test"),
        calls("edit", path="a.py"),
        says("It works."),
        calls("bash", command="make test || true"),
        says("It does work."),
        calls("bash", command="cd src && make test"),
        says("Now it does."),
        says("I only looked."),
    )
    runtime.models.put(agent.model, script)
    session = await runtime.start(agent, "Repair it.")
    result = await session.run()
    assert result is not None
    assert (result.output, dict(result.failed_checks)) == ("Now it does.", {})
    ran = [item.payload for item in await session.events() if isinstance(item.payload, HookRan)]
    assert [item.outcome for item in ran] == ["blocked", "blocked", "ok"]


def test_a_command_line_counts_as_evidence_unless_it_hides_the_exit_status():
    lines = ("pytest -q", "cd a && pytest -q tests", "pytest -q && echo done")
    assert all(proves("pytest -q", line) for line in lines)
    hidden = ("echo pytest -q", "pytest -q || true", "pytest -q | tail", "pytest -q; ls", "pytest")
    assert not any(proves("pytest -q", line) for line in hidden)


def test_agent_yaml_declares_answer_checks_and_required_evidence(tmp_path: Path):
    file = tmp_path / "agent.yaml"
    text = "checks: {max_chars: 9, banned: [a], citations: yes}\nrequire_evidence: [make test]\n"
    file.write_text(text, encoding="utf-8")
    manifest = read_manifest(file)
    assert manifest.findings == ()
    assert manifest.checks == (AnswerCheck(max_chars=9, banned=("a",), citations=True),)
    assert manifest.require_evidence == ("make test",)
