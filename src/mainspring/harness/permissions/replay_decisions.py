"""Replays the permission decisions of a past session under a different policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from mainspring.core.envelope import Event
from mainspring.core.events import (
    AgentMcpToolUse,
    AgentToolUse,
    Permission,
    PolicyAdopted,
    SandboxOpened,
    SkillUsed,
    StatusIdle,
    ToolCallAuthorized,
)
from mainspring.core.ports import ISOLATED
from mainspring.core.tool import SAFE_READ, Traits
from mainspring.harness.authorizer import Decision
from mainspring.harness.permissions.call_analysis import CallLocation, analyze_call
from mainspring.harness.permissions.decide import decide
from mainspring.harness.permissions.grant_state import GrantState
from mainspring.harness.permissions.grant_state import apply as apply_grant
from mainspring.harness.permissions.policy import Policy, parse_mode, with_skill_rules
from mainspring.harness.permissions.tool_names import READ_TOOLS


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedDecision:
    call_id: str
    seq: int
    tool: str
    input: Mapping[str, object]
    was: Permission | None
    """The decision of the rules at the time; `None` if none was recorded."""
    person: Permission | None
    """The answer of a person, if one was asked."""
    now: Decision

    @property
    def is_changed(self) -> bool:
        return self.was != self.now.decision


@dataclass(slots=True)
class _PastDecision:
    was: Permission | None = None
    person: Permission | None = None


@dataclass(slots=True, kw_only=True)
class _Replay:
    policy: Policy
    is_sandboxed: bool = False
    grants: GrantState = field(default_factory=GrantState)
    skills: dict[str, list[SkillUsed]] = field(default_factory=dict[str, list[SkillUsed]])
    """Skills used in the current run, by thread."""
    decisions: list[ReplayedDecision] = field(default_factory=list[ReplayedDecision])

    def apply(self, event: Event, past: Mapping[str, _PastDecision]) -> None:
        match event.payload:
            case SandboxOpened(level=level, workspace=workspace):
                self.is_sandboxed = level in ISOLATED
                self.policy = replace(self.policy, workspace=workspace)
            case PolicyAdopted(mode=mode) if self.policy.mode is None:
                self.policy = replace(self.policy, mode=parse_mode(mode))
            case AgentToolUse(name=name, input=args):
                self._judge(event, name, args, past)
            case AgentMcpToolUse(mcp_server_name=server, name=name, input=args):
                full_name = name if name.startswith("mcp__") else f"mcp__{server}__{name}"
                self._judge(event, full_name, args, past)
            case SkillUsed() as skill_used:
                self.skills.setdefault(event.thread_id, []).append(skill_used)
            case StatusIdle(reason=reason) if reason != "requires_action":
                self.skills.pop(event.thread_id, None)
            case payload:
                self.grants = apply_grant(self.grants, payload)

    def _judge(
        self,
        event: Event,
        name: str,
        args: Mapping[str, object],
        past: Mapping[str, _PastDecision],
    ) -> None:
        then = past.get(event.id, _PastDecision())
        call = analyze_call(name, args, traits_by_name(name), lexical_location(self.policy))
        decision = decide(
            call,
            with_skill_rules(self.policy, self.skills.get(event.thread_id, ())),
            self.grants,
            now=event.time,
            is_sandboxed=self.is_sandboxed,
        )
        self.decisions.append(
            ReplayedDecision(
                call_id=event.id,
                seq=event.seq,
                tool=name,
                input=args,
                was=then.was,
                person=then.person,
                now=decision,
            )
        )


def replay_decisions(events: Iterable[Event], policy: Policy) -> list[ReplayedDecision]:
    """Judge every call of a session by a policy, with the mode and the grants that it had then.

    Links are not followed, since their targets at the time are unknown.
    """
    log = list(events)
    decisions: dict[str, _PastDecision] = {}
    for event in log:
        if isinstance(event.payload, ToolCallAuthorized):
            past = decisions.setdefault(event.payload.tool_use_id, _PastDecision())
            if event.payload.gate == "person":
                past.person = event.payload.decision
            elif past.was is None:
                past.was = event.payload.decision
    replay = _Replay(policy=policy)
    for event in log:
        replay.apply(event, decisions)
    return replay.decisions


def traits_by_name(tool: str) -> Traits:
    """The traits of a tool that is not available, by its name alone."""
    return SAFE_READ if tool in READ_TOOLS else Traits()


def lexical_location(policy: Policy) -> CallLocation:
    return CallLocation(
        workspace=policy.workspace,
        cwd=policy.workspace,
        home=policy.home,
        resolve=lambda path: path,
    )
