"""The policy a session starts with: rules, mode and folders, stored in the log as JSON; and the
rules that skills in use add.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, TypeVar, get_args

from msgspec import Struct
from msgspec.structs import replace

from mainspring.core.errors import InvalidInput
from mainspring.core.events import Permission, SkillUsed
from mainspring.harness.permissions.path_rules import (
    PathAccess,
    PatternRoots,
    forbids_path,
    is_inside,
)
from mainspring.harness.permissions.protected_files import fold_path, is_protected
from mainspring.harness.permissions.rule import Rule, is_about, parse_rule
from mainspring.harness.permissions.tool_names import EDIT_TOOLS

Mode: TypeAlias = Literal[
    "default", "acceptEdits", "plan", "auto", "dontAsk", "bypassPermissions", "bubble"
]
Scope: TypeAlias = Literal["managed", "user", "project", "local", "session"]
Bypass: TypeAlias = Literal["sandboxed", "anywhere", "never"]

MODES: tuple[Mode, ...] = get_args(Mode)
_MODES_BY_FREEDOM: tuple[Mode, ...] = (
    *("plan", "dontAsk", "bubble", "default", "acceptEdits", "auto", "bypassPermissions"),
)
"""From the strictest to the most permissive."""
T = TypeVar("T")


class PolicyRule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rule with its behavior and its source."""

    text: str
    behavior: Permission
    scope: Scope = "session"
    folder: str = ""
    """The folder that `/x` in it is relative to; the workspace by default."""
    source: str = ""
    """The file that contains it."""


