"""May a call run? A pure function of the call, the rules, the mode and what people have granted.

The order is `_STEPS`, at the end of this file. What no step decides is asked about.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from mainspring.core.events import Permission
from mainspring.harness.authorizer import Decision
from mainspring.harness.permissions import bash
from mainspring.harness.permissions.call_analysis import AnalyzedCall
from mainspring.harness.permissions.grant_state import CLASSIFIER, GrantState
from mainspring.harness.permissions.path_rules import PathAccess, is_inside, permits_path
from mainspring.harness.permissions.policy import Mode, Policy, PolicyRule, is_guarded, rule_of
from mainspring.harness.permissions.possible_matches import possible_matches
from mainspring.harness.permissions.rule import FILE_TOOLS, Rule, forbids, is_about, permits
from mainspring.harness.permissions.tool_names import (
    EDIT_TOOLS,
    INTERNAL_TOOLS,
    NEEDS_A_PERSON,
    NETWORK_TOOLS,
    READ_ANYTHING,
    READ_TOOLS,
    claude_code_name,
)

PROTECTED = "protected path"
"""The `rule` of decisions about those."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    call: AnalyzedCall
    policy: Policy
    grants: GrantState
    now: datetime
    is_sandboxed: bool

    @property
    def mode(self) -> Mode:
        return self.grants.mode or self.policy.mode or "default"

    @property
    def folders(self) -> tuple[str, ...]:
        added = (*self.policy.directories, *self.grants.directories)
        left = self.grants.left_directories
        return (self.policy.workspace, *(item for item in added if item not in left))

    def rules(self, behavior: Permission) -> list[PolicyRule]:
        held = (*self.policy.rules, *self.grants.rules)
        gone = self.grants.revoked if behavior == "allow" else frozenset[str]()
        return [rule for rule in held if rule.behavior == behavior and rule.text not in gone]

    @property
    def is_read_only(self) -> bool:
        judged = self.call
        if judged.analysis is not None:
            is_held = self.is_sandboxed and not self.has_secrets
            only_reads = judged.analysis.read_only or (
                self.is_sandboxed and judged.analysis.read_only_in_sandbox
            )
            return only_reads and (is_held or not judged.analysis.opaque)
        if judged.tool.startswith("mcp__"):
            return False  # that it is read-only is only the word of whoever runs the server
        if judged.tool in READ_ANYTHING and self.has_secrets:
            return False
        is_inward = judged.tool in INTERNAL_TOOLS and not judged.paths  # a merge is an edit
        return judged.traits.read_only or is_inward

    @property
    def has_secrets(self) -> bool:
        """Whether something in the workspace may not be read, or not without asking."""
        held = map(rule_of, (*self.rules("deny"), *self.rules("ask")))
        return any(rule and rule.tool in READ_TOOLS and rule.specifier for rule in held)

    def is_inside(self, path_access: PathAccess) -> bool:
        return all(is_inside(path, self.folders) for path in path_access.both)

    @property
    def outside(self) -> PathAccess | None:
        return next((path for path in self.call.paths if not self.is_inside(path)), None)


def decide(
    analyzed_call: AnalyzedCall,
    policy: Policy,
    grants: GrantState,
    *,
    now: datetime,
    is_sandboxed: bool,
) -> Decision:
    """Never raises: what cannot be judged is asked about."""
    case = _Case(
        call=analyzed_call, policy=policy, grants=grants, now=now, is_sandboxed=is_sandboxed
    )
    for step in _STEPS:
        decision = step(case)
        if decision is not None:
            break
    else:
        decision = _ask_by_default(case)
    return with_ask_target(decision, case.mode)


def with_ask_target(decision: Decision, mode: Mode) -> Decision:
    """Whom to ask in a mode, if anybody; for what others than rules want to ask, too."""
    if decision.decision != "ask":
        return decision
    if mode == "dontAsk":
        why = f"{decision.reason or 'it would be asked about'}; in the mode dontAsk nobody is asked"
        gate = "mode" if decision.rule is None else decision.gate
        rule = decision.rule or "dontAsk"
        return replace(decision, decision="deny", gate=gate, rule=rule, reason=why)
    return replace(decision, asks="parent") if mode == "bubble" else decision


def _deny_rules(case: _Case) -> Decision | None:
    return _forbidding_rule(case, "deny")


def _ask_rules(case: _Case) -> Decision | None:
    return _forbidding_rule(case, "ask") or _unreadable_rule(case)


def _forbidding_rule(case: _Case, behavior: Permission) -> Decision | None:
    for held in case.rules(behavior):
        rule = rule_of(held)
        if rule is not None and forbids(rule, case.call, case.policy.roots(held), behavior):
            does = "denies it" if behavior == "deny" else "wants a person to be asked"
            reason = f"the {held.scope} rule {held.text} {does}"
            return Decision(decision=behavior, gate="rule", rule=held.text, reason=reason)
    return None


def _unreadable_rule(case: _Case) -> Decision | None:
    """A rule that was meant to forbid something, and nobody knows what."""
    for held in (*case.rules("deny"), *case.rules("ask")):
        if rule_of(held) is None:
            reason = f"the {held.behavior} rule {held.text!r} cannot be read: it may be about this"
            return Decision(decision="ask", gate="rule", rule=held.text, reason=reason)
    return None


