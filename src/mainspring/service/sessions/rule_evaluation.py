"""Evaluates rules without applying them: for one call, or for the calls of a past session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
from anyio import to_thread
from msgspec import Meta, Struct

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock
from mainspring.core.errors import InvalidInput, TooLarge
from mainspring.core.events import Permission
from mainspring.harness.permissions.call_analysis import analyze_call
from mainspring.harness.permissions.decide import decide
from mainspring.harness.permissions.grant_state import GrantState
from mainspring.harness.permissions.policy import Mode, Policy, PolicyRule
from mainspring.harness.permissions.replay_decisions import (
    ReplayedDecision,
    lexical_location,
    replay_decisions,
    traits_by_name,
)
from mainspring.harness.permissions.rule import parse_rule
from mainspring.harness.permissions.rule_descriptions import describe_rule
from mainspring.harness.permissions.tool_names import canonical_name
from mainspring.service.access.principal import Principal
from mainspring.service.sessions.session_reports import require_readable_log
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.storage.metadata import copy_fields

MAX_INPUT_BYTES = 65_536  # of the call that is tried
WORKSPACE = "/workspace"
"""The workspace of the call; paths in rules and calls are relative to it."""
HOME = "/home/agent"
_SOURCE = "the request"
_ORDER: tuple[Permission, ...] = ("deny", "ask", "allow")

RuleText = Annotated[str, Meta(min_length=1, max_length=1024)]
RuleTexts = Annotated[tuple[RuleText, ...], Meta(max_length=200)]


class PermissionRules(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rules as in `permissions` of a settings file."""

    allow: RuleTexts = ()
    ask: RuleTexts = ()
    deny: RuleTexts = ()

    def with_behavior(self, behavior: Permission) -> tuple[str, ...]:
        return {"allow": self.allow, "ask": self.ask, "deny": self.deny}[behavior]


class CallParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tool: Annotated[str, Meta(min_length=1, max_length=256)]
    input: dict[str, Any] = {}


class EvaluateRules(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    rules: PermissionRules
    call: CallParams
    mode: Mode = "default"
    is_sandboxed: bool = True


class ReplayRules(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    rules: PermissionRules
    mode: Mode | None = None
    """If absent, the modes that the session had."""


class RuleView(Struct, frozen=True, kw_only=True):
    order: int
    """The position in the order of evaluation: the first rule that matches a call decides."""
    behavior: Permission
    rule: str
    meaning: str


class PolicyVerdict(Struct, frozen=True, kw_only=True):
    tool: str
    input: dict[str, Any]
    decision: Permission
    gate: str
    rule: str | None
    reason: str | None
    asks: str | None
    mode: Mode
    rules: list[RuleView]
    type: Literal["policy_verdict"] = "policy_verdict"


class ReplayedCall(Struct, frozen=True, kw_only=True):
    call_id: str
    seq: int
    tool: str
    input: Mapping[str, Any]
    was: Permission | None
    """The original decision; `null` if none was recorded."""
    person: Permission | None
    """The answer of the person who was asked, if any."""
    now: Permission
    rule: str | None
    reason: str | None


class PolicyReplay(Struct, frozen=True, kw_only=True):
    session_id: str
    calls: int
    changed: int
    data: list[ReplayedCall]
    """The calls whose decision would change."""
    type: Literal["policy_retrial"] = "policy_retrial"


class RuleEvaluator:
    def __init__(self, sessions: Sessions, *, clock: Clock = clocks.now) -> None:
        self._sessions = sessions
        self._clock = clock

    async def evaluate(self, request: EvaluateRules) -> PolicyVerdict:
        """Evaluate rules for a call; stores nothing and reads no data of the tenant.

        Raises: InvalidInput.
        """
        if len(msgspec.json.encode(request.call.input)) > MAX_INPUT_BYTES:
            raise TooLarge(f"call.input: at most {MAX_INPUT_BYTES} bytes")
        policy = _policy(request.rules, request.mode)
        return await to_thread.run_sync(self._verdict, request, policy)

    async def compare(
        self, principal: Principal, session_id: str, request: ReplayRules
    ) -> PolicyReplay:
        """Raises: NotFound, InvalidInput."""
        session = await self._sessions.row(principal, session_id)
        require_readable_log(session_id, session.head.seq)
        policy = _policy(request.rules, request.mode)
        events = await self._sessions.log.read(session_id)
        replayed = await to_thread.run_sync(replay_decisions, events, policy)
        changed = [item for item in replayed if item.is_changed]
        return PolicyReplay(
            session_id=session_id,
            calls=len(replayed),
            changed=len(changed),
            data=[_replayed_call(item) for item in changed],
        )

    def _verdict(self, request: EvaluateRules, policy: Policy) -> PolicyVerdict:
        tool = canonical_name(request.call.tool)
        decided = decide(
            analyze_call(tool, request.call.input, traits_by_name(tool), lexical_location(policy)),
            policy,
            GrantState(),
            now=self._clock(),
            is_sandboxed=request.is_sandboxed,
        )
        return copy_fields(
            PolicyVerdict,
            decided,
            tool=tool,
            input=request.call.input,
            asks=decided.asks if decided.decision == "ask" else None,
            mode=request.mode,
            rules=[
                RuleView(
                    order=order, behavior=rule.behavior, rule=rule.text, meaning=describe_rule(rule)
                )
                for order, rule in enumerate(policy.rules, 1)
            ],
        )


def _policy(rules: PermissionRules, mode: Mode | None) -> Policy:
    return Policy(workspace=WORKSPACE, home=HOME, rules=tuple(_parse_rules(rules)), mode=mode)


def _parse_rules(rules: PermissionRules) -> Iterator[PolicyRule]:
    """Raises: InvalidInput: names the rule that cannot be parsed."""
    for behavior in _ORDER:
        for index, text in enumerate(rules.with_behavior(behavior)):
            try:
                parse_rule(text, behavior=behavior)
            except InvalidInput as error:
                raise InvalidInput(f"rules.{behavior}[{index}]: {error}") from error
            yield PolicyRule(text=text, behavior=behavior, source=_SOURCE)


def _replayed_call(replayed: ReplayedDecision) -> ReplayedCall:
    now = replayed.now
    return copy_fields(ReplayedCall, replayed, now=now.decision, rule=now.rule, reason=now.reason)
