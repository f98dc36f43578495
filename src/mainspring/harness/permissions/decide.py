"""May a call run? A pure function of the call, the rules, the mode and what people have granted.

In order: deny rules, the mode plan, ask rules, what is never approved without a person, what a rule
may be about though nobody can tell, the other modes, allow rules and grants, and what needs no
rule. All else is asked about.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from mainspring.core.events import Permission
from mainspring.harness.gates import Decision
from mainspring.harness.permissions import bash
from mainspring.harness.permissions.doubts import doubts
from mainspring.harness.permissions.judged import Judged
from mainspring.harness.permissions.names import EDITING, READING, theirs
from mainspring.harness.permissions.paths import Touched, is_inside, is_meant, is_protected
from mainspring.harness.permissions.policy import HeldRule, Mode, Policy, parsed
from mainspring.harness.permissions.rules import ON_FILES, Rule, forbids, is_about, permits
from mainspring.harness.permissions.standing import CLASSIFIER, Standing

NEEDS_A_PERSON = frozenset(("ask_user",))
INWARD = frozenset(
    (
        "agent",
        "close_worktree",
        "history_read",
        "history_search",
        "send_message",
        "skill",
        "stop_agent",
        "think",
        "todo",
        "tool_search",
    )
)
"""Tools that change nothing but the session itself; what a subagent does is judged on its own."""
_OUTWARD = frozenset(("web_fetch", "web_search"))
"""They only read, but to ask is to tell."""


_READ_ANYTHING = frozenset(("python",))
"""They only read, and nobody can tell beforehand what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    judged: Judged
    policy: Policy
    standing: Standing
    now: datetime
    is_sandboxed: bool

    @property
    def mode(self) -> Mode:
        return self.standing.mode or self.policy.mode or "default"

    @property
    def folders(self) -> tuple[str, ...]:
        added = (*self.policy.directories, *self.standing.directories)
        left = self.standing.left_directories
        return (self.policy.workspace, *(each for each in added if each not in left))

    def rules(self, behavior: Permission) -> list[HeldRule]:
        held = (*self.policy.rules, *self.standing.rules)
        gone = self.standing.revoked if behavior == "allow" else frozenset[str]()
        return [rule for rule in held if rule.behavior == behavior and rule.text not in gone]

    @property
    def is_read_only(self) -> bool:
        judged = self.judged
        if judged.verdict is not None:
            is_held = self.is_sandboxed and not self.has_secrets
            only_reads = judged.verdict.read_only or (
                self.is_sandboxed and judged.verdict.read_only_in_sandbox
            )
            return only_reads and (is_held or not judged.verdict.opaque)
        if judged.tool.startswith("mcp__"):
            return False  # that it is read-only is only the word of whoever runs the server
        if judged.tool in _READ_ANYTHING and self.has_secrets:
            return False
        is_inward = judged.tool in INWARD and not judged.paths  # a merge is an edit
        return judged.traits.read_only or is_inward

    @property
    def has_secrets(self) -> bool:
        """Whether something in the workspace may not be read, or not without asking."""
        held = map(parsed, (*self.rules("deny"), *self.rules("ask")))
        return any(rule and rule.tool in READING and rule.specifier for rule in held)

    def is_inside(self, touched: Touched) -> bool:
        return all(is_inside(path, self.folders) for path in touched.both)

    @property
    def outside(self) -> Touched | None:
        return next((each for each in self.judged.paths if not self.is_inside(each)), None)


def decide(
    judged: Judged, policy: Policy, standing: Standing, *, now: datetime, is_sandboxed: bool
) -> Decision:
    """Never raises: what cannot be judged is asked about."""
    case = _Case(
        judged=judged, policy=policy, standing=standing, now=now, is_sandboxed=is_sandboxed
    )
    for step in _STEPS:
        decision = step(case)
        if decision is not None:
            break
    else:
        decision = _unknown(case)
    return addressed(decision, case.mode)


def addressed(decision: Decision, mode: Mode) -> Decision:
    """Whom to ask in a mode, if anybody; for what others than rules want to ask, too."""
    if decision.decision != "ask":
        return decision
    if mode == "dontAsk":
        why = f"{decision.reason or 'it would be asked about'}; in the mode dontAsk nobody is asked"
        gate = "mode" if decision.rule is None else decision.gate
        rule = decision.rule or "dontAsk"
        return replace(decision, decision="deny", gate=gate, rule=rule, reason=why)
    return replace(decision, asks="parent") if mode == "bubble" else decision


def _denied(case: _Case) -> Decision | None:
    return _forbidden(case, "deny")


def _asked(case: _Case) -> Decision | None:
    return _forbidden(case, "ask") or _unreadable(case)


