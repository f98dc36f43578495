"""Runs of workflows on a real log, with agents and programs that are functions."""

import pytest
from tests.runtime.workflows.fake_steps import (
    PERSON,
    FakeSteps,
    answer,
    control,
    files_of,
    play,
    says,
    start,
    statuses,
)

from mainspring.core.errors import InvalidInput
from mainspring.log.session_log import SessionLog
from mainspring.runtime.workflows.engine import fork_run, read_run, run_workflow
from mainspring.runtime.workflows.step_runner import AgentStep, ProgramStep, StepResult

SIX = """\
name: six
description: the sample
nodes:
  - {id: inspect, bash: 'echo "inspect ok"'}
  - {id: plan, prompt: Plan after $inspect.output for $ARGUMENTS, depends_on: [inspect]}
  - {id: validate, bash: 'echo "validate ok"', depends_on: [plan]}
  - {id: review-copy, prompt: Review $plan.output, depends_on: [validate]}
  - {id: review-risk, prompt: Review the risk, depends_on: [validate]}
  - {id: summarize, prompt: Summarize $review-copy.output, depends_on: [review-copy, review-risk]}
"""


async def test_nodes_run_in_the_order_of_their_dependencies_with_their_values(log: SessionLog):
    steps = FakeSteps()
    _, state = await play(log, files_of(SIX), steps, arguments="a fix")
    assert state.status == "completed"
    assert steps.ran[:3] == ["inspect", "plan", "validate"]
    assert steps.ran[-1] == "summarize"
    assert steps.prompts["plan"] == "Plan after ran inspect for a fix"
    assert steps.prompts["summarize"] == "Summarize did review-copy"


async def test_a_failed_node_skips_what_needs_it_and_the_run_fails(log: SessionLog):
    text = """\
name: w
description: d
nodes:
  - {id: bad, bash: exit 1}
  - {id: after, prompt: never, depends_on: [bad]}
  - {id: always, prompt: cleanup, depends_on: [bad], trigger_rule: all_done}
"""
    failed = StepResult(status="failed", error="exit status 1")
    steps = FakeSteps(program=lambda _: failed)
    run_id, state = await play(log, files_of(text), steps)
    assert statuses(state) == {"bad": "failed", "after": "skipped", "always": "completed"}
    assert state.status == "failed"
    steps.program = lambda _: says("fine now")
    await control(log, run_id, "resume")
    state = await run_workflow(log, run_id, steps)
    assert state.status == "completed"
    assert steps.ran == ["bad", "always", "bad", "after", "always"]


async def test_a_condition_is_false_unless_it_holds(log: SessionLog):
    text = """\
name: w
description: d
nodes:
  - {id: kind, bash: echo bug}
  - {id: fix, prompt: fix, depends_on: [kind], when: "$kind.output == 'bug'"}
  - {id: plan, prompt: plan, depends_on: [kind], when: "$kind.output == 'feature'"}
  - {id: odd, prompt: odd, depends_on: [kind], when: "$kind.output == bug"}
"""
    _, state = await play(log, files_of(text), FakeSteps(program=lambda _: says("bug")))
    assert statuses(state) == {
        "kind": "completed",
        "fix": "completed",
        "plan": "skipped",
        "odd": "skipped",
    }


async def test_a_node_is_tried_again_as_its_retry_says(log: SessionLog):
    text = """\
name: w
description: d
nodes:
  - {id: call, bash: 'true', retry: {max_attempts: 2, delay_ms: 1000, on_error: all}}
"""
    results = [StepResult(status="failed", error="a"), says("third time")]
    results.insert(0, results[0])
    steps = FakeSteps(program=lambda _: results.pop(0))
    _, state = await play(log, files_of(text), steps)
    assert state.status == "completed"
    assert state.nodes["call"].attempt == 3
    assert [item.error for item in state.earlier] == ["a", "a"]
    assert steps.waits == [1, 2]


