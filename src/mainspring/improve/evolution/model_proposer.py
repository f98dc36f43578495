"""Asks a model for a change: the current texts of a track, failures and their checks go in; whole
files, added lines or playbook bullets come out, and are merged by code."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import TypeAlias

from mainspring.improve.evolution.candidate import Candidate
from mainspring.improve.evolution.observation import Observation, TrackName
from mainspring.improve.evolution.ports import ProposalRequest
from mainspring.improve.evolution.tracks.folder_texts import PLAYBOOK, track_of
from mainspring.improve.evolution.tracks.playbook import add_bullet, count_bullets

ReserveMoney: TypeAlias = Callable[[Decimal], None]
"""Takes the most that a request can cost. Raises: BudgetReached."""
AskImprover: TypeAlias = Callable[[str, str, str, ReserveMoney], Awaitable[tuple[str, Decimal]]]
"""Takes the id of the request, a system prompt, a question, and the reservation that it makes
before it sends anything; returns the answer and its cost."""

_BLOCK = re.compile(
    r"<(file|append|remove|bullet)(?: path=\"([^\"]{1,200})\")?(?:/>|>\n?(.*?)\n?</\1>)", re.DOTALL
)
_MAX_SHOWN = 20_000
"""Characters of the current texts that the model reads."""
_TASKS: dict[TrackName, str] = {
    "prompt": "Change the agent's instructions by as little as fixes the cause.",
    "playbook": "Give one short rule for the agent's playbook in a <bullet>.",
    "skill": "Write or repair one skill: skills/NAME/SKILL.md and its scripts.",
    "tools": "Change which tools the agent has, or how they are described.",
    "harness": "Change the one file that may be changed, so that the metric rises.",
    "knowledge": "Choose the documents of the corpus that the agent lacks.",
    "model": "",
    "fine_tune": "",
}
_SYSTEM = """\
You improve an AI agent from its failures. Fix the cause, not the single case: never quote a case,
its input or its expected answer, and keep every rule that is not to blame.
Answer with blocks only:
<append path="FILE">lines to add at the end</append>
<file path="FILE">the whole new content</file>
<remove path="FILE"/>
<bullet>a rule of one sentence</bullet>
"""


def question(request: ProposalRequest, *, documents: tuple[str, ...] = ()) -> str:
    texts = [
        f"<current path={path!r}>\n{text}\n</current>"
        for path, text in sorted(request.current.texts.items())
        if track_of(path) in (request.track, None) or request.track in ("prompt", "skill")
    ]
    failures = "\n\n".join(map(_failure, request.failures))
    hints = "\n".join(f"- {hint}" for hint in request.hints)
    parts = [
        f"Task: {_TASKS[request.track]}",
        f"Track: {request.track}",
        f"Cause: {request.cluster} (attempt {request.number + 1})",
        f"Failures:\n{failures}",
        *([f"Worked before for the same signal:\n{hints}"] if hints else []),
        *([f"Documents: {', '.join(documents)}"] if documents else []),
        "\n".join(texts)[:_MAX_SHOWN],
    ]
    return "\n\n".join(parts)


def _failure(item: Observation) -> str:
    checks = "; ".join(item.failed_checks) or "no named check"
    facts = ", ".join(f"{fact.kind} {fact.detail}".strip() for fact in item.facts)
    return f"- checks: {checks}\n  facts: {facts}\n  {item.critique}".rstrip()


async def propose(
    ask: AskImprover, request: ProposalRequest, key: str, reserve: ReserveMoney, *, task: str = ""
) -> tuple[Candidate, Decimal]:
    """`task`: what people say about a program that is improved."""
    system = f"{_SYSTEM}\n{task}".strip()
    answer, cost = await ask(key, system, question(request), reserve)
    return apply_answer(answer, request), cost


def apply_answer(answer: str, request: ProposalRequest) -> Candidate:
    """The candidate that an answer describes; the current one if it describes none."""
    candidate = request.current
    for kind, path, content in _BLOCK.findall(answer):
        match kind:
            case "file" if path:
                candidate = candidate.with_text(path, f"{content}\n")
            case "append" if path:
                old = candidate.texts.get(path, "")
                old = old if not old or old.endswith("\n") else f"{old}\n"
                candidate = candidate.with_text(path, f"{old}{content}\n")
            case "remove" if path:
                candidate = candidate.with_text(path, None)
            case "bullet":
                text = add_bullet(candidate.texts.get(PLAYBOOK, ""), content)
                candidate = candidate.with_text(PLAYBOOK, text)
            case _:
                pass
    if request.track == "playbook" and count_bullets(candidate) < count_bullets(request.current):
        return request.current  # a playbook is never rewritten whole
    return candidate
