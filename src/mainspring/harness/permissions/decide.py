"""Whether a call may run: a pure function of the call, the rules, the mode and people's grants.

`_STEPS`, at the end of this file, defines the order. If no step decides, a person is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from msgspec import Struct

from mainspring.core.events import Permission
from mainspring.harness.authorizer import Decision
from mainspring.harness.permissions.call_analysis import AnalyzedCall, bash
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
"""The `rule` of decisions about protected paths."""


class _Case(Struct, frozen=True, kw_only=True):
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
        removed = self.grants.left_directories
        return (self.policy.workspace, *(item for item in added if item not in removed))

    def rules(self, behavior: Permission) -> list[PolicyRule]:
        rules = (*self.policy.rules, *self.grants.rules)
        revoked = self.grants.revoked if behavior == "allow" else frozenset[str]()
        return [rule for rule in rules if rule.behavior == behavior and rule.text not in revoked]

    @property
    def is_read_only(self) -> bool:
        call, analysis = self.call, self.call.analysis
        if analysis is not None:
            is_confined = self.is_sandboxed and not self.has_secrets
            only_reads = analysis.read_only or (self.is_sandboxed and analysis.read_only_in_sandbox)
            return only_reads and (is_confined or not analysis.opaque)
        if call.tool.startswith("mcp__"):
            return False  # only the server's operator says that it is read-only
        if call.tool in READ_ANYTHING and self.has_secrets:
            return False
        is_internal = call.tool in INTERNAL_TOOLS and not call.paths  # a merge is an edit
        return call.traits.read_only or is_internal

    @property
    def has_secrets(self) -> bool:
        """Whether a rule denies reading some file in the workspace, or asks about it."""
        rules = map(rule_of, (*self.rules("deny"), *self.rules("ask")))
        return any(rule and rule.tool in READ_TOOLS and rule.specifier for rule in rules)

    def is_inside(self, access: PathAccess) -> bool:
        return all(is_inside(path, self.folders) for path in access.both)

    @property
    def outside(self) -> PathAccess | None:
        return next((path for path in self.call.paths if not self.is_inside(path)), None)


def decide(
    call: AnalyzedCall, policy: Policy, grants: GrantState, *, now: datetime, is_sandboxed: bool
) -> Decision:
    """Decide about a call. Never raises: if a call cannot be analyzed, a person is asked."""
    case = _Case(call=call, policy=policy, grants=grants, now=now, is_sandboxed=is_sandboxed)
    for step in _STEPS:
        decision = step(case)
        if decision is not None:
            break
    else:
        decision = _ask_by_default(case)
    return with_ask_target(decision, case.mode)


def with_ask_target(decision: Decision, mode: Mode) -> Decision:
    """The decision, completed with whom to ask in this mode; also for asks that no rule made."""
    if decision.decision != "ask":
        return decision
    if mode == "dontAsk":
        why = f"{decision.reason or 'it needs approval'}; in the mode dontAsk nobody is asked"
        gate = "mode" if decision.rule is None else decision.gate
        rule = decision.rule or "dontAsk"
        return replace(decision, decision="deny", gate=gate, rule=rule, reason=why)
    return replace(decision, asks="parent") if mode == "bubble" else decision


def _forbidding_rule(case: _Case, behavior: Permission) -> Decision | None:
    for policy_rule in case.rules(behavior):
        rule, roots = rule_of(policy_rule), case.policy.roots(policy_rule)
        if rule is not None and forbids(rule, case.call, roots, behavior):
            effect = "denies it" if behavior == "deny" else "requires a person's approval"
            reason = f"the {policy_rule.scope} rule {policy_rule.text} {effect}"
            return Decision(decision=behavior, gate="rule", rule=policy_rule.text, reason=reason)
    return None


def _unreadable_rule(case: _Case) -> Decision | None:
    """An invalid rule was meant to forbid something, and nobody knows what."""
    for policy_rule in (*case.rules("deny"), *case.rules("ask")):
        if rule_of(policy_rule) is None:
            text = policy_rule.text
            reason = f"the {policy_rule.behavior} rule {text!r} is invalid and may concern this"
            return Decision(decision="ask", gate="rule", rule=text, reason=reason)
    return None


def _plan_mode(case: _Case) -> Decision | None:
    call = case.call
    # A person may be asked about an MCP tool that declares itself read-only; others are denied.
    is_declared_reading = call.analysis is None and call.traits.read_only
    is_permitted = case.is_read_only or call.tool in NEEDS_A_PERSON or is_declared_reading
    if case.mode != "plan" or is_permitted:
        return None
    reason = f"the mode plan allows no changes, and {_describe(case)} may change something"
    return Decision(decision="deny", gate="mode", rule="plan", reason=reason)


def _person_required(case: _Case) -> Decision | None:
    if case.call.tool in NEEDS_A_PERSON:
        reason = "it needs an answer from a person"
        return Decision(decision="ask", gate="guardrail", rule="a person", reason=reason)
    if case.call.traits.needs_person:
        reason = "the tool requires a person's approval"
        return Decision(decision="ask", gate="guardrail", rule="needs a person", reason=reason)
    analysis = case.call.analysis
    if analysis is not None and analysis.critical:
        why = "it may delete a home folder, the workspace or files that the system needs"
        return Decision(decision="ask", gate="guardrail", rule="critical path", reason=why)
    return None


def _bypass_mode(case: _Case) -> Decision | None:
    if case.mode != "bypassPermissions":
        return None
    bypass = case.policy.bypass or "sandboxed"
    if bypass == "never" or (bypass == "sandboxed" and not case.is_sandboxed):
        return None
    reason = "the mode bypassPermissions allows it"
    return Decision(decision="allow", gate="mode", rule="bypassPermissions", reason=reason)


def _protected_paths(case: _Case) -> Decision | None:
    """In every mode, even if a rule allows it: deliberately stricter than Claude Code."""
    for path in _possible_writes(case):
        if _is_guarded(case, path):
            reason = f"{path.link} is protected: its contents may run later or control what runs"
            return Decision(decision="ask", gate="guardrail", rule=PROTECTED, reason=reason)
    return None


def _possible_writes(case: _Case) -> tuple[PathAccess, ...]:
    call = case.call
    if call.analysis is not None and call.analysis.read_only:
        return ()
    if call.analysis is not None and not case.is_sandboxed:
        # a command that writes may first change to a folder that it only names
        return (*call.paths, *call.surely_written)
    # a sandbox prevents programs from changing files that they only name
    writes_no_files = call.tool in INTERNAL_TOOLS | NETWORK_TOOLS | NEEDS_A_PERSON
    named_paths = () if writes_no_files else call.surely_written
    written_paths = () if call.analysis else (path for path in call.paths if path.access == "write")
    return (*written_paths, *named_paths)


def _is_guarded(case: _Case, access: PathAccess) -> bool:
    is_own_name = case.call.analysis is None and access.link == access.target
    if is_own_name and access.link in case.grants.allowed_protected:
        return False
    return any(is_guarded(case.policy, path) for path in access.both)


def _accept_edits(case: _Case) -> Decision | None:
    """Edits in the workspace, in the modes that allow them."""
    if case.mode not in ("acceptEdits", "auto") or not case.call.paths or case.outside:
        return None
    analysis = case.call.analysis
    if analysis is None:
        is_edit = case.call.tool in EDIT_TOOLS
    else:
        is_edit = analysis.edits and not analysis.opaque
    if not is_edit:
        return None
    reason = f"the mode {case.mode} allows edits in the workspace"
    return Decision(decision="allow", gate="mode", rule=case.mode, reason=reason)


def _possible_rules(case: _Case) -> Decision | None:
    """A rule may forbid what the command actually does when it runs."""
    rules = [
        (rule, case.policy.roots(policy_rule))
        for policy_rule in (*case.rules("deny"), *case.rules("ask"))
        if (rule := rule_of(policy_rule)) is not None
    ]
    for match in possible_matches(case.call, rules, is_sandboxed=case.is_sandboxed):
        if not match.is_program or not _is_program_allowed(case):
            return _ask_by_default(case, match.text)
    return None


def _is_program_allowed(case: _Case) -> bool:
    """Whether a rule allows exactly this program, or the sandbox allows all commands."""
    if case.is_sandboxed and case.policy.sandbox_allows_bash:
        return True
    grants = [grant for grant in case.grants.grants.values() if grant.is_live(case.now)]
    rules = [*case.rules("allow"), *(rule for grant in grants for rule in grant.rules)]
    specific_rules = [
        item for item in rules if (rule := rule_of(item)) and rule.specifier is not None
    ]
    return _matching_rules(case, specific_rules) is not None


def _allow_rules(case: _Case) -> Decision | None:
    rules = case.rules("allow")
    if texts := _matching_rules(case, rules):
        reason = f"{texts} allows it"
        return Decision(decision="allow", gate="rule", rule=texts, reason=reason)
    for grant in case.grants.grants.values():
        if grant.is_live(case.now) and _matching_rules(case, [*rules, *grant.rules]):
            texts = ", ".join(rule.text for rule in grant.rules)
            reason = f"a person granted {texts}"
            return Decision(decision="allow", gate="grant", rule=grant.id, reason=reason)
    return None


def _matching_rules(case: _Case, rules: Sequence[PolicyRule]) -> str | None:
    """The rule, or the rules together, that allow the whole call."""
    valid = [(item, rule) for item in rules if (rule := rule_of(item)) is not None]
    for policy_rule, rule in valid:
        if permits(rule, case.call):
            return policy_rule.text
    if case.call.command is not None:
        return _matching_command_rules(case, case.call.command, valid)
    return _matching_path_rules(case, valid)


def _matching_command_rules(
    case: _Case, command: str, rules: Sequence[tuple[PolicyRule, Rule]]
) -> str | None:
    patterns = {
        policy_rule.text: rule.specifier
        for policy_rule, rule in rules
        if rule.tool == "bash" and rule.specifier is not None
    }
    is_foreign = case.call.analysis is None or case.call.analysis.foreign_git
    if _writes_outside(case) or not bash.is_covered(
        list(patterns.values()), command, foreign_git=is_foreign
    ):
        return None  # a rule for a command does not cover where its output goes
    for text, pattern in patterns.items():
        if bash.rule_matches(pattern, command, behavior="allow"):
            return text
    if bash.is_covered((), command, foreign_git=is_foreign):
        return None  # it needs no rule
    needed = _smallest_cover(command, [], list(patterns.values()))
    return ", ".join(text for text, pattern in patterns.items() if pattern in needed)


def _smallest_cover(command: str, selected: list[str], candidates: list[str]) -> list[str]:
    """The fewest `candidates` that together with `selected` cover a command, by halving."""
    if selected and bash.is_covered(selected, command):
        return []
    if len(candidates) == 1:
        return candidates
    middle = len(candidates) // 2
    left, right = candidates[:middle], candidates[middle:]
    from_right = _smallest_cover(command, [*selected, *left], right)
    from_left = _smallest_cover(command, [*selected, *from_right], left)
    return [*from_left, *from_right]


def _writes_outside(case: _Case) -> bool:
    has_writes = any(path.access == "write" for path in case.call.paths)
    is_opaque = case.call.analysis is None or case.call.analysis.opaque
    return has_writes and (is_opaque or case.outside is not None)


def _matching_path_rules(case: _Case, rules: Sequence[tuple[PolicyRule, Rule]]) -> str | None:
    matching: dict[str, None] = {}
    for path in case.call.paths:
        for policy_rule, rule in rules:
            is_named = rule.tool in FILE_TOOLS and is_about(rule, case.call.tool)
            if not is_named or rule.specifier is None:
                continue
            if permits_path(rule.specifier, path, case.policy.roots(policy_rule)):
                matching[policy_rule.text] = None
                break
        else:
            return None
    return ", ".join(matching) or None


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
    reason = "it runs in the sandbox, which confines it"
    return Decision(decision="allow", gate="default", rule=rule, reason=reason)


def _ask_by_default(case: _Case, why: str = "") -> Decision:
    if case.mode == "auto" and not case.grants.is_mistrusted:
        return Decision(
            decision="ask",
            gate="mode",
            rule=CLASSIFIER,
            reason=why or f"no rule covers it: {_ask_reason(case)}",
            asks="classifier",
        )
    reason = why or f"no rule allows it: {_ask_reason(case)}"
    return Decision(decision="ask", gate="default", reason=reason)


def _ask_reason(case: _Case) -> str:
    analysis = case.call.analysis
    if case.mode == "bypassPermissions":
        return "the mode bypassPermissions applies only in a sandbox, or if it is set explicitly"
    if case.mode == "auto" and case.grants.is_mistrusted:
        return "the classifier has denied too many calls"
    if case.outside is not None:
        return f"{case.outside.link} is outside the workspace"
    if analysis is not None and analysis.read_only:
        return "which files it reads is unknown until it runs"
    if analysis is not None:
        return analysis.reason or f"{_describe(case)} may change something"
    return f"{_describe(case)} is not known to be harmless"


def _describe(case: _Case) -> str:
    if case.call.command is not None:
        return "the command"
    return claude_code_name(case.call.tool)


_STEPS: tuple[Callable[[_Case], Decision | None], ...] = (
    partial(_forbidding_rule, behavior="deny"),
    _plan_mode,
    partial(_forbidding_rule, behavior="ask"),
    _unreadable_rule,
    _person_required,
    _protected_paths,
    _bypass_mode,
    _possible_rules,
    _accept_edits,
    _allow_rules,
    _read_only_call,
    _sandboxed_call,
)