def _plan_mode(case: _Case) -> Decision | None:
    tool = case.call.tool
    is_fine = case.is_read_only or tool in NEEDS_A_PERSON or _is_declared_reading(case)
    if case.mode != "plan" or is_fine:
        return None
    reason = f"in the mode plan nothing is changed, and {_describe(case)} may change something"
    return Decision(decision="deny", gate="mode", rule="plan", reason=reason)


def _is_declared_reading(case: _Case) -> bool:
    """An MCP tool that says so may be asked about, where others are refused."""
    return case.call.analysis is None and case.call.traits.read_only


def _person_required(case: _Case) -> Decision | None:
    if case.call.tool in NEEDS_A_PERSON:
        reason = "it needs a person's answer"
        return Decision(decision="ask", gate="guardrail", rule="a person", reason=reason)
    if case.call.traits.needs_person:
        reason = "the tool wants a person to agree to it"
        return Decision(decision="ask", gate="guardrail", rule="needs a person", reason=reason)
    verdict = case.call.analysis
    if verdict is not None and verdict.critical:
        why = "it may remove a home, the workspace or what the machine needs"
        return Decision(decision="ask", gate="guardrail", rule="critical path", reason=why)
    return None


def _bypass_mode(case: _Case) -> Decision | None:
    if case.mode != "bypassPermissions":
        return None
    bypass = case.policy.bypass or "sandboxed"
    if bypass == "never" or (bypass == "sandboxed" and not case.is_sandboxed):
        return None
    reason = "the mode bypassPermissions lets it pass"
    return Decision(decision="allow", gate="mode", rule="bypassPermissions", reason=reason)


def _protected_paths(case: _Case) -> Decision | None:
    """In every mode, whatever allows it: on purpose stricter than Claude Code."""
    for touched in _possible_writes(case):
        if _is_guarded(case, touched):
            reason = f"{touched.link} is protected: what is in it may run later, or steer what runs"
            return Decision(decision="ask", gate="guardrail", rule=PROTECTED, reason=reason)
    return None


def _possible_writes(case: _Case) -> tuple[PathAccess, ...]:
    judged = case.call
    if judged.analysis is not None and judged.analysis.read_only:
        return ()
    if judged.analysis is not None and not case.is_sandboxed:
        # a command that writes may first go to a folder that it only names
        return (*judged.paths, *judged.surely_written)
    # a sandbox keeps programs from changing what they only name
    named = (
        judged.surely_written
        if judged.tool not in INTERNAL_TOOLS | NETWORK_TOOLS | NEEDS_A_PERSON
        else ()
    )
    written = () if judged.analysis else (path for path in judged.paths if path.access == "write")
    return (*written, *named)


def _is_guarded(case: _Case, path_access: PathAccess) -> bool:
    is_own_name = case.call.analysis is None and path_access.link == path_access.target
    if is_own_name and path_access.link in case.grants.allowed_protected:
        return False
    return any(is_guarded(case.policy, path) for path in path_access.both)


def _accept_edits(case: _Case) -> Decision | None:
    """Edits in the workspace, where the mode lets them pass."""
    if case.mode not in ("acceptEdits", "auto") or not case.call.paths or case.outside:
        return None
    verdict = case.call.analysis
    if verdict is None:
        is_edit = case.call.tool in EDIT_TOOLS
    else:
        is_edit = verdict.edits and not verdict.opaque
    if not is_edit:
        return None
    reason = f"the mode {case.mode} lets edits in the workspace pass"
    return Decision(decision="allow", gate="mode", rule=case.mode, reason=reason)


def _possible_rules(case: _Case) -> Decision | None:
    """A rule may forbid what the command turns out to do."""
    held = [(rule, rule_of(rule)) for rule in (*case.rules("deny"), *case.rules("ask"))]
    rules = [(rule, case.policy.roots(each)) for each, rule in held if rule is not None]
    for doubt in possible_matches(case.call, rules, is_sandboxed=case.is_sandboxed):
        if not doubt.is_program or not _is_vouched_for(case):
            return _ask_by_default(case, doubt.text)
    return None


def _is_vouched_for(case: _Case) -> bool:
    """Somebody has allowed this very program, or has the sandbox answer for all."""
    if case.is_sandboxed and case.policy.sandbox_allows_bash:
        return True
    live = [grant for grant in case.grants.grants.values() if grant.is_live(case.now)]
    rules = [*case.rules("allow"), *(rule for grant in live for rule in grant.rules)]
    named = [held for held in rules if (rule := rule_of(held)) and rule.specifier is not None]
    return _matching_rules(case, named) is not None


def _allow_rules(case: _Case) -> Decision | None:
    rules = case.rules("allow")
    if found := _matching_rules(case, rules):
        reason = f"{found} allows it"
        return Decision(decision="allow", gate="rule", rule=found, reason=reason)
    for grant in case.grants.grants.values():
        if grant.is_live(case.now) and _matching_rules(case, [*rules, *grant.rules]):
            texts = ", ".join(rule.text for rule in grant.rules)
            reason = f"a person has granted {texts}"
            return Decision(decision="allow", gate="grant", rule=grant.id, reason=reason)
    return None


