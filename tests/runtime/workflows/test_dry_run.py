"""A dry run goes the way of a real run, and a test of a workflow says where it does not."""

from pathlib import Path

import pytest
from tests.runtime.workflows.fake_steps import FakeSteps, answer, files_of, says, start

from mainspring.core.errors import InvalidInput
from mainspring.log.session_log import SessionLog
from mainspring.runtime.workflows.dry_run import (
    DrySteps,
    WorkflowTest,
    dry_run,
    problems_of,
    recorded_test,
)
from mainspring.runtime.workflows.engine import RunRequest, read_run, run_workflow
from mainspring.runtime.workflows.step_runner import AgentStep, ProgramStep, StepResult

TEXT = """\
name: w
description: a false condition, an early loop end, a gate that rejects, a fan-out
interactive: true
nodes:
  - {id: kind, bash: k}
  - {id: fix, prompt: f, when: "$kind.output == 'bug'", depends_on: [kind]}
  - {id: plan, prompt: p, when: "$kind.output == 'plan'", depends_on: [kind]}
  - {id: work, loop: {prompt: p, until: DONE, max_iterations: 5}, depends_on: [fix]}
  - {id: list, bash: l, depends_on: [work]}
  - {id: each, workflow: child, fan_out: {items: $list.output}, depends_on: [list]}
  - id: gate
    approval: {message: ok?, on_reject: {prompt: again}}
    depends_on: [each]
  - {id: end, prompt: e, depends_on: [gate, plan], trigger_rule: one_success}
"""
CHILD = """\
name: child
description: d
nodes: [{id: look, prompt: $ARGUMENTS}]
"""
OUTPUTS: dict[str, object] = {
    "kind": "bug",
    "work": ["more", "<promise>DONE</promise>"],
    "list": '["a","b"]',
}


async def real_order(log: SessionLog) -> list[str]:
    def agent(step: AgentStep) -> StepResult:
        return says("<promise>DONE</promise>" if step.path == "work/2" else "more")

    def program(step: ProgramStep) -> StepResult:
        return says(str(OUTPUTS[step.path]))

    editors = {"fix", "work/1", "work/2", "each/1/look", "each/2/look", "gate/rework/1"}
    steps = FakeSteps(answer=agent, program=program, editors=editors)
    run_id = await start(log, files_of(TEXT, CHILD))
    await run_workflow(log, run_id, steps)
    await answer(log, run_id, allow=False, text="no")
    await run_workflow(log, run_id, steps)
    await answer(log, run_id)
    state = await run_workflow(log, run_id, steps)
    assert state.status == "completed"
    nodes = sorted((*state.earlier, *state.nodes.values()), key=lambda node: node.end_seq)
    return [f"{node.path} {node.status}" for node in nodes]


async def test_a_dry_run_goes_the_way_of_a_real_run(log: SessionLog):
    files = files_of(TEXT, CHILD)
    steps = DrySteps(files=files, outputs=OUTPUTS)
    gates = {"gate": ["reject no", "approve"]}
    run = await dry_run(log, RunRequest(files=files), steps, gates=gates)
    assert [f"{step.node} {step.status}" for step in run.steps] == await real_order(log)
    [gate] = [step for step in run.steps if step.node == "gate"]
    assert (run.status, gate.decision) == ("completed", "reject, approve")


async def test_without_recorded_outputs_a_dry_run_takes_the_shortest_way(log: SessionLog):
    files = files_of(TEXT, CHILD)
    run = await dry_run(
        log, RunRequest(files=files), DrySteps(files=files, outputs={"kind": "bug"})
    )
    assert run.status == "completed"
    assert [step.node for step in run.steps if "/" in step.node] == [
        *("work/1", "each/1/look", "each/2/look"),
    ]


async def test_a_test_says_how_a_workflow_differs(log: SessionLog):
    files = files_of(TEXT, CHILD)
    test = WorkflowTest(
        workflow="w",
        outputs={**OUTPUTS, "fix": {"failed": "no network"}},
        status="completed",
        nodes={"fix": "completed", "plan": "skipped"},
        order=("kind", "gate", "fix"),
    )
    request = RunRequest(files=files)
    run = await dry_run(log, request, DrySteps(files=files, outputs=test.outputs))
    assert problems_of(test, run) == [
        "it is failed, not completed: fix: no network",
        "fix is failed (no network), not completed",
        "order: fix does not end there",
    ]
    steps = DrySteps(files=files, outputs=OUTPUTS)
    with pytest.raises(InvalidInput, match="maybe is not a decision"):
        await dry_run(log, request, steps, gates={"gate": "maybe"})


async def test_a_run_becomes_a_test_that_passes(log: SessionLog, tmp_path: Path):
    await real_order(log)
    [row] = await log.sessions(limit=1)
    test = recorded_test(await read_run(log, row.id))
    files = files_of(TEXT, CHILD)
    steps = DrySteps(files=files, outputs=test.outputs)
    run = await dry_run(log, RunRequest(files=files), steps)
    assert problems_of(test, run) == []