class Policy(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`None` means not set."""

    workspace: str = "/"
    """The workspace folder, links resolved."""
    home: str = "/"
    rules: tuple[PolicyRule, ...] = ()
    """From the widest scope to the narrowest. A deny rule applies in any position."""
    mode: Mode | None = None
    directories: tuple[str, ...] = ()
    """Further folders that the agent may work in; absolute."""
    protected: tuple[str, ...] = ()
    """Absolute paths that are protected here in addition to the general list: paths that the git
    configuration names and that trusted hooks run, including their contents."""
    sandbox_allows_bash: bool | None = None
    """Commands in a sandbox need no approval."""
    bypass: Bypass | None = None
    """Where the mode bypassPermissions may take effect: in a real sandbox by default."""
    hooks_fail_open: bool | None = None
    """A failing hook allows the call, as in Claude Code; by default it denies the call."""

    def roots(self, rule: PolicyRule) -> PatternRoots:
        folder = rule.folder or self.workspace
        return PatternRoots(folder=folder, cwd=self.workspace, home=self.home)


def parse_mode(text: str) -> Mode:
    """Raises: InvalidInput."""
    if text == "manual":
        return "default"
    for mode in MODES:
        if text == mode:
            return mode
    choices = ", ".join(mode for mode in MODES if mode != "bubble")  # nobody chooses bubble
    raise InvalidInput(f"{text!r} is not a mode; the modes are {choices}")


def stricter_mode(first: Mode, other: Mode) -> Mode:
    """The stricter of two modes."""
    return first if _MODES_BY_FREEDOM.index(first) <= _MODES_BY_FREEDOM.index(other) else other


def merge_policies(under: Policy, over: Policy) -> Policy:
    """All rules and folders of both; for single values, `over` wins."""
    return Policy(
        workspace=over.workspace,
        home=over.home,
        rules=(*under.rules, *over.rules),
        mode=_override(under.mode, over.mode),
        directories=tuple(dict.fromkeys((*under.directories, *over.directories))),
        protected=tuple(dict.fromkeys((*under.protected, *over.protected))),
        sandbox_allows_bash=_override(under.sandbox_allows_bash, over.sandbox_allows_bash),
        bypass="never" if "never" in (under.bypass, over.bypass) else over.bypass or under.bypass,
        hooks_fail_open=_override(under.hooks_fail_open, over.hooks_fail_open),
    )


def _override(under: T | None, over: T | None) -> T | None:
    return under if over is None else over


def remove_denied(tools: Mapping[str, T], policy: Policy) -> dict[str, T]:
    """The tools that the model sees, without those that a rule denies for every input."""
    denying = [rule_of(entry) for entry in policy.rules if entry.behavior == "deny"]
    bare = [rule for rule in denying if rule is not None and rule.specifier is None]
    return {name: tool for name, tool in tools.items() if not any(is_about(r, name) for r in bare)}


def rule_of(entry: PolicyRule) -> Rule | None:
    """`None` if it is invalid: if it was meant to forbid, the caller must assume the worst."""
    try:
        return parse_rule(entry.text, behavior=entry.behavior)
    except InvalidInput:
        return None


def relocate_policy(policy: Policy, workspace: str) -> Policy:
    """The policy for a copy of the workspace: the rules for a file also apply to its copy."""
    rules = (item for entry in policy.rules for item in _relocate_rule(entry, policy, workspace))
    copies = (
        f"{workspace}{path.removeprefix(policy.workspace)}"
        for path in policy.protected
        if is_inside(path, (policy.workspace,))
    )
    protected = tuple(dict.fromkeys((*policy.protected, *copies)))
    return replace(policy, workspace=workspace, rules=tuple(rules), protected=protected)


def _relocate_rule(entry: PolicyRule, policy: Policy, workspace: str) -> list[PolicyRule]:
    """A rule for the copy; one with the workspace's absolute path applies to both."""
    within = f"{entry.folder}/".removeprefix(f"{policy.workspace}/")
    if entry.folder and within != f"{entry.folder}/":
        entry = replace(entry, folder=f"{workspace}/{within}".rstrip("/"))
    rule_text = entry.text.replace("(~/", f"(/{policy.home.rstrip('/')}/", 1)
    copied = rule_text.replace(f"(/{policy.workspace}/", f"(/{workspace}/", 1)
    return [entry] if copied == rule_text else [entry, replace(entry, text=copied)]


def is_guarded(policy: Policy, path: str) -> bool:
    """Whether changing an absolute path needs approval, whatever the mode and the rules."""
    # relative to the workspace: the folder that contains the workspace does not matter
    inner = path.removeprefix(policy.workspace) if is_inside(path, (policy.workspace,)) else path
    return is_protected(inner) or is_inside(fold_path(path), map(fold_path, policy.protected))


def is_hidden(policy: Policy, link: str, target: str) -> bool:
    """Whether a path may never be read: for tools that search folders."""
    access = PathAccess(link=link, target=target, access="read")
    return _is_denied(policy, access, frozenset(("read",)))


def is_unchangeable(policy: Policy, link: str, target: str) -> bool:
    """Whether a path may never be written by any tool."""
    return _is_denied(policy, PathAccess(link=link, target=target, access="write"), EDIT_TOOLS)


def _is_denied(policy: Policy, path: PathAccess, tools: frozenset[str]) -> bool:
    for entry in policy.rules:
        rule = rule_of(entry) if entry.behavior == "deny" else None
        if rule is None or rule.tool not in tools or rule.specifier is None:
            continue
        if forbids_path(rule.specifier, path, policy.roots(entry)):
            return True
    return False


def with_skill_rules(policy: Policy, skills: Sequence[SkillUsed]) -> Policy:
    """The policy with the rules of the skills in use; deny and ask rules still take precedence."""
    if not skills:
        return policy
    skill_rules = (rule for skill in skills for rule in _skill_rules(skill))
    return replace(policy, rules=(*policy.rules, *skill_rules))


def _skill_rules(skill: SkillUsed) -> list[PolicyRule]:
    source = f"skill {skill.name}"
    return [
        *(PolicyRule(text=text, behavior="allow", source=source) for text in skill.allowed_tools),
        *(PolicyRule(text=text, behavior="deny", source=source) for text in skill.disallowed_tools),
    ]
