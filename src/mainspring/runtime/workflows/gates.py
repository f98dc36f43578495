"""Gates: a person decides with fresh evidence in view, and the answer counts only for exactly that
evidence."""

from __future__ import annotations

from msgspec import Struct

from mainspring.core import ids
from mainspring.core.events import ApprovalVoided, Evidence
from mainspring.harness.state.open_approval import OpenApproval
from mainspring.runtime.approvals import CHANGED_REASON, ApprovalQuestion, evidence_of
from mainspring.runtime.workflows.format.definition import Node
from mainspring.runtime.workflows.run_context import RunContext
from mainspring.runtime.workflows.run_scope import Scope
from mainspring.runtime.workflows.step_runner import ProgramStep, StepResult

_EVIDENCE_MS = 60_000
"""The longest time that git may take to show what has changed."""
_GIT = "git --no-pager -c core.fsmonitor= -c core.pager=cat"
_EVIDENCE_PROGRAM = f"""\
git rev-parse --is-inside-work-tree >/dev/null 2>&1 || {{ echo "not a git repository"; exit 0; }}
echo "commit $({_GIT} rev-parse HEAD 2>/dev/null || echo none)"
{_GIT} status --porcelain
{_GIT} diff --no-ext-diff --no-textconv HEAD 2>/dev/null || true
{_GIT} ls-files --others --exclude-standard -z | xargs -0 -r sha256sum 2>/dev/null || true
"""
"""It runs in the sandbox: the configuration of a repository can name programs."""


class GateAnswer(Struct, frozen=True, kw_only=True):
    decision: str
    text: str = ""
    is_denied: bool = False
    """The person refused, instead of choosing a decision that is called reject."""


async def ask_gate(
    context: RunContext,
    scope: Scope,
    node: Node,
    message: str,
    choices: tuple[str, ...] = (),
    *,
    round_number: int = 1,
) -> GateAnswer | None:
    """The valid answer to a gate; `None`: it waits for one. Each time, the evidence is collected
    anew: an answer to other evidence, or to an earlier round, does not count."""
    question = ApprovalQuestion(
        type="workflow_node",
        id=f"{context.session_id}:{scope.path(node)}:{round_number}",
        text=message,
        evidence=await _evidence(context, scope, node),
        choices=choices,
    )
    await context.receive()
    earlier = [
        item
        for item in context.state.approvals
        if item.request.subject.id == question.id and not item.is_void
    ]
    for item in earlier:
        if item.request.subject.hash == question.hash:
            return _answer(item, choices)
    stale = [ApprovalVoided(approval_id=item.id, reason=CHANGED_REASON) for item in earlier]
    await context.append(*stale, question.request)
    return None


def rejected(scope: Scope, answer: GateAnswer) -> StepResult:
    """The result of a node whose gate was refused: it ends the workflow."""
    scope.stop.reason = f"rejected: {answer.text}" if answer.text else "rejected"
    fields = {"decision": answer.decision, "text": answer.text}
    return StepResult(status="cancelled", error=scope.stop.reason, structured=fields)


def given_answer(context: RunContext, scope: Scope, node: Node, round_number: int) -> GateAnswer:
    """The answer of a round that has been acted on."""
    subject = f"{context.session_id}:{scope.path(node)}:{round_number}"
    for item in context.state.approvals:
        if item.request.subject.id == subject and item.answer is not None:
            return GateAnswer(decision="reject", text=item.answer.text or "", is_denied=True)
    return GateAnswer(decision="reject", is_denied=True)


def _answer(approval: OpenApproval, choices: tuple[str, ...]) -> GateAnswer | None:
    answer = approval.answer
    if answer is None or approval.is_void:
        return None
    if answer.decision == "deny":
        return GateAnswer(decision="reject", text=answer.text or "", is_denied=True)
    if choices and answer.choice not in choices:
        return None
    return GateAnswer(decision=answer.choice or "approve", text=answer.text or "")


async def _evidence(context: RunContext, scope: Scope, node: Node) -> tuple[Evidence, ...]:
    """What was checked before the gate, and the state of the workspace."""
    found: list[Evidence] = []
    for name in node.depends_on:
        state = context.state.nodes.get(scope.prefix + name)
        if state is not None:
            text = await context.whole_output(state.path) or state.error or state.reason or ""
            ref = state.session_id
            found.append(evidence_of(f"{name}: {state.status}", text, ref=ref))
    path = scope.path(node)
    result = await context.runner.run_program(
        ProgramStep(
            path=f"{path}/evidence",
            command=_EVIDENCE_PROGRAM,
            variables={},
            session_id=ids.new_id(ids.SESSION),
            workspace=scope.workspace,
            timeout_ms=_EVIDENCE_MS,
            is_own=True,
        )
    )
    text = result.output if result.status == "completed" else f"unknown: {result.error}"
    return (*found, evidence_of("workspace", text))
