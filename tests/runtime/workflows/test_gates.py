"""A gate opens for a valid answer to what it shows, and for nothing else."""

import pytest
from tests.runtime.workflows.fake_steps import (
    PERSON,
    FakeSteps,
    answer,
    control,
    files_of,
    play,
    says,
)

from mainspring.core.content import TextBlock
from mainspring.core.events import ApprovalAnswered, UserMessage
from mainspring.log.session_log import SessionLog
from mainspring.runtime.workflows.engine import fork_run, read_run, run_workflow
from mainspring.runtime.workflows.run_files import RunFiles
from mainspring.runtime.workflows.run_state import RunState

GATE = "approval: {message: ok?, decisions: [{id: approve}, {id: later}]}"
TOP = """\
name: w
description: d
interactive: true
nodes:
  - {id: check, bash: c}
  - {id: gate, GATE, depends_on: [check]}
  - {id: end, prompt: "$gate.output", depends_on: [gate]}
"""
GROUP = """\
name: w
description: d
interactive: true
nodes:
  - id: group
    loop_group:
      until_bash: done
      max_iterations: 2
      nodes: [{id: check, bash: c}, {id: gate, GATE, depends_on: [check]}]
  - {id: end, prompt: "$group.output", depends_on: [group]}
"""
FAN_OUT = """\
name: w
description: d
interactive: true
nodes:
  - {id: list, bash: l}
  - {id: each, workflow: child, fan_out: {items: $list.output}, depends_on: [list]}
  - {id: end, prompt: "$each.output", depends_on: [each]}
"""
CHILD = TOP.replace("name: w", "name: child").replace("$gate.output", "done")
LOOP = """\
name: w
description: d
interactive: true
nodes:
  - id: work
    loop: {prompt: p, until: DONE, max_iterations: 3, interactive: true, gate_message: ok?}
  - {id: end, prompt: "$work.output", depends_on: [work]}
"""
PLACES = {"top": TOP, "group": GROUP, "fan-out": FAN_OUT, "loop": LOOP}


def files(place: str, kind: str) -> RunFiles:
    gate = GATE if kind == "decision" else "approval: {message: ok?}"
    texts = [PLACES[place], *([CHILD] if place == "fan-out" else [])]
    return files_of(*(text.replace("GATE", gate) for text in texts))


def new_steps() -> FakeSteps:
    return FakeSteps(program=lambda step: says('["a"]' if step.path == "list" else "fine"))


async def is_shut(log: SessionLog, run_id: str, steps: FakeSteps) -> RunState:
    state = await run_workflow(log, run_id, steps)
    assert state.status == "paused"
    assert not any(path == "end" or path.endswith("/end") for path in state.nodes)
    return state


async def give(log: SessionLog, run_id: str, kind: str, *, is_loop: bool = False) -> None:
    if kind == "reject":
        await answer(log, run_id, allow=False, text="no")
    else:
        choice = "approve" if is_loop else "later" if kind == "decision" else None
        await answer(log, run_id, choice=choice)


@pytest.mark.parametrize("kind", ["approve", "reject", "decision"])
@pytest.mark.parametrize("place", list(PLACES))
async def test_only_a_valid_answer_opens_a_gate(log: SessionLog, place: str, kind: str):
    steps = new_steps()
    run_id, state = await play(log, files(place, kind), steps, run_key="one")
    assert state.status == "paused"
    await is_shut(log, run_id, steps)  # a restart
    again, _ = await play(log, files(place, kind), steps, run_key="one")
    assert again == run_id  # a second run is the same one
    await is_shut(log, run_id, steps)
    for words in ("approve", "yes, go on", "later"):
        await log.submit(run_id, UserMessage(content=(TextBlock(words),)), sender=PERSON)
    await is_shut(log, run_id, steps)
    for node in ("gate", "group", "each", "work"):
        await control(log, run_id, "skip", node)
    await control(log, run_id, "resume")
    await is_shut(log, run_id, steps)

    stale = state.open_approvals[0]
    await give(log, run_id, kind, is_loop=place == "loop")
    steps.workspace = "commit 2"  # what the person saw is no longer so
    await is_shut(log, run_id, steps)
    late = ApprovalAnswered(approval_id=stale.id, decision="allow", choice="approve")
    await log.submit(run_id, late, sender=PERSON)
    unknown = ApprovalAnswered(approval_id="aprv_unknown", decision="allow")
    await log.submit(run_id, unknown, sender=PERSON)
    state = await is_shut(log, run_id, steps)
    if kind == "decision" and place != "loop":
        odd = ApprovalAnswered(
            approval_id=state.open_approvals[-1].id, decision="allow", choice="x"
        )
        await log.submit(run_id, odd, sender=PERSON)
        state = await is_shut(log, run_id, steps)
        steps.workspace = "commit 3"
        state = await is_shut(log, run_id, steps)

    [gate] = state.open_approvals
    evidence = {item.title: item.text for item in gate.request.subject.evidence}
    assert evidence["workspace"] == steps.workspace
    await give(log, run_id, kind, is_loop=place == "loop")
    twice = ApprovalAnswered(approval_id=gate.id, decision="deny" if kind != "reject" else "allow")
    await log.submit(run_id, twice, sender=PERSON)  # the first answer counts
    state = await run_workflow(log, run_id, steps)
    expected = "completed" if kind != "reject" or place == "fan-out" else "cancelled"
    assert state.status == expected
    assert ("end" in steps.ran) == (expected == "completed")
    if kind == "decision" and place == "top":
        assert steps.prompts["end"] == '{"decision":"later","text":""}'


async def test_a_fork_asks_again(log: SessionLog):
    steps = new_steps()
    run_id, _ = await play(log, files("top", "approve"), steps)
    await answer(log, run_id)
    fork_id = await fork_run(log, run_id, None, PERSON)
    state = await run_workflow(log, fork_id, steps)
    assert state.status == "paused"
    assert (await run_workflow(log, run_id, steps)).status == "completed"


async def test_a_rejection_is_reworked_checked_again_and_asked_again(log: SessionLog):
    text = """\
name: w
description: d
interactive: true
nodes:
  - {id: write, prompt: w}
  - {id: test, bash: t, depends_on: [write]}
  - {id: read, prompt: "r $test.output", depends_on: [test]}
  - {id: side, bash: s}
  - id: gate
    approval: {message: ok?, on_reject: {prompt: "fix $REJECTION_REASON", max_attempts: 2}}
    depends_on: [read, side]
  - {id: end, prompt: e, depends_on: [gate]}
"""
    steps = FakeSteps(editors={"write", "gate/rework/1"})
    run_id, _ = await play(log, files_of(text), steps)
    steps.ran.clear()
    await answer(log, run_id, allow=False, text="too long")
    state = await run_workflow(log, run_id, steps)
    assert (state.status, steps.ran) == ("paused", ["gate/rework/1", "test", "read"])
    assert steps.prompts["gate/rework/1"] == "fix too long"
    await answer(log, run_id, allow=False, text="typo")
    assert (await run_workflow(log, run_id, steps)).status == "paused"
    assert steps.ran[3:] == ["gate/rework/2"]  # it changed no files
    await answer(log, run_id, allow=False, text="no")
    state = await run_workflow(log, run_id, steps)
    assert (state.status, state.nodes["gate"].reason) == ("cancelled", "rejected: no")
    assert (await read_run(log, run_id)).status == "cancelled"