def _matching_rules(case: _Case, rules: Sequence[PolicyRule]) -> str | None:
    """The rule, or the rules together, that allow the whole of a call."""
    readable = [(held, rule) for held in rules if (rule := rule_of(held)) is not None]
    for held, rule in readable:
        if permits(rule, case.call):
            return held.text
    if case.call.command is not None:
        return _matching_command_rules(case, case.call.command, readable)
    return _matching_path_rules(case, readable)


def _matching_command_rules(
    case: _Case, command: str, readable: Sequence[tuple[PolicyRule, Rule]]
) -> str | None:
    patterns = {
        held.text: rule.specifier
        for held, rule in readable
        if rule.tool == "bash" and rule.specifier is not None
    }
    is_foreign = case.call.analysis is None or case.call.analysis.foreign_git
    if _writes_afar(case) or not bash.is_covered(
        list(patterns.values()), command, foreign_git=is_foreign
    ):
        return None  # a rule on a command is not one on where its output may go
    for text, pattern in patterns.items():
        if bash.rule_matches(pattern, command, behavior="allow"):
            return text
    if bash.is_covered((), command, foreign_git=is_foreign):
        return None  # it needs no rule
    needed = _smallest_cover(command, [], list(patterns.values()))
    return ", ".join(text for text, pattern in patterns.items() if pattern in needed)


def _smallest_cover(command: str, given: list[str], among: list[str]) -> list[str]:
    """The fewest of `among` that cover a command together with what is given, by halving."""
    if given and bash.is_covered(given, command):
        return []
    if len(among) == 1:
        return among
    left, right = among[: len(among) // 2], among[len(among) // 2 :]
    from_right = _smallest_cover(command, [*given, *left], right)
    from_left = _smallest_cover(command, [*given, *from_right], left)
    return [*from_left, *from_right]


def _writes_afar(case: _Case) -> bool:
    has_writes = any(path.access == "write" for path in case.call.paths)
    is_opaque = case.call.analysis is None or case.call.analysis.opaque
    return has_writes and (is_opaque or case.outside is not None)


def _matching_path_rules(case: _Case, readable: Sequence[tuple[PolicyRule, Rule]]) -> str | None:
    used: dict[str, None] = {}
    for touched in case.call.paths:
        for held, rule in readable:
            is_named = rule.tool in FILE_TOOLS and is_about(rule, case.call.tool)
            if not is_named or rule.specifier is None:
                continue
            if permits_path(rule.specifier, touched, case.policy.roots(held)):
                used[held.text] = None
                break
        else:
            return None
    return ", ".join(used) or None


def _read_only_call(case: _Case) -> Decision | None:
    if case.call.tool in NETWORK_TOOLS or not case.is_read_only or case.outside:
        return None
    where = "sandbox" if case.call.analysis and case.call.analysis.opaque else "workspace"
    return Decision(decision="allow", gate="default", reason=f"it only reads, in the {where}")


def _sandboxed_call(case: _Case) -> Decision | None:
    if case.call.command is None or not case.is_sandboxed:
        return None
    if not case.policy.sandbox_allows_bash:
        return None
    rule = "sandbox.autoAllowBashIfSandboxed"
    reason = "it runs in the sandbox, which holds it"
    return Decision(decision="allow", gate="default", rule=rule, reason=reason)


def _ask_by_default(case: _Case, why: str = "") -> Decision:
    if case.mode == "auto" and not case.grants.is_mistrusted:
        return Decision(
            decision="ask",
            gate="mode",
            rule=CLASSIFIER,
            reason=why or f"no rule is about it: {_ask_reason(case)}",
            asks="classifier",
        )
    return Decision(
        decision="ask",
        gate="default",
        reason=why or f"no rule allows it: {_ask_reason(case)}",
    )


def _ask_reason(case: _Case) -> str:
    verdict = case.call.analysis
    if case.mode == "bypassPermissions":
        return "the mode bypassPermissions holds only in a sandbox, or where it is set explicitly"
    if case.mode == "auto" and case.grants.is_mistrusted:
        return "the classifier has said no too often"
    if case.outside is not None:
        return f"{case.outside.link} is outside of the workspace"
    if verdict is not None and verdict.read_only:
        return "which files it reads cannot be told before it runs"
    if verdict is not None:
        return verdict.reason or f"{_describe(case)} may change something"
    return f"{_describe(case)} is not known to be harmless"


def _describe(case: _Case) -> str:
    if case.call.command is not None:
        return "the command"
    return claude_code_name(case.call.tool)


_STEPS: tuple[Callable[[_Case], Decision | None], ...] = (
    _deny_rules,
    _plan_mode,
    _ask_rules,
    _person_required,
    _protected_paths,
    _bypass_mode,
    _possible_rules,
    _accept_edits,
    _allow_rules,
    _read_only_call,
    _sandboxed_call,
)