def _forbidden(case: _Case, behavior: Permission) -> Decision | None:
    for held in case.rules(behavior):
        rule = parsed(held)
        if rule is not None and forbids(rule, case.judged, case.policy.roots(held), behavior):
            does = "denies it" if behavior == "deny" else "wants a person to be asked"
            reason = f"the {held.scope} rule {held.text} {does}"
            return Decision(decision=behavior, gate="rule", rule=held.text, reason=reason)
    return None


def _unreadable(case: _Case) -> Decision | None:
    """A rule that was meant to forbid something, and nobody knows what."""
    for held in (*case.rules("deny"), *case.rules("ask")):
        if parsed(held) is None:
            reason = f"the {held.behavior} rule {held.text!r} cannot be read: it may be about this"
            return Decision(decision="ask", gate="rule", rule=held.text, reason=reason)
    return None


def _planned(case: _Case) -> Decision | None:
    tool = case.judged.tool
    is_fine = case.is_read_only or tool in NEEDS_A_PERSON or _is_declared_reading(case)
    if case.mode != "plan" or is_fine:
        return None
    reason = f"in the mode plan nothing is changed, and {_what(case)} may change something"
    return Decision(decision="deny", gate="mode", rule="plan", reason=reason)


def _is_declared_reading(case: _Case) -> bool:
    """An MCP tool that says so may be asked about, where others are refused."""
    return case.judged.verdict is None and case.judged.traits.read_only


def _never_alone(case: _Case) -> Decision | None:
    if case.judged.tool in NEEDS_A_PERSON:
        reason = "it needs a person's answer"
        return Decision(decision="ask", gate="guardrail", rule="a person", reason=reason)
    if case.judged.traits.needs_person:
        reason = "the tool wants a person to agree to it"
        return Decision(decision="ask", gate="guardrail", rule="needs a person", reason=reason)
    verdict = case.judged.verdict
    if verdict is not None and verdict.critical:
        why = "it may remove a home, the workspace or what the machine needs"
        return Decision(decision="ask", gate="guardrail", rule="critical path", reason=why)
    return None


def _bypassed(case: _Case) -> Decision | None:
    if case.mode != "bypassPermissions":
        return None
    bypass = case.policy.bypass or "sandboxed"
    if bypass == "never" or (bypass == "sandboxed" and not case.is_sandboxed):
        return None
    reason = "the mode bypassPermissions lets it pass"
    return Decision(decision="allow", gate="mode", rule="bypassPermissions", reason=reason)


def _protected(case: _Case) -> Decision | None:
    # a command that writes may first go to a folder that it only names
    has_writes = any(touched.access == "write" for touched in case.judged.paths)
    for touched in case.judged.paths if has_writes else ():
        if any(is_protected(_inside(path, case.policy.workspace)) for path in touched.both):
            reason = f"{touched.link} is protected: what is in it may run later, or steer what runs"
            return Decision(decision="ask", gate="guardrail", rule="protected path", reason=reason)
    return None


def _inside(path: str, workspace: str) -> str:
    """As seen from the workspace: where that itself stands says nothing about what is in it."""
    return path.removeprefix(workspace) if path.startswith(f"{workspace}/") else path


def _accepted(case: _Case) -> Decision | None:
    """Edits in the workspace, where the mode lets them pass."""
    if case.mode not in ("acceptEdits", "auto") or not case.judged.paths or case.outside:
        return None
    verdict = case.judged.verdict
    if verdict is None:
        is_edit = case.judged.tool in EDITING
    else:
        is_edit = verdict.edits and not verdict.opaque
    if not is_edit:
        return None
    reason = f"the mode {case.mode} lets edits in the workspace pass"
    return Decision(decision="allow", gate="mode", rule=case.mode, reason=reason)


def _doubtful(case: _Case) -> Decision | None:
    """A rule may forbid what the command turns out to do."""
    held = [(rule, parsed(rule)) for rule in (*case.rules("deny"), *case.rules("ask"))]
    rules = [(rule, case.policy.roots(each)) for each, rule in held if rule is not None]
    for doubt in doubts(case.judged, rules, is_sandboxed=case.is_sandboxed):
        if not doubt.is_program or not _is_vouched_for(case):
            return _unknown(case, doubt.text)
    return None


def _is_vouched_for(case: _Case) -> bool:
    """Somebody has allowed this very program, or has the sandbox answer for all."""
    if case.is_sandboxed and case.policy.sandbox_allows_bash:
        return True
    live = [grant for grant in case.standing.grants.values() if grant.is_live(case.now)]
    rules = [*case.rules("allow"), *(rule for grant in live for rule in grant.rules)]
    named = [held for held in rules if (rule := parsed(held)) and rule.specifier is not None]
    return _allowing(case, named) is not None


def _allowed(case: _Case) -> Decision | None:
    rules = case.rules("allow")
    if found := _allowing(case, rules):
        reason = f"{found} allows it"
        return Decision(decision="allow", gate="rule", rule=found, reason=reason)
    for grant in case.standing.grants.values():
        if grant.is_live(case.now) and _allowing(case, [*rules, *grant.rules]):
            texts = ", ".join(rule.text for rule in grant.rules)
            reason = f"a person has granted {texts}"
            return Decision(decision="allow", gate="grant", rule=grant.id, reason=reason)
    return None


