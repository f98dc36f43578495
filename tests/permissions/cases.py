"""Calls and policies for tests of permissions, built by hand: no file system, no session."""

from collections.abc import Mapping
from datetime import UTC, datetime

from mainspring.core.events import Permission
from mainspring.core.tool import SAFE_READ, Traits
from mainspring.harness.authorizer import Decision
from mainspring.harness.permissions.call_analysis import AnalyzedCall, CallLocation, analyze_call
from mainspring.harness.permissions.decide import decide
from mainspring.harness.permissions.grant_state import GrantState
from mainspring.harness.permissions.policy import Policy, PolicyRule

WORKSPACE = "/home/me/project"
HOME = "/home/me"
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
READS = frozenset(("read", "glob", "grep"))


def place(links: Mapping[str, str] | None = None, aliases: tuple[str, ...] = ()) -> CallLocation:
    known = links or {}
    return CallLocation(
        workspace=WORKSPACE,
        cwd=WORKSPACE,
        home=HOME,
        resolve=lambda path: known.get(path, path),
        aliases=aliases,
    )


def call(
    tool: str,
    *,
    links: Mapping[str, str] | None = None,
    traits: Traits | None = None,
    **given: object,
) -> AnalyzedCall:
    usual = SAFE_READ if tool in READS else Traits()
    return analyze_call(tool, given, traits or usual, place(links))


def held(behavior: Permission, *texts: str) -> tuple[PolicyRule, ...]:
    return tuple(
        PolicyRule(text=t, behavior=behavior, scope="project", folder=WORKSPACE) for t in texts
    )


def rules(
    *, allow: tuple[str, ...] = (), ask: tuple[str, ...] = (), deny: tuple[str, ...] = ()
) -> Policy:
    return Policy(
        workspace=WORKSPACE,
        home=HOME,
        rules=(*held("allow", *allow), *held("ask", *ask), *held("deny", *deny)),
    )


def decided(
    judged: AnalyzedCall,
    policy: Policy | None = None,
    standing: GrantState | None = None,
    *,
    is_sandboxed: bool = False,
    now: datetime = NOW,
) -> Decision:
    return decide(
        judged, policy or rules(), standing or GrantState(), now=now, is_sandboxed=is_sandboxed
    )
