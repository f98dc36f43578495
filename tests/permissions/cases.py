"""Calls and policies for tests of permissions, built by hand: no file system, no session."""

from collections.abc import Mapping
from datetime import UTC, datetime

from mainspring.core.events import Permission
from mainspring.core.tool import SAFE_READ, Traits
from mainspring.harness.gates import Decision
from mainspring.harness.permissions.decide import decide
from mainspring.harness.permissions.judged import Judged, Place, judged_call
from mainspring.harness.permissions.policy import HeldRule, Policy
from mainspring.harness.permissions.standing import Standing

WORKSPACE = "/home/me/project"
HOME = "/home/me"
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
READS = frozenset(("read", "glob", "grep"))


def place(links: Mapping[str, str] | None = None, aliases: tuple[str, ...] = ()) -> Place:
    known = links or {}
    return Place(
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
) -> Judged:
    usual = SAFE_READ if tool in READS else Traits()
    return judged_call(tool, given, traits or usual, place(links))


def held(behavior: Permission, *texts: str) -> tuple[HeldRule, ...]:
    return tuple(
        HeldRule(text=text, behavior=behavior, scope="project", folder=WORKSPACE) for text in texts
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
    judged: Judged,
    policy: Policy | None = None,
    standing: Standing | None = None,
    *,
    is_sandboxed: bool = False,
    now: datetime = NOW,
) -> Decision:
    return decide(
        judged, policy or rules(), standing or Standing(), now=now, is_sandboxed=is_sandboxed
    )
