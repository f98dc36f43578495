"""Grants, revocations and counts since the session's policy was adopted: a fold of its events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from mainspring.core import events
from mainspring.core.envelope import AnyPayload
from mainspring.core.errors import InvalidInput
from mainspring.harness.permissions.policy import Mode, PolicyRule, parse_mode
from mainspring.harness.permissions.rule import parse_rule, rule_text

MAX_BLOCKS_IN_A_ROW = 3  # refusals of the classifier; then a person is asked
MAX_BLOCKS = 20  # in a session, likewise
CLASSIFIER = "auto"
"""The `rule` of the classifier's decisions; their gate is `mode`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A permission that a person has granted for a limited time."""

    id: str
    rules: tuple[PolicyRule, ...]
    expires_at: datetime | None = None
    max_uses: int | None = None
    uses: int = 0

    def is_live(self, now: datetime) -> bool:
        is_over = self.expires_at is not None and now >= self.expires_at
        return not is_over and (self.max_uses is None or self.uses < self.max_uses)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantState:
    mode: Mode | None = None
    """The mode that was set last; `None`: the policy's."""
    rules: tuple[PolicyRule, ...] = ()
    grants: Mapping[str, Grant] = field(default_factory=dict[str, Grant])
    revoked: frozenset[str] = frozenset()
    """Allow rules, including the policy's, that no longer apply."""
    directories: tuple[str, ...] = ()
    left_directories: frozenset[str] = frozenset()
    """Folders, including the policy's, that are no longer part of the workspace."""
    allowed_protected: frozenset[str] = frozenset()
    """Protected paths that the operator allows file tools to change."""
    blocks_in_a_row: int = 0
    blocks: int = 0
    """How many calls the classifier has denied."""

    @property
    def is_mistrusted(self) -> bool:
        """The classifier has denied so many calls that a person should look."""
        return self.blocks_in_a_row >= MAX_BLOCKS_IN_A_ROW or self.blocks >= MAX_BLOCKS


def check_updates(updates: tuple[events.PermissionUpdate, ...]) -> None:
    """Raises: InvalidInput: an update cannot be applied. Call it before writing them to the log."""
    for update in updates:
        for rule in update.rules:
            is_removed = update.type == "removeRules"
            parse_rule(rule_text(rule), behavior=None if is_removed else update.behavior)
        if update.type in ("addRules", "replaceRules") and update.behavior is None:
            raise InvalidInput(f"{update.type} must have a behavior: allow, ask or deny")
        if update.type == "setMode":
            parse_mode(update.mode or "")
        if update.type == "allowProtected":
            raise InvalidInput("only --allow-protected permits changes to protected paths")
        if update.expires_at is not None and _parse_time(update.expires_at) == _LONG_AGO:
            raise InvalidInput(f"{update.expires_at!r} is not a time")


def apply(grants: GrantState, payload: AnyPayload) -> GrantState:
    """Apply one event. An update that cannot be understood grants nothing."""
    match payload:
        case events.PermissionUpdated(updates=updates, by=by):
            for update in updates:
                if update.type == "allowProtected":
                    paths = update.paths if by == "operator" else ()
                    paths_allowed = grants.allowed_protected.union(paths)
                    grants = replace(grants, allowed_protected=paths_allowed)
                else:
                    grants = _UPDATES[update.type](grants, update)
            return grants
        case events.ToolCallAuthorized():
            return _count_decision(grants, payload)
        case events.SessionReceived():
            return GrantState()  # the grants were made on another installation
        case events.SessionForked():
            # the grants were made to the other session
            return replace(grants, grants={}, allowed_protected=frozenset())
        case _:
            return grants


def _count_decision(grants: GrantState, payload: events.ToolCallAuthorized) -> GrantState:
    match payload:
        case events.ToolCallAuthorized(decision="deny", gate="mode", rule="auto"):
            row = grants.blocks_in_a_row + 1
            return replace(grants, blocks=grants.blocks + 1, blocks_in_a_row=row)
        case events.ToolCallAuthorized(decision="allow", gate="grant", rule=str(grant_id)):
            grant = grants.grants.get(grant_id)
            if grant is None:
                return grants
            used_grant = replace(grant, uses=grant.uses + 1)
            return replace(grants, grants={**grants.grants, grant_id: used_grant})
        case events.ToolCallAuthorized(decision="allow", gate="mode" | "person"):
            return replace(grants, blocks_in_a_row=0) if grants.blocks_in_a_row else grants
        case _:
            return grants


def _add(grants: GrantState, update: events.PermissionUpdate) -> GrantState:
    behavior = update.behavior
    if behavior is None:
        return grants
    rules = tuple(PolicyRule(text=rule_text(item), behavior=behavior) for item in update.rules)
    is_limited = update.expires_at is not None or update.max_uses is not None
    if behavior == "allow" and (update.grant_id is not None or is_limited):
        grant = Grant(
            id=update.grant_id or " ".join(rule.text for rule in rules),
            rules=rules,
            expires_at=None if update.expires_at is None else _parse_time(update.expires_at),
            max_uses=update.max_uses,
        )
        return replace(grants, grants={**grants.grants, grant.id: grant})
    revoked = grants.revoked
    if behavior == "allow":
        revoked -= {rule.text for rule in rules}
    new = tuple(rule for rule in rules if rule not in grants.rules)
    return replace(grants, rules=grants.rules + new, revoked=revoked)


def _replace(grants: GrantState, update: events.PermissionUpdate) -> GrantState:
    rules = tuple(rule for rule in grants.rules if rule.behavior != update.behavior)
    other_grants = {} if update.behavior == "allow" else dict(grants.grants)
    return _add(replace(grants, rules=rules, grants=other_grants), update)


def _remove(state: GrantState, update: events.PermissionUpdate) -> GrantState:
    """Remove grants by id, and rules by text."""
    texts = {rule_text(item) for item in update.rules}
    behavior = update.behavior or "allow"
    grants = {
        grant.id: grant
        for grant in state.grants.values()
        if grant.id != update.grant_id and texts.isdisjoint(rule.text for rule in grant.rules)
    }
    rules = tuple(r for r in state.rules if r.behavior != behavior or r.text not in texts)
    if behavior != "allow":
        return replace(state, rules=rules)
    return replace(state, rules=rules, grants=grants, revoked=state.revoked | texts)


def _set_mode(grants: GrantState, update: events.PermissionUpdate) -> GrantState:
    try:
        mode = parse_mode(update.mode or "")
    except InvalidInput:
        return grants
    return replace(grants, mode=mode, blocks=0, blocks_in_a_row=0)


def _add_directories(grants: GrantState, update: events.PermissionUpdate) -> GrantState:
    return replace(
        grants,
        directories=tuple(dict.fromkeys((*grants.directories, *update.directories))),
        left_directories=grants.left_directories - set(update.directories),
    )


def _remove_directories(grants: GrantState, update: events.PermissionUpdate) -> GrantState:
    return replace(
        grants,
        directories=tuple(
            directory for directory in grants.directories if directory not in update.directories
        ),
        left_directories=grants.left_directories | set(update.directories),
    )


_UPDATES: dict[str, Callable[[GrantState, events.PermissionUpdate], GrantState]] = {
    "addRules": _add,
    "replaceRules": _replace,
    "removeRules": _remove,
    "setMode": _set_mode,
    "addDirectories": _add_directories,
    "removeDirectories": _remove_directories,
}

_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


def _parse_time(text: str) -> datetime:
    """Parse a time; an invalid one counts as long past."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return _LONG_AGO
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
