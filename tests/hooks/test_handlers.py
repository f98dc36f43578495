"""Hooks that are tools, models, agents or functions."""

from collections.abc import Mapping

import pytest
from tests.hooks.hook_project import Project, at, before, configured

from mainspring.capabilities.hooks import HandlerPorts
from mainspring.capabilities.hooks.handlers import AskModel
from mainspring.core.errors import MainspringError
from mainspring.core.hook import EMPTY_HOOK_RESULT, HookResult


def answering_model(answer: str, heard: list[tuple[str, str | None]] | None = None) -> AskModel:
    async def ask(prompt: str, model: str | None) -> str:
        if heard is not None:
            heard.append((prompt, model))
        return answer

    return ask


async def run_with_model(
    project: Project, handler: Mapping[str, object], ask: AskModel | None
) -> HookResult:
    ports = HandlerPorts(environment=project.surroundings(), ask_model=ask, run_hook_agent=ask)
    return await project.runner(configured("PreToolUse", handler), ports=ports).run(before())


@pytest.mark.parametrize("kind", ["prompt", "agent"])
async def test_a_model_that_answers_no_denies(project: Project, kind: str):
    heard: list[tuple[str, str | None]] = []
    handler = {"type": kind, "prompt": "Is this safe? $ARGUMENTS", "model": "small"}
    hook_result = await run_with_model(
        project, handler, answering_model('{"ok": false, "reason": "no"}', heard)
    )
    assert (hook_result.permission, hook_result.reason) == ("deny", "no")
    [(prompt, model)] = heard
    assert model == "small"
    assert prompt.startswith('Is this safe? {"session_id":"sesn_1"')


async def test_a_prompt_without_a_placeholder_gets_the_event_appended(project: Project):
    heard: list[tuple[str, str | None]] = []
    hook_result = await run_with_model(
        project, {"type": "prompt", "prompt": "Safe?"}, answering_model('{"ok": true}', heard)
    )
    assert hook_result.blocked is False
    assert '"hook_event_name":"PreToolUse"' in heard[0][0]


@pytest.mark.parametrize("kind", ["prompt", "agent"])
@pytest.mark.parametrize("answer", ["Yes, of course!", '```json\n{"ok": true}\n```', None])
async def test_a_model_without_a_valid_answer_denies(
    project: Project, kind: str, answer: str | None
):
    ask = None if answer is None else answering_model(answer)
    hook_result = await run_with_model(project, {"type": kind, "prompt": "Safe?"}, ask)
    assert hook_result.permission == "deny"
    assert f"hook {kind}: Safe?" in (hook_result.reason or "")


async def test_an_mcp_tool_is_called_with_fields_of_the_event(project: Project):
    heard: list[object] = []

    async def call_tool(server: str, tool: str, given: Mapping[str, object]) -> str:
        heard.append((server, tool, given))
        return '{"decision": "block", "reason": "scanned"}'

    given = {"a": ["${tool_input.path}", 1], "b": {"c": "${tool_input.n}-${no.such}"}, "d": True}
    handler = {"type": "mcp_tool", "server": "s", "tool": "t", "input": given}
    ports = HandlerPorts(environment=project.surroundings(), call_tool=call_tool)
    runner = project.runner(configured("PreToolUse", handler), ports=ports)
    assert (await runner.run(before("write", path="/x", n=[1]))).reason == "scanned"
    assert heard == [("s", "t", {"a": ["/x", 1], "b": {"c": "[1]-"}, "d": True})]


async def test_a_failing_or_missing_mcp_tool_denies(project: Project):
    async def call_tool(_server: str, _tool: str, _given: Mapping[str, object]) -> str:
        raise MainspringError("the server is down")

    config = configured("PreToolUse", {"type": "mcp_tool", "server": "s", "tool": "t"})
    around = project.surroundings()
    for ports in (
        HandlerPorts(environment=around, call_tool=call_tool),
        HandlerPorts(environment=around),
    ):
        hook_result = await project.runner(config, ports=ports).run(before())
        assert hook_result.permission == "deny"
        assert "hook mcp__s__t " in (hook_result.reason or "")


async def test_a_reminder_hook_adds_its_text_to_the_context(project: Project):
    runner = project.runner(configured("PreToolUse", {"type": "remind", "text": "!"}))
    assert (await runner.run(before())).context == ("!",)
    assert await runner.run(at("Stop")) == EMPTY_HOOK_RESULT