LOOP = """\
name: w
description: d
nodes:
  - id: work
    loop: {prompt: "go on from $LOOP_PREV_OUTPUT", until: DONE, max_iterations: 4}
  - {id: after, prompt: "after $work.output", depends_on: [work]}
"""


async def test_a_loop_ends_with_its_signal(log: SessionLog):
    def reply(step: AgentStep) -> StepResult:
        return says("all <promise>DONE</promise>" if step.path == "work/2" else "not yet")

    steps = FakeSteps(answer=reply)
    _, state = await play(log, files_of(LOOP), steps)
    assert steps.ran == ["work/1", "work/2", "after"]
    assert steps.prompts["work/2"] == "go on from not yet"
    assert state.nodes["work"].reason == "complete after 2"


async def test_a_loop_that_is_never_complete_fails(log: SessionLog):
    _, state = await play(log, files_of(LOOP), FakeSteps())
    assert state.status == "failed"
    assert "4 iterations without the signal 'DONE'" in (state.nodes["work"].error or "")


async def test_a_group_repeats_its_nodes_until_its_check_passes(log: SessionLog):
    text = """\
name: w
description: d
nodes:
  - {id: first, bash: 'true'}
  - id: fix
    depends_on: [first]
    loop_group:
      until_bash: test "$check.output" = ok
      max_iterations: 3
      nodes:
        - {id: edit, prompt: "edit after $LOOP_PREV.check.output and $first.output"}
        - {id: check, bash: make test, depends_on: [edit]}
"""
    outputs = {"fix/1/check": "broken", "fix/2/check": "ok"}

    def run(step: ProgramStep) -> StepResult:
        if step.path.endswith("/until"):
            passed = step.variables["MS_VALUE_0"] == "ok"
            return StepResult(status="completed" if passed else "failed")
        return says(outputs.get(step.path, "1st"))

    steps = FakeSteps(program=run)
    _, state = await play(log, files_of(text), steps)
    assert state.status == "completed"
    assert state.nodes["fix"].output == "ok"
    assert steps.prompts["fix/1/edit"] == "edit after  and 1st"
    assert steps.prompts["fix/2/edit"] == "edit after broken and 1st"


CHILD = """\
name: child
description: d
inputs: {topic: {required: true}}
nodes:
  - {id: look, prompt: "look at $INPUTS.topic with $ARGUMENTS"}
"""


async def test_a_fan_out_runs_a_workflow_for_each_item(log: SessionLog):
    parent = """\
name: parent
description: d
nodes:
  - {id: list, bash: 'true'}
  - id: each
    workflow: child
    fan_out: {items: $list.output, as: topic, max_parallel: 2}
    depends_on: [list]
  - {id: end, prompt: $each.output, depends_on: [each]}
"""
    steps = FakeSteps(
        program=lambda _: says('["a","b"]'),
        answer=lambda step: (
            StepResult(status="failed", error="no")
            if step.prompt == "look at b with all"
            else says(f"saw {step.prompt}")
        ),
    )
    _, state = await play(log, files_of(parent, CHILD), steps, arguments="all")
    assert state.status == "completed"
    assert state.nodes["each"].output == (
        '["saw look at a with all",{"archon_failed":true,"error":"look: no","status":"failed"}]'
    )


async def test_an_included_workflow_sees_only_its_inputs(log: SessionLog):
    parent = """\
name: parent
description: d
nodes:
  - {id: list, bash: 'true'}
  - {id: inner, include: child, with: {topic: $list.output}, depends_on: [list]}
  - {id: end, prompt: $inner.output, depends_on: [inner]}
"""
    steps = FakeSteps(program=lambda _: says("cats"))
    _, state = await play(log, files_of(parent, CHILD), steps)
    assert steps.prompts["inner/look"] == "look at cats with "
    assert steps.prompts["end"] == "did inner/look"
    assert state.status == "completed"