def _allowing(case: _Case, rules: Sequence[HeldRule]) -> str | None:
    """The rule, or the rules together, that allow the whole of a call."""
    readable = [(held, rule) for held in rules if (rule := parsed(held)) is not None]
    for held, rule in readable:
        if permits(rule, case.judged):
            return held.text
    if case.judged.command is not None:
        return _allowing_command(case, case.judged.command, readable)
    return _allowing_paths(case, readable)


def _allowing_command(
    case: _Case, command: str, readable: Sequence[tuple[HeldRule, Rule]]
) -> str | None:
    patterns = {
        held.text: rule.specifier
        for held, rule in readable
        if rule.tool == "bash" and rule.specifier is not None
    }
    is_foreign = case.judged.verdict is None or case.judged.verdict.foreign_git
    if _writes_afar(case) or not bash.covered(
        list(patterns.values()), command, foreign_git=is_foreign
    ):
        return None  # a rule on a command is not one on where its output may go
    for text, pattern in patterns.items():
        if bash.matches(pattern, command, behavior="allow"):
            return text
    if bash.covered((), command, foreign_git=is_foreign):
        return None  # it needs no rule
    needed = _needed(command, [], list(patterns.values()))
    return ", ".join(text for text, pattern in patterns.items() if pattern in needed)


def _needed(command: str, given: list[str], among: list[str]) -> list[str]:
    """The fewest of `among` that cover a command together with what is given, by halving."""
    if given and bash.covered(given, command):
        return []
    if len(among) == 1:
        return among
    left, right = among[: len(among) // 2], among[len(among) // 2 :]
    from_right = _needed(command, [*given, *left], right)
    from_left = _needed(command, [*given, *from_right], left)
    return [*from_left, *from_right]


def _writes_afar(case: _Case) -> bool:
    has_writes = any(each.access == "write" for each in case.judged.paths)
    is_opaque = case.judged.verdict is None or case.judged.verdict.opaque
    return has_writes and (is_opaque or case.outside is not None)


def _allowing_paths(case: _Case, readable: Sequence[tuple[HeldRule, Rule]]) -> str | None:
    used: dict[str, None] = {}
    for touched in case.judged.paths:
        for held, rule in readable:
            is_named = rule.tool in ON_FILES and is_about(rule, case.judged.tool)
            if not is_named or rule.specifier is None:
                continue
            if is_meant(rule.specifier, touched, case.policy.roots(held)):
                used[held.text] = None
                break
        else:
            return None
    return ", ".join(used) or None


def _harmless(case: _Case) -> Decision | None:
    if case.judged.tool in _OUTWARD or not case.is_read_only or case.outside:
        return None
    where = "sandbox" if case.judged.verdict and case.judged.verdict.opaque else "workspace"
    return Decision(decision="allow", gate="default", reason=f"it only reads, in the {where}")


def _contained(case: _Case) -> Decision | None:
    if case.judged.command is None or not case.is_sandboxed:
        return None
    if not case.policy.sandbox_allows_bash:
        return None
    rule = "sandbox.autoAllowBashIfSandboxed"
    reason = "it runs in the sandbox, which holds it"
    return Decision(decision="allow", gate="default", rule=rule, reason=reason)


def _unknown(case: _Case, why: str = "") -> Decision:
    if case.mode == "auto" and not case.standing.is_mistrusted:
        return Decision(
            decision="ask",
            gate="mode",
            rule=CLASSIFIER,
            reason=why or f"no rule is about it: {_why(case)}",
            asks="classifier",
        )
    return Decision(
        decision="ask", gate="default", reason=why or f"no rule allows it: {_why(case)}"
    )


def _why(case: _Case) -> str:
    verdict = case.judged.verdict
    if case.mode == "bypassPermissions":
        return "the mode bypassPermissions holds only in a sandbox, or where it is set explicitly"
    if case.mode == "auto" and case.standing.is_mistrusted:
        return "the classifier has said no too often"
    if case.outside is not None:
        return f"{case.outside.link} is outside of the workspace"
    if verdict is not None and verdict.read_only:
        return "which files it reads cannot be told before it runs"
    if verdict is not None:
        return verdict.reason or f"{_what(case)} may change something"
    return f"{_what(case)} is not known to be harmless"


def _what(case: _Case) -> str:
    if case.judged.command is not None:
        return "the command"
    return theirs(case.judged.tool)


_STEPS: tuple[Callable[[_Case], Decision | None], ...] = (
    _denied,
    _planned,
    _asked,
    _never_alone,
    _bypassed,
    _protected,
    _doubtful,
    _accepted,
    _allowed,
    _harmless,
    _contained,
)
