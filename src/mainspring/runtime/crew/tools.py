"""The tools by which an agent works with others: call one, send it a message, stop it.

What a thread may not use is not in what it is shown: no types, no tool.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mainspring.core.model import ToolSpec
from mainspring.core.tool import Call, Outcome, Tool, Traits
from mainspring.harness.ensemble import Member
from mainspring.runtime.agent import Agent
from mainspring.runtime.crew.addressing import addressed, addressee
from mainspring.runtime.crew.built_in import GENERAL
from mainspring.runtime.crew.calling import CALLING, Wanted, call_out, full
from mainspring.runtime.crew.closing import close_worktree
from mainspring.runtime.crew.crew import Crew
from mainspring.runtime.crew.seating import FORK
from mainspring.runtime.crew.subagent import Subagent

_TELLING = Traits(concurrent=True, in_doubt="report")
_MAX_DESCRIPTIONS = 24_000
"""Characters, of all types together: they are in every request."""
_SHORTEST = 40
_ISOLATION: Mapping[str, object] = {
    "type": "string",
    "enum": ["shared", "worktree"],
    "description": (
        "worktree: in a git worktree of its own, which begins with the last commit; you merge it"
        " afterwards."
    ),
}


def crew_tools(crew: Crew, member: Member, agent: Agent) -> list[Tool]:
    """What a thread may do with others; nothing, if there are none for it."""
    is_deep = member.depth >= crew.lead.max_depth
    is_too_deep = is_deep and member.name != FORK  # whose tools are its parent's
    if not agent.subagents or is_too_deep:
        return []
    tools = [
        _agent(crew, member, agent.subagents),
        _send_message(crew, member),
        _stop(crew, member),
    ]
    return [*tools, close_worktree(crew, member)] if crew.lodgings.worktrees else tools


def _wanted(given: Mapping[str, object], kinds: Mapping[str, Subagent]) -> Wanted:
    name = str(given.get("subagent_type") or _usual(kinds))
    kind = kinds.get(name)
    isolation = given.get("isolation") or (kind.isolation if kind is not None else "shared")
    return Wanted(
        kind=name,
        description=str(given.get("description", "")),
        prompt=str(given.get("prompt", "")),
        model=str(given["model"]) if given.get("model") else None,
        is_background=bool(given.get("run_in_background", kind is not None and kind.is_background)),
        is_apart=isolation == "worktree",
    )


def _agent(crew: Crew, member: Member, subagents: Sequence[Subagent]) -> Tool:
    kinds = {each.name: each for each in subagents}

    async def run(call: Call) -> Outcome:
        return await call_out(crew, member, call, _wanted(call.input, kinds))

    return Tool(
        spec=_spec(
            kinds,
            is_fork_shown=member.depth == 0,
            has_worktrees=crew.lodgings.worktrees is not None,
        ),
        run=run,
        traits=lambda _: CALLING,
        invalid=lambda given: _wrong(given, kinds),
    )


def _usual(kinds: Mapping[str, Subagent]) -> str:
    return GENERAL.name if GENERAL.name in kinds else next(iter(kinds))


def _wrong(given: Mapping[str, object], kinds: Mapping[str, Subagent]) -> str | None:
    prompt, kind = given.get("prompt"), given.get("subagent_type")
    if not isinstance(prompt, str) or not prompt.strip():
        return "The input is not valid:\n- prompt: missing: the subagent knows nothing else"
    if kind is not None and kind not in (*kinds, FORK):
        known = ", ".join((*kinds, FORK))
        return f"The input is not valid:\n- subagent_type: there is no {kind}; there are {known}"
    if given.get("isolation") not in (None, "shared", "worktree"):
        return "The input is not valid:\n- isolation: shared or worktree"
    return None


def _spec(kinds: Mapping[str, Subagent], *, is_fork_shown: bool, has_worktrees: bool) -> ToolSpec:
    limit = _longest(kind.description for kind in kinds.values())
    listed = "\n".join(f"- {kind.name}: {_cut(kind.description, limit)}" for kind in kinds.values())
    names = [*kinds, FORK] if is_fork_shown else [*kinds]
    fork = (
        f"\n- {FORK}: yourself, with all that you have read and said so far, for work that needs"
        " what you know. Give it the task only."
        if is_fork_shown
        else ""
    )
    return ToolSpec(
        name="agent",
        description=(
            "Have a subagent do a piece of work. It begins with nothing but your prompt, and you"
            " get nothing of what it does but its last message: say all that it needs to know, and"
            " what you want back. Calls in one turn run at the same time: give independent work to"
            f" several at once.\n\nTypes:\n{listed}{fork}"
        ),
        input_schema={
            "type": "object",
            "properties": {
                "description": {"type": "string", "description": "The task in 3 to 5 words."},
                "prompt": {"type": "string", "description": "The task, complete."},
                "subagent_type": {"type": "string", "enum": names},
                "model": {"type": "string", "description": "Another model than its own."},
                "run_in_background": {
                    "type": "boolean",
                    "description": "Do not wait: its answer comes as a message.",
                },
                **({"isolation": _ISOLATION} if has_worktrees else {}),
            },
            "required": ["description", "prompt"],
            "additionalProperties": False,
        },
    )


def _longest(described: Iterable[str]) -> int:
    """How long a description may be, so that all of them together are not too much."""
    lengths = [len(text) for text in described]
    limit = max(lengths, default=0)
    while sum(min(each, limit) for each in lengths) > _MAX_DESCRIPTIONS and limit > _SHORTEST:
        limit = limit * 9 // 10
    return limit


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit].rstrip()}…"


def _send_message(crew: Crew, member: Member) -> Tool:
    async def run(call: Call) -> Outcome:
        to = addressee(crew, member, call.input)
        if isinstance(to, Outcome):
            return to
        if crew.is_full and not crew.is_live(to.id):  # it would be woken
            return full(crew)
        crew.send(member, to, str(call.input.get("message", "")))
        return Outcome.text(f"Sent. {to.name} {to.id} reads it when it has finished its turn.")

    return Tool(
        spec=ToolSpec(
            name="send_message",
            description=(
                "Send a message to a subagent that you have called: more to know, another task. One"
                " that has ended begins again where it stopped. Its answer comes as a message."
            ),
            input_schema=addressed({"message": {"type": "string"}}),
        ),
        run=run,
        traits=lambda _: _TELLING,
    )


def _stop(crew: Crew, member: Member) -> Tool:
    async def run(call: Call) -> Outcome:
        to = addressee(crew, member, call.input)
        if isinstance(to, Outcome):
            return to
        await crew.stop(to, member)
        return Outcome.text(f"{to.name} {to.id} has stopped. send_message would wake it again.")

    return Tool(
        spec=ToolSpec(
            name="stop_agent",
            description="End a subagent that you have called, with all that it has called.",
            input_schema=addressed({}),
        ),
        run=run,
        traits=lambda _: _TELLING,
    )