async def test_a_cancel_node_ends_the_run(log: SessionLog):
    text = """\
name: w
description: d
nodes:
  - {id: look, bash: 'true'}
  - {id: stop, cancel: "nothing to do: $look.output", depends_on: [look]}
  - {id: never, prompt: x, depends_on: [stop]}
"""
    steps = FakeSteps()
    run_id, state = await play(log, files_of(text), steps)
    assert state.status == "cancelled"
    assert state.result is not None
    assert state.result.error is not None
    assert state.result.error.message == "nothing to do: ran look"
    assert steps.ran == ["look"]
    assert (await run_workflow(log, run_id, steps)).status == "cancelled"


async def test_a_run_ends_at_its_step_limit(log: SessionLog):
    run_id, state = await play(log, files_of(SIX), FakeSteps(), max_steps=2)
    assert state.status == "failed"
    assert sorted(state.nodes) == ["inspect", "plan"]
    await control(log, run_id, "resume")
    assert (await run_workflow(log, run_id, FakeSteps())).status == "completed"


async def test_inputs_are_checked_before_anything_runs(log: SessionLog):
    with pytest.raises(InvalidInput, match="child needs the input topic"):
        await start(log, files_of(CHILD))
    with pytest.raises(InvalidInput, match="has no input tpic; known: topic"):
        await start(log, files_of(CHILD), inputs={"tpic": 1})


async def test_the_same_key_is_the_same_run(log: SessionLog):
    steps = FakeSteps()
    first, _ = await play(log, files_of(SIX), steps, run_key="monday")
    second, _ = await play(log, files_of(SIX), steps, run_key="monday")
    assert first == second
    assert len(steps.ran) == 6


async def test_a_fork_begins_with_the_finished_nodes_of_another_run(log: SessionLog):
    steps = FakeSteps()
    run_id, _ = await play(log, files_of(SIX), steps)
    steps.ran.clear()
    fork_id = await fork_run(log, run_id, "summarize", PERSON)
    state = await run_workflow(log, fork_id, steps)
    assert steps.ran == ["summarize"]
    assert state.status == "completed"
    original = (await read_run(log, run_id)).nodes["summarize"]
    assert state.nodes["summarize"].session_id != original.session_id


async def test_a_person_can_retry_and_skip_nodes_but_skip_no_approval(log: SessionLog):
    text = """\
name: w
description: d
nodes:
  - {id: flaky, bash: 'true'}
  - {id: gate, approval: {message: ok?}, depends_on: [flaky]}
  - {id: end, prompt: x, depends_on: [gate]}
"""
    steps = FakeSteps(program=lambda _: StepResult(status="failed", error="no"))
    run_id, state = await play(log, files_of(text), steps)
    assert state.status == "failed"
    steps.program = lambda _: says("yes")
    await control(log, run_id, "retry", "flaky")
    state = await run_workflow(log, run_id, steps)
    assert state.status == "paused"
    await control(log, run_id, "skip", "gate")
    state = await run_workflow(log, run_id, steps)
    assert (state.status, "end" in state.nodes) == ("paused", False)
    await answer(log, run_id)
    assert (await run_workflow(log, run_id, steps)).status == "completed"


async def test_a_paused_run_starts_nothing_until_it_is_resumed(log: SessionLog):
    steps = FakeSteps()
    run_id = await start(log, files_of(SIX))
    await control(log, run_id, "pause")
    assert (await run_workflow(log, run_id, steps)).status == "paused"
    assert steps.ran == []
    await control(log, run_id, "resume")
    assert (await run_workflow(log, run_id, steps)).status == "completed"


async def test_a_cancelled_run_starts_nothing(log: SessionLog):
    steps = FakeSteps()
    run_id = await start(log, files_of(SIX))
    await control(log, run_id, "cancel")
    assert (await run_workflow(log, run_id, steps)).status == "cancelled"
    assert steps.ran == []
