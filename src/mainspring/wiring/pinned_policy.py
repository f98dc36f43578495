"""The policy and hooks a session starts with. They are pinned in its log, so editing a settings
file does not affect it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from mainspring.config import Settings
from mainspring.core.envelope import KnownPayload
from mainspring.core.errors import InvalidInput
from mainspring.core.events import PermissionUpdate, PermissionUpdated
from mainspring.core.facts import ContextAdded, PolicyAdopted
from mainspring.core.lazy_module import LazyModule
from mainspring.harness.permissions.grant_state import GrantState, apply
from mainspring.harness.permissions.path_rules import absolute_path
from mainspring.harness.permissions.policy import Mode, Policy, PolicyRule, is_guarded
from mainspring.harness.permissions.rule_descriptions import mode_notice
from mainspring.log.session_log import SessionLog
from mainspring.runtime.session.toolbox import SetupRequest
from mainspring.wiring.policy_loader import LoadedPolicy, load_policy
from mainspring.wiring.run_options import RunOptions
from mainspring.wiring.sandbox_environment import SessionPaths

if TYPE_CHECKING:
    from mainspring.wiring import plugin_hooks, session_hooks
else:
    plugin_hooks = LazyModule("mainspring.wiring.plugin_hooks")
    session_hooks = LazyModule("mainspring.wiring.session_hooks")  # most sessions have none


class PinnedPolicy(Struct, frozen=True, kw_only=True, omit_defaults=True):
    policy: Policy
    hooks: tuple[msgspec.Raw, ...] = ()
    """Each as its own JSON: what they mean is `wiring.hooks`'."""
    is_trusted: bool = False
    """Whether the project's own hooks may run."""
    hook_roots: tuple[str, ...] = ()
    """Folders whose files hooks run only as somebody has vouched for them; the workspace first."""
    hook_files: dict[str, str] = {}
    """Those files, by absolute path: their hash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRules:
    pinned_policy: PinnedPolicy
    loaded: LoadedPolicy
    """What the files say now: settings of the sandbox are always the current ones."""
    facts: tuple[KnownPayload, ...]
    warnings: tuple[str, ...]


async def pin_policy(
    settings: Settings, setup: SetupRequest, paths: SessionPaths, options: RunOptions
) -> SessionRules:
    """Those that the session has, or those that the files have now.

    Raises:
        InvalidInput: a file cannot be understood.
    """
    home, workspace = Path(settings.home), paths.workspace
    protected = _protected_paths(setup, paths)
    loaded = await to_thread.run_sync(
        lambda: load_policy(
            workspace, home=home, only_managed=options.is_served, agent=options.agent
        )
    )
    if setup.thread.session_state.policy is not None:
        return await _read_pinned(setup, loaded, options, protected)
    brought, vouched = loaded.hooks, dict(loaded.scripts)
    roots = [str(workspace), *map(os.path.realpath, [options.agent] if options.agent else [])]
    if not options.is_served:
        for item in await to_thread.run_sync(_plugin_and_skill_hooks, settings, setup, loaded):
            brought += item.settings
            roots += item.roots
            vouched |= item.scripts
    kept_hooks, odd = session_hooks.read_hooks(brought) if brought else ((), ())
    protected += tuple(loaded.scripts) if kept_hooks else ()
    policy = replace(
        loaded.policy,
        mode=options.mode or loaded.policy.mode,
        protected=protected,
        rules=(*loaded.policy.rules, *options.rules),
    )
    adopted = PinnedPolicy(
        policy=policy,
        hooks=kept_hooks,
        is_trusted=loaded.is_trusted,
        hook_roots=tuple(dict.fromkeys(roots)) if kept_hooks else (),
        hook_files=vouched if kept_hooks else {},
    )
    kept = await setup.writer.put_blob(msgspec.json.encode(adopted), media_type="application/json")
    mode = policy.mode or "default"
    facts: list[KnownPayload] = [PolicyAdopted(policy=kept.hash, mode=mode)]
    if mode == "plan":
        facts.append(_mode_message(mode))
    facts += _allowed_path_facts(setup, policy, options)
    warnings = (*loaded.warnings, *odd)
    return SessionRules(pinned_policy=adopted, loaded=loaded, facts=tuple(facts), warnings=warnings)


def _plugin_and_skill_hooks(
    settings: Settings, setup: SetupRequest, loaded: LoadedPolicy
) -> list[plugin_hooks.TrustedHooks]:
    """Those of plugins, and those of skills."""
    disabled = loaded.preferences.disabled_plugins
    folder = Path(loaded.policy.workspace)
    of_plugins = plugin_hooks.trusted_plugin_hooks(settings, folder, disabled)
    skills = {skill.file: skill for skill in setup.agent.skills if skill.hooks}
    return [of_plugins, plugin_hooks.trusted_skill_hooks(settings, folder, skills.values())]


def _mode_message(mode: Mode) -> ContextAdded:
    return ContextAdded(text=mode_notice(mode), source="mode")


def _protected_paths(setup: SetupRequest, paths: SessionPaths) -> tuple[str, ...]:
    """What is protected in this session besides: what the git configuration names, and the files of
    skills that somebody has vouched for as they are."""
    named = (str(paths.workspace / item) for item in paths.watched)
    agent = setup.agent
    called = (subagent.own.skills for subagent in agent.subagents if subagent.own is not None)
    skills = (
        skill.folder
        for skill in (*agent.skills, *(skill for several in called for skill in several))
        if skill.is_trusted and skill.kind == "skill" and skill.file
    )
    return tuple(dict.fromkeys((*named, *skills)))


async def _read_pinned(
    setup: SetupRequest, loaded: LoadedPolicy, options: RunOptions, protected: tuple[str, ...]
) -> SessionRules:
    assert setup.thread.session_state.policy is not None
    adopted = await read_pinned_policy(setup.log, setup.thread.session_state.policy, loaded)
    known = dict.fromkeys((*adopted.policy.protected, *protected))
    adopted = replace(adopted, policy=replace(adopted.policy, protected=tuple(known)))
    if options.is_served:  # the client may have given the session other tools meanwhile
        lasting = [rule for rule in adopted.policy.rules if rule.scope != "session"]
        policy = replace(adopted.policy, rules=(*lasting, *options.rules))
        adopted = replace(adopted, policy=policy)
    facts: tuple[KnownPayload, ...] = ()
    if options.mode is not None and options.mode != _mode_of(setup, adopted):
        update = PermissionUpdate(type="setMode", mode=options.mode)
        facts = (PermissionUpdated(updates=(update,), by="operator"), _mode_message(options.mode))
    facts += _allowed_path_facts(setup, adopted.policy, options)
    return SessionRules(pinned_policy=adopted, loaded=loaded, facts=facts, warnings=())


def _allowed_path_facts(
    setup: SetupRequest, policy: Policy, options: RunOptions
) -> tuple[KnownPayload, ...]:
    """What the caller lets file tools change although it is protected, if the session does not know
    it yet.

    Raises:
        InvalidInput: it is not one protected file under its own name.
    """
    known = reduce(apply, setup.thread.session_state.permissions, GrantState()).allowed_protected
    paths = tuple(map(partial(_protected_file, policy), options.allow_protected))
    if known.issuperset(paths):
        return ()
    update = PermissionUpdate(type="allowProtected", paths=paths)
    return (PermissionUpdated(updates=(update,), by="operator"),)


def _protected_file(policy: Policy, path: str) -> str:
    whole = absolute_path(path, cwd=policy.workspace, home=policy.home)
    if os.path.realpath(whole) != whole:
        raise InvalidInput(f"--allow-protected {path}: it is a link, or goes through one")
    if os.path.isdir(whole):
        raise InvalidInput(f"--allow-protected {path}: it is a folder; name each file in it")
    if not is_guarded(policy, whole):
        raise InvalidInput(f"--allow-protected {path}: it is not protected")
    return whole


def with_rules(pinned_policy: PinnedPolicy, more: tuple[PolicyRule, ...]) -> PinnedPolicy:
    """For as long as the session runs; what it keeps is without them."""
    policy = replace(pinned_policy.policy, rules=(*pinned_policy.policy.rules, *more))
    return replace(pinned_policy, policy=policy) if more else pinned_policy


def _mode_of(setup: SetupRequest, pinned_policy: PinnedPolicy) -> Mode:
    """The one that the session is in, as its log tells it."""
    standing = reduce(apply, setup.thread.session_state.permissions, GrantState())
    return standing.mode or pinned_policy.policy.mode or "default"


async def read_pinned_policy(log: SessionLog, digest: str, loaded: LoadedPolicy) -> PinnedPolicy:
    """What a session began with, from the blob that its log names."""
    adopted = msgspec.json.decode(await log.blob(digest), type=PinnedPolicy)
    # an operator's new prohibition holds at once; it can only make things stricter
    known = {rule.text for rule in adopted.policy.rules if rule.behavior != "allow"}
    new = tuple(
        rule
        for rule in loaded.policy.rules
        if rule.scope == "managed" and rule.behavior != "allow" and rule.text not in known
    )
    return replace(adopted, policy=replace(adopted.policy, rules=(*new, *adopted.policy.rules)))
