"""Gates: a person decides with fresh evidence in view, and the answer counts only for exactly that
evidence."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from mainspring.core import ids
from mainspring.core.events import ApprovalRequested, ApprovalSubject, ApprovalVoided, Evidence
from mainspring.core.ids import stable_id
from mainspring.harness.state.open_approval import OpenApproval
from mainspring.runtime.approvals import CHANGED_REASON
from mainspring.runtime.workflows.definition import Node
from mainspring.runtime.workflows.run_context import RunContext
from mainspring.runtime.workflows.run_scope import Scope
from mainspring.runtime.workflows.step_runner import ProgramStep

_SHOWN_CHARS = 4000
"""The part of an output or of a diff that a gate shows; the hash covers all of it."""
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


async def ask_gate(
    context: RunContext, scope: Scope, node: Node, message: str, choices: Sequence[str]
) -> GateAnswer | None:
    """The valid answer to a gate; `None`: it waits for one. Each time it is asked, the evidence is
    collected anew: an answer to other evidence is void."""
    path = scope.path(node)
    evidence = await _evidence(context, scope, node)
    subject = ApprovalSubject(
        type="workflow_node",
        id=f"{context.session_id}:{path}",
        hash=_hash(message, choices, evidence),
        evidence=tuple(
            Evidence(title=title, text=text[-_SHOWN_CHARS:], ref=_digest(text))
            for title, text in evidence
        ),
        stale_when=("content_changed", "base_changed"),
    )
    await context.receive()
    earlier = [
        item
        for item in context.state.approvals
        if item.request.subject.id == subject.id and not item.is_void
    ]
    for item in earlier:
        if item.request.subject.hash == subject.hash:
            return _answer(item, choices)
    await context.append(
        *(ApprovalVoided(approval_id=item.id, reason=CHANGED_REASON) for item in earlier),
        ApprovalRequested(
            approval_id=stable_id("aprv", subject.type, subject.id, subject.hash),
            subject=subject,
            question=message,
            form_schema=_form(choices),
        ),
    )
    return None


def _answer(approval: OpenApproval, choices: Sequence[str]) -> GateAnswer | None:
    answer = approval.answer
    if answer is None or approval.is_void:
        return None
    chosen = str((answer.form or {}).get("decision") or "")
    if answer.decision == "deny":
        return GateAnswer(decision="reject", text=answer.text or "")
    if chosen and chosen not in choices:
        return None
    text = str((answer.form or {}).get("text") or "") or answer.text or ""
    return GateAnswer(decision=chosen or "approve", text=text)


def _form(choices: Sequence[str]) -> dict[str, object]:
    """What goes with `allow`: which of several decisions, and a text for the nodes behind."""
    allowed = [choice for choice in choices if choice != "reject"]
    return {
        "type": "object",
        "properties": {
            "decision": {"type": "string", "enum": allowed},
            "text": {"type": "string"},
        },
    }


async def _evidence(context: RunContext, scope: Scope, node: Node) -> list[tuple[str, str]]:
    """What was checked before the gate, and the state of the workspace."""
    found: list[tuple[str, str]] = []
    for name in node.depends_on:
        state = context.state.nodes.get(scope.prefix + name)
        if state is not None:
            text = await context.whole_output(state.path) or state.error or state.reason or ""
            found.append((f"{name}: {state.status}", text))
    path = scope.path(node)
    result = await context.runner.run_program(
        ProgramStep(
            path=f"{path}/evidence",
            command=_EVIDENCE_PROGRAM,
            variables={},
            session_id=ids.new_id(ids.SESSION),
            workspace=scope.workspace,
            timeout_ms=_EVIDENCE_MS,
        )
    )
    text = result.output if result.status == "completed" else f"unknown: {result.error}"
    return [*found, ("workspace", text)]


def _hash(message: str, choices: Sequence[str], evidence: Sequence[tuple[str, str]]) -> str:
    return hashlib.sha256(msgspec.json.encode((message, choices, evidence))).hexdigest()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
