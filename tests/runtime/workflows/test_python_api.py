"""Workflows from Python, with the fields of nodes that need a real session."""

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from mainspring import Agent, InvalidInput, ProjectWorkflows, open_workflows
from mainspring.core import clock
from mainspring.core.model import Delta, Model, Reply, Request, TextDelta, ToolResultBlock, User
from mainspring.runtime.subagent import Subagent
from mainspring.testing import Scripted, calls, says

BUILT_INS = ("read", "write", "bash")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@asynccontextmanager
async def opened(
    folder: Path, monkeypatch: pytest.MonkeyPatch, model: Model, text: str, **agent: object
) -> AsyncGenerator[ProjectWorkflows]:
    """The workflows of a folder that has one, trusted."""
    home = folder.parent / "home"
    (folder / "workflows").mkdir()
    home.mkdir(exist_ok=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(folder)
    (folder / "workflows/w.yaml").write_text(text)
    helper = Agent(name="helper", model="m", built_ins=BUILT_INS, memory="off", **agent)  # pyright: ignore[reportArgumentType]
    async with open_workflows(helper, model=model) as workflows:
        workflow = workflows.files.find("w")
        workflows.files.pin(workflow, workflows.files.collect(workflow), clock.now())
        yield workflows


def named(nodes: str) -> str:
    return f"name: w\ndescription: One.\ninteractive: true\nnodes:\n{nodes}"


async def test_a_program_runs_answers_and_cancels_workflows(
    project: Path, monkeypatch: pytest.MonkeyPatch
):
    text = named(
        "  - {id: write, prompt: 'write it'}\n"
        "  - {id: gate, approval: {message: 'Good?'}, depends_on: [write]}\n"
        "  - {id: end, prompt: 'end of $write.output', depends_on: [gate]}\n"
    )
    model = Scripted(says("a draft"), says("published"), otherwise=says("again"))
    async with opened(project, monkeypatch, model, text) as workflows:
        run = await workflows.run("w", key="monday")
        assert (run.status, [gate.question for gate in run.gates]) == ("paused", ["Good?"])
        assert (await workflows.run("w", key="monday")).id == run.id
        assert (await workflows.resume(run.id)).status == "paused"
        with pytest.raises(InvalidInput, match="choose approve, reject"):
            await workflows.answer(run.id, "perhaps")
        await workflows.answer(run.id, "approve")
        ended = await workflows.resume(run.id)
        assert (ended.status, ended.output) == ("completed", "published")
        other = await workflows.run("w")
        cancelled = await workflows.cancel(other.id, "no longer needed")
        assert (cancelled.status, cancelled.error) == ("cancelled", "no longer needed")
        Path("workflows/w.yaml").write_text(text.replace("Good?", "Fine?"))
        assert (await workflows.show(run.id)).changed_since
        with pytest.raises(InvalidInput, match="not trusted as it is now"):
            await workflows.run("w")


def results(request: Request) -> str:
    return "\n".join(
        str(block.content)
        for message in request.messages
        if isinstance(message, User)
        for block in message.content
        if isinstance(block, ToolResultBlock)
    )


async def test_hooks_of_a_node_deny_and_add_text_but_allow_nothing(
    project: Path, monkeypatch: pytest.MonkeyPatch
):
    def answer(event: str, matcher: str, **specific: object) -> dict[str, object]:
        fields = {"hookEventName": event, **specific}
        return {event: [{"matcher": matcher, "response": {"hookSpecificOutput": fields}}]}

    refuse = answer("PreToolUse", "Write", permissionDecision="deny", permissionDecisionReason="no")
    allow = answer("PreToolUse", "Bash", permissionDecision="allow")
    remind = answer("PostToolUse", "Read", additionalContext="check the date")
    text = named(
        f"  - {{id: a, prompt: go, hooks: {json.dumps(refuse | remind)}}}\n"
        f"  - {{id: b, prompt: go, hooks: {json.dumps(allow)}, depends_on: [a]}}\n"
    )
    (project / "notes").write_text("on Tuesday")
    script = Scripted(
        calls("write", file_path="x", content="1"),
        calls("read", file_path="notes"),
        says("done"),
        calls("bash", command="curl http://example.org"),
        otherwise=says("end"),
    )
    async with opened(project, monkeypatch, script, text) as workflows:
        run = await workflows.run("w")
    assert not (project / "x").exists()
    assert "no" in results(script.requests[1])
    assert "check the date" in str(script.requests[2])
    assert (run.status, run.nodes[0].status) == ("paused", "completed")  # a person is asked


async def test_a_node_has_the_agent_that_it_names_and_the_tools_that_it_declares(
    project: Path, monkeypatch: pytest.MonkeyPatch
):
    reader = Subagent(
        name="reader", description="Reads.", prompt="You read.", tools=("Read", "Bash")
    )
    text = named(
        "  - {id: a, prompt: go, agent: reader, denied_tools: [Bash]}\n"
        "  - {id: b, prompt: go, agent: nobody, depends_on: [a]}\n"
    )
    model = Scripted(otherwise=says("read"))
    async with opened(project, monkeypatch, model, text, subagents=[reader]) as workflows:
        run = await workflows.run("w")
    [request] = model.requests
    names = {tool.name for tool in request.tools}
    assert "read" in names
    assert not names & {"write", "bash"}
    assert "You read." in str(request.system)
    assert run.error == "b: there is no agent nobody; there are: reader"


class Silent:
    """A model that never answers."""

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        await anyio.sleep_forever()
        yield TextDelta(request.model)


async def test_an_agent_that_is_silent_for_too_long_fails(
    project: Path, monkeypatch: pytest.MonkeyPatch
):
    text = named("  - {id: a, prompt: go, idle_timeout: 50}\n")
    async with opened(project, monkeypatch, Silent(), text) as workflows:
        run = await workflows.run("w")
    assert (run.status, run.error) == (
        "failed",
        "a: timed out: nothing happened for its idle_timeout",
    )


async def test_a_node_gets_only_the_mcp_servers_that_it_declares_and_its_runner_has(
    project: Path, monkeypatch: pytest.MonkeyPatch
):
    server = {"command": sys.executable, "args": ["-c", "raise SystemExit(7)"]}
    (project / "servers.json").write_text(json.dumps({"mcpServers": {"notes": server}}))
    text = named("  - {id: a, prompt: go, mcp: servers.json}\n")
    async with opened(project, monkeypatch, Scripted(otherwise=says("x")), text) as workflows:
        run = await workflows.run("w")
        assert run.error == "a: the agent has no MCP server notes"
        (project / "servers.json").write_text("{}")  # a file that a workflow names is trusted too
        with pytest.raises(InvalidInput, match="not trusted as it is now"):
            await workflows.run("w")


async def test_a_gate_that_waits_and_the_end_of_a_run_run_notification_hooks(
    project: Path, monkeypatch: pytest.MonkeyPatch
):
    note = project.parent / "home" / "told"
    hook = {"type": "command", "command": f"cat >> {note}; echo >> {note}"}
    settings = {"hooks": {"Notification": [{"hooks": [hook]}]}}
    place = project.parent / "home" / ".claude"
    place.mkdir(parents=True)
    (place / "settings.json").write_text(json.dumps(settings))
    text = named("  - {id: gate, approval: {message: 'Good?'}}\n")
    async with opened(project, monkeypatch, Scripted(), text) as workflows:
        run = await workflows.run("w")
        await workflows.resume(run.id)  # it waits as before: nothing new
        await workflows.answer(run.id, "approve")
        await workflows.resume(run.id)
    told = [json.loads(line) for line in note.read_text().splitlines() if line]
    assert [item["notification_type"] for item in told] == ["workflow_waiting", "workflow_ended"]
    assert told[0]["message"] == "workflow w waits for you: Good?"
