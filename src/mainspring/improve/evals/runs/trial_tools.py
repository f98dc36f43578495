"""The tools of a trial that differ from the agent's: recorded results, faults, and services that
exist only in the case."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio

from mainspring.core.errors import InvalidInput
from mainspring.core.model import ToolSpec
from mainspring.core.tool import SAFE_READ, Call, Tool, ToolResult, Traits
from mainspring.harness.authorizer import AllowAll
from mainspring.harness.toolbox import Toolbox
from mainspring.improve.evals.suite import ENCODER, Case, FakeService, ToolFault
from mainspring.improve.evals.suites.case_recording import CaseRecording, call_key
from mainspring.runtime.definition_files.scopes import PartLocation
from mainspring.runtime.session_context import SetupRequest, ToolboxFactory
from mainspring.runtime.skills.skill import Skill
from mainspring.runtime.skills.skill_file import read_skill

NOT_RECORDED = "This call was not recorded, and tools do not run in an offline trial."
_STATUS = {"429": "HTTP 429 Too Many Requests", "500": "HTTP 500 Internal Server Error"}
_OBJECT: dict[str, object] = {"type": "object"}


def trial_toolbox(
    factory: ToolboxFactory, case: Case, recording: CaseRecording | None
) -> ToolboxFactory:
    """The agent's toolbox with the changes of the case."""
    if recording is None and not case.faults:
        return factory
    counts: Counter[str] = Counter()

    @asynccontextmanager
    async def open_toolbox(setup: SetupRequest) -> AsyncGenerator[Toolbox, None]:
        async with factory(setup) as toolbox:
            tools = list(toolbox.tools)
            if recording is not None:
                tools = [_replay_tool(tool, recording, case.masks) for tool in tools]
                toolbox = replace(toolbox, authorizer=AllowAll())  # nothing has an effect
            tools = [_with_faults(tool, case.faults, counts) for tool in tools]
            yield replace(toolbox, tools=tools)

    return open_toolbox


def _replay_tool(tool: Tool, recording: CaseRecording, masks: Sequence[str]) -> Tool:
    calls = {
        call_key(call.tool, call.input, masks): call
        for call in reversed(recording.calls)
        if call.tool == tool.spec.name
    }

    async def run(call: Call) -> ToolResult:
        match = calls.get(call_key(tool.spec.name, dict(call.input), masks))
        if match is None:
            return ToolResult.text(NOT_RECORDED, ok=False, error="unavailable")
        return ToolResult.text(match.result, ok=match.ok, error=None if match.ok else "failed")

    return Tool(spec=tool.spec, run=run, traits=tool.traits, invalid=tool.invalid)


def _with_faults(tool: Tool, faults: Sequence[ToolFault], counts: Counter[str]) -> Tool:
    tool_faults = [fault for fault in faults if fault.tool == tool.spec.name]
    if not tool_faults:
        return tool
    earlier: list[ToolResult] = []

    async def run(call: Call) -> ToolResult:
        counts[tool.spec.name] += 1
        number = counts[tool.spec.name]
        fault = next((item for item in tool_faults if number in item.calls), None)
        if fault is None:
            earlier.append(await tool.run(call))
            return earlier[-1]
        return await _run_with_fault(tool, call, fault, earlier)

    return replace(tool, run=run)


async def _run_with_fault(
    tool: Tool, call: Call, fault: ToolFault, earlier: Sequence[ToolResult]
) -> ToolResult:
    match fault.fault:
        case "429" | "500":
            return ToolResult.text(_STATUS[fault.fault], ok=False, error="failed")
        case "timeout":
            await anyio.sleep(fault.seconds)
            return ToolResult.text("The call timed out.", ok=False, error="timed_out")
        case "slow":
            await anyio.sleep(fault.seconds)
            return await tool.run(call)
        case "stale":
            return earlier[-1] if earlier else ToolResult.text("")
        case "cut_off":
            result = await tool.run(call)
            text = "".join(getattr(block, "text", "") for block in result.content)
            return ToolResult.text(text[: len(text) // 2], ok=result.ok, error=result.error)


def case_skills(place: Path, case: Case) -> list[Skill]:
    """Write the case's skills as files that the agent may read but not change. Blocks.

    Raises: InvalidInput: one of them is not a valid skill.
    """
    skills: list[Skill] = []
    for name, text in case.skills.items():
        file = place / "skills" / name / "SKILL.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        skill, findings = read_skill(file, PartLocation(place / "skills", "project"), name)
        if skill is None:
            raise InvalidInput(f"case {case.id}: skill {name}: {findings[-1].what}")
        skills.append(skill)
    return skills


def service_tool(service: FakeService) -> Tool:
    async def run(call: Call) -> ToolResult:
        arguments = ENCODER.encode(dict(call.input)).decode()
        answer = service.answers.get(arguments, service.answers.get("*"))
        if answer is None:
            return ToolResult.text(
                f"{service.tool} has no answer for {arguments}", ok=False, error="failed"
            )
        return ToolResult.text(answer)

    spec = ToolSpec(
        name=service.tool,
        description=service.description,
        input_schema=service.input_schema or _OBJECT,
    )
    traits = SAFE_READ if service.is_read_only else Traits()
    return Tool(spec=spec, run=run, traits=lambda _: traits)
