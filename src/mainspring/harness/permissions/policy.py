"""The rules that hold in a session from its start: a value, kept in the log as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, TypeVar, get_args

import msgspec
from msgspec import Struct

from mainspring.core.errors import InvalidInput
from mainspring.core.events import Permission
from mainspring.harness.permissions.names import EDITING
from mainspring.harness.permissions.paths import Roots, Touched, is_hit, is_inside
from mainspring.harness.permissions.protected import fold_path, is_protected
from mainspring.harness.permissions.rules import Rule, is_about, parse_rule

Mode: TypeAlias = Literal[
    "default", "acceptEdits", "plan", "auto", "dontAsk", "bypassPermissions", "bubble"
]
Scope: TypeAlias = Literal["managed", "user", "project", "local", "session"]
Bypass: TypeAlias = Literal["sandboxed", "anywhere", "never"]

MODES: tuple[Mode, ...] = get_args(Mode)
_FREEDOM: tuple[Mode, ...] = (
    "plan",
    "dontAsk",
    "bubble",
    "default",
    "acceptEdits",
    "auto",
    "bypassPermissions",
)
"""From the one that lets the least pass to the one that lets the most pass."""
T = TypeVar("T")


class HeldRule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rule with what it does and where it comes from."""

    text: str
    behavior: Permission
    scope: Scope = "session"
    folder: str = ""
    """What `/x` in it is relative to; where the work is done, unless given."""
    source: str = ""
    """The file that it stands in."""


class Policy(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`None` is what nobody has said anything about."""

    workspace: str = "/"
    """Where the work is done, links followed."""
    home: str = "/"
    rules: tuple[HeldRule, ...] = ()
    """From the widest scope to the narrowest. A deny holds wherever it stands."""
    mode: Mode | None = None
    directories: tuple[str, ...] = ()
    """Folders beside the workspace that may be worked in; absolute."""
    protected: tuple[str, ...] = ()
    """Paths, absolute, that are protected here besides those that are everywhere: what the git
    configuration names and what trusted hooks run, each with what is in it."""
    sandbox_allows_bash: bool | None = None
    """Commands that a sandbox holds need no asking."""
    bypass: Bypass | None = None
    """Where the mode bypassPermissions may be what it says: in a real sandbox, unless given."""
    hooks_fail_open: bool | None = None
    """A gate that breaks lets calls pass, as in Claude Code; ours stop them."""

    def roots(self, rule: HeldRule) -> Roots:
        return Roots(folder=rule.folder or self.workspace, cwd=self.workspace, home=self.home)


def encode_policy(policy: Policy) -> bytes:
    return msgspec.json.encode(policy)


def decode_policy(content: bytes) -> Policy:
    """Raises: InvalidInput."""
    try:
        return msgspec.json.decode(content, type=Policy)
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"not a policy: {error}") from error


def parse_mode(text: str) -> Mode:
    """Raises: InvalidInput."""
    if text == "manual":
        return "default"
    for mode in MODES:
        if text == mode:
            return mode
    chosen = ", ".join(mode for mode in MODES if mode != "bubble")  # which nobody chooses
    raise InvalidInput(f"{text!r} is not a mode; there are {chosen}")


def stricter(one: Mode, other: Mode) -> Mode:
    """The one that lets less pass; of two that let the same pass, the first."""
    return one if _FREEDOM.index(one) <= _FREEDOM.index(other) else other


def merge(under: Policy, over: Policy) -> Policy:
    """Both together: all rules and folders; of what only one can say, the word of `over`."""
    return Policy(
        workspace=over.workspace,
        home=over.home,
        rules=(*under.rules, *over.rules),
        mode=_later(under.mode, over.mode),
        directories=tuple(dict.fromkeys((*under.directories, *over.directories))),
        protected=tuple(dict.fromkeys((*under.protected, *over.protected))),
        sandbox_allows_bash=_later(under.sandbox_allows_bash, over.sandbox_allows_bash),
        bypass="never" if "never" in (under.bypass, over.bypass) else over.bypass or under.bypass,
        hooks_fail_open=_later(under.hooks_fail_open, over.hooks_fail_open),
    )


def _later(under: T | None, over: T | None) -> T | None:
    return under if over is None else over


def remove_denied(tools: Mapping[str, T], policy: Policy) -> dict[str, T]:
    """The tools that the model is told of: none that is denied whatever its input."""
    denying = [parsed(held) for held in policy.rules if held.behavior == "deny"]
    bare = [rule for rule in denying if rule is not None and rule.specifier is None]
    return {
        name: tool for name, tool in tools.items() if not any(is_about(rule, name) for rule in bare)
    }


def parsed(held: HeldRule) -> Rule | None:
    """`None` if it cannot be read: whoever forbids by it must then assume the worst."""
    try:
        return parse_rule(held.text, behavior=held.behavior)
    except InvalidInput:
        return None


def moved(policy: Policy, workspace: str) -> Policy:
    """For work in a copy of the workspace: what holds for a file holds for the copy of it."""
    rules = (each for held in policy.rules for each in _moved(held, policy, workspace))
    copies = (
        f"{workspace}{path.removeprefix(policy.workspace)}"
        for path in policy.protected
        if is_inside(path, (policy.workspace,))
    )
    protected = tuple(dict.fromkeys((*policy.protected, *copies)))
    return msgspec.structs.replace(
        policy, workspace=workspace, rules=tuple(rules), protected=protected
    )


def _moved(held: HeldRule, policy: Policy, workspace: str) -> list[HeldRule]:
    """A rule whose paths are those of the workspace; one that names it in full holds in both."""
    within = f"{held.folder}/".removeprefix(f"{policy.workspace}/")
    if held.folder and within != f"{held.folder}/":
        held = msgspec.structs.replace(held, folder=f"{workspace}/{within}".rstrip("/"))
    named = held.text.replace("(~/", f"(/{policy.home.rstrip('/')}/", 1)
    copied = named.replace(f"(/{policy.workspace}/", f"(/{workspace}/", 1)
    return [held] if copied == named else [held, msgspec.structs.replace(held, text=copied)]


def is_guarded(policy: Policy, path: str) -> bool:
    """Whether a change to a path, absolute, is asked about whatever the mode and the rules say."""
    # as seen from the workspace: where that itself stands says nothing about what is in it
    seen = path.removeprefix(policy.workspace) if is_inside(path, (policy.workspace,)) else path
    return is_protected(seen) or is_inside(fold_path(path), map(fold_path, policy.protected))


def is_hidden(policy: Policy, link: str, target: str) -> bool:
    """Whether a path may never be read: for tools that look through folders."""
    touched = Touched(link=link, target=target, access="read")
    return _is_denied(policy, touched, frozenset(("read",)))


def is_unchangeable(policy: Policy, link: str, target: str) -> bool:
    """Whether a path may never be written, by whatever tool."""
    return _is_denied(policy, Touched(link=link, target=target, access="write"), EDITING)


def _is_denied(policy: Policy, touched: Touched, tools: frozenset[str]) -> bool:
    for held in policy.rules:
        rule = parsed(held) if held.behavior == "deny" else None
        if rule is None or rule.tool not in tools or rule.specifier is None:
            continue
        if is_hit(rule.specifier, touched, policy.roots(held)):
            return True
    return False
