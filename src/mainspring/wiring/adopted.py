"""The rules and hooks that a session begins with, and keeps whatever becomes of the files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec
from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from mainspring.capabilities.hooks.config import HookConfig, parse_hooks
from mainspring.config import Settings
from mainspring.core.envelope import KnownPayload
from mainspring.core.events import PermissionUpdate, PermissionUpdated
from mainspring.core.facts import PolicyAdopted
from mainspring.harness.permissions.policy import Mode, Policy
from mainspring.runtime.kit import Opening
from mainspring.wiring.policies import LoadedPolicy, load_policy


class Adopted(Struct, frozen=True, kw_only=True, omit_defaults=True):
    policy: Policy
    hooks: tuple[HookConfig, ...] = ()
    is_trusted: bool = False
    """Whether the project's own hooks may run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    adopted: Adopted
    loaded: LoadedPolicy
    """What the files say now: settings of the sandbox are always the current ones."""
    facts: tuple[KnownPayload, ...]
    warnings: tuple[str, ...]


async def adopt(settings: Settings, opening: Opening, workspace: Path, mode: Mode | None) -> Rules:
    """Those that the session has, or those that the files have now.

    Raises:
        InvalidInput: a file cannot be understood.
    """
    home = Path(settings.home)
    loaded = await to_thread.run_sync(lambda: load_policy(workspace, home=home))
    if opening.thread.gear.policy is not None:
        return await _kept(opening, loaded, mode)
    hooks = tuple(
        parse_hooks({"hooks": each.hooks}, scope=each.scope, source=each.source)
        for each in loaded.hooks
        if each.scope != "session"
    )
    policy = replace(loaded.policy, mode=mode or loaded.policy.mode)
    adopted = Adopted(policy=policy, hooks=hooks, is_trusted=loaded.is_trusted)
    kept = await opening.writer.put_blob(
        msgspec.json.encode(adopted), media_type="application/json"
    )
    fact = PolicyAdopted(policy=kept.hash, mode=policy.mode or "default")
    warnings = (*loaded.warnings, *(warning for config in hooks for warning in config.warnings))
    return Rules(adopted=adopted, loaded=loaded, facts=(fact,), warnings=warnings)


async def _kept(opening: Opening, loaded: LoadedPolicy, mode: Mode | None) -> Rules:
    assert opening.thread.gear.policy is not None
    adopted = msgspec.json.decode(await opening.log.blob(opening.thread.gear.policy), type=Adopted)
    # an operator's new prohibition holds at once; it can only make things stricter
    known = {rule.text for rule in adopted.policy.rules if rule.behavior != "allow"}
    new = tuple(
        rule
        for rule in loaded.policy.rules
        if rule.scope == "managed" and rule.behavior != "allow" and rule.text not in known
    )
    policy = replace(adopted.policy, rules=(*new, *adopted.policy.rules))
    facts: tuple[KnownPayload, ...] = ()
    if mode is not None:
        update = PermissionUpdate(type="setMode", mode=mode)
        facts = (PermissionUpdated(updates=(update,), by="operator"),)
    return Rules(adopted=replace(adopted, policy=policy), loaded=loaded, facts=facts, warnings=())
