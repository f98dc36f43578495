"""The policy and hooks a session starts with. They are pinned in its log, so editing a settings
file does not affect it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from mainspring.core.envelope import event_types
from mainspring.core.errors import InvalidInput
from mainspring.core.events import (
    ContextAdded,
    HookRan,
    KnownPayload,
    PermissionUpdate,
    PermissionUpdated,
    PolicyAdopted,
)
from mainspring.core.hook import HookSettings
from mainspring.core.lazy_module import LazyModule
from mainspring.harness.permissions.grant_state import GrantState, apply
from mainspring.harness.permissions.path_rules import absolute_path
from mainspring.harness.permissions.policy import Mode, Policy, PolicyRule, is_guarded
from mainspring.harness.permissions.rule_descriptions import mode_notice
from mainspring.log.provenance import OwnLog
from mainspring.log.session_log import SessionLog
from mainspring.runtime.agent import Agent, skill_folders
from mainspring.runtime.session.session_paths import SessionPaths
from mainspring.runtime.session_context import SetupRequest
from mainspring.runtime.settings.policy_loader import LoadedPolicy

if TYPE_CHECKING:
    from mainspring.runtime.settings import plugin_hooks
else:
    plugin_hooks = LazyModule("mainspring.runtime.settings.plugin_hooks")  # most sessions have none

ReadHooks: TypeAlias = Callable[
    [Iterable[HookSettings]], tuple[tuple[msgspec.Raw, ...], tuple[str, ...]]
]
"""Returns hooks of settings files as the log stores them, and warnings. Raises: InvalidInput."""


class PinnedPolicy(Struct, frozen=True, kw_only=True, omit_defaults=True):
    policy: Policy
    hooks: tuple[msgspec.Raw, ...] = ()
    """Each as JSON; `capabilities.hooks` defines their meaning."""
    is_trusted: bool = False
    """Whether the project's own hooks may run."""
    hook_roots: tuple[str, ...] = ()
    """Folders whose files hooks run only in their trusted state; the workspace comes first."""
    hook_files: dict[str, str] = {}
    """The hashes of these files, by absolute path."""


class SessionRules(Struct, frozen=True, kw_only=True):
    pinned_policy: PinnedPolicy
    loaded: LoadedPolicy
    """The current settings files: settings of the sandbox are not pinned."""
    facts: tuple[KnownPayload, ...]
    warnings: tuple[str, ...]


async def pin_policy(
    setup: SetupRequest,
    paths: SessionPaths,
    loaded: LoadedPolicy,
    *,
    home: Path,
    read_hooks: ReadHooks,
) -> SessionRules:
    """The rules that the session has pinned; for a new session, pin those of the settings files.

    Raises:
        InvalidInput: hooks in the settings files are not valid.
    """
    options, protected = setup.options, _protected_paths(setup, paths)
    if setup.thread.session_state.policy is not None:
        return await _read_pinned(setup, loaded, protected)
    settings, script_hashes = loaded.hooks, dict(loaded.scripts)
    roots = [str(paths.workspace), *map(os.path.realpath, [options.agent] if options.agent else [])]
    if not options.is_served:
        for item in await to_thread.run_sync(_plugin_and_skill_hooks, home, setup, loaded):
            settings += item.settings
            roots += item.roots
            script_hashes |= item.scripts
    hooks, hook_warnings = read_hooks(settings) if settings else ((), ())
    protected += tuple(loaded.scripts) if hooks else ()
    policy = replace(
        loaded.policy,
        mode=options.mode or loaded.policy.mode,
        protected=protected,
        rules=(*loaded.policy.rules, *options.rules),
    )
    pinned = PinnedPolicy(
        policy=policy,
        hooks=hooks,
        is_trusted=loaded.is_trusted,
        hook_roots=tuple(dict.fromkeys(roots)) if hooks else (),
        hook_files=script_hashes if hooks else {},
    )
    blob = await setup.writer.put_blob(msgspec.json.encode(pinned), media_type="application/json")
    mode = policy.mode or "default"
    facts: list[KnownPayload] = [PolicyAdopted(policy=blob.hash, mode=mode)]
    if mode == "plan":
        facts.append(_mode_message(mode))
    facts += _allowed_path_facts(setup, policy)
    warnings = (*loaded.warnings, *hook_warnings)
    return SessionRules(pinned_policy=pinned, loaded=loaded, facts=tuple(facts), warnings=warnings)


def _plugin_and_skill_hooks(
    home: Path, setup: SetupRequest, loaded: LoadedPolicy
) -> list[plugin_hooks.TrustedHooks]:
    """The trusted hooks of plugins and of skills."""
    disabled = loaded.preferences.disabled_plugins
    folder = Path(loaded.policy.workspace)
    hooks = [plugin_hooks.trusted_plugin_hooks(home, folder, disabled)]
    if skills := {skill.file: skill for skill in setup.agent.skills if skill.hooks}:
        hooks.append(plugin_hooks.trusted_skill_hooks(home, folder, skills.values()))
    return hooks


def _mode_message(mode: Mode) -> ContextAdded:
    return ContextAdded(text=mode_notice(mode), source="mode")


def _protected_paths(setup: SetupRequest, paths: SessionPaths) -> tuple[str, ...]:
    """Paths that this session also protects: files that git configurations name, and trusted
    skills."""
    watched = (str(paths.workspace / item) for item in paths.watched)
    agent = setup.agent
    subagent_skills = (
        skill
        for subagent in agent.subagents
        if subagent.own is not None
        for skill in subagent.own.skills
    )
    skills = (
        skill.folder
        for skill in (*agent.skills, *subagent_skills)
        if skill.is_trusted and skill.kind == "skill" and skill.file
    )
    return tuple(dict.fromkeys((*watched, *skills)))


async def _read_pinned(
    setup: SetupRequest, loaded: LoadedPolicy, protected: tuple[str, ...]
) -> SessionRules:
    assert setup.thread.session_state.policy is not None
    options = setup.options
    policy = setup.thread.session_state.policy
    pinned = await read_pinned_policy(setup.writer.own_log, setup.log, policy, loaded)
    paths = dict.fromkeys((*pinned.policy.protected, *protected))
    pinned = replace(pinned, policy=replace(pinned.policy, protected=tuple(paths)))
    if options.is_served:  # the client may have changed the session's tools
        kept_rules = [rule for rule in pinned.policy.rules if rule.scope != "session"]
        policy = replace(pinned.policy, rules=(*kept_rules, *options.rules))
        pinned = replace(pinned, policy=policy)
    facts: tuple[KnownPayload, ...] = ()
    if options.mode is not None and options.mode != _mode_of(setup, pinned):
        update = PermissionUpdate(type="setMode", mode=options.mode)
        facts = (PermissionUpdated(updates=(update,), by="operator"), _mode_message(options.mode))
    facts += _allowed_path_facts(setup, pinned.policy)
    return SessionRules(pinned_policy=pinned, loaded=loaded, facts=facts, warnings=())


def _allowed_path_facts(setup: SetupRequest, policy: Policy) -> tuple[KnownPayload, ...]:
    """Protected files that the caller allows file tools to change, unless the session has recorded
    them.

    Raises:
        InvalidInput: a path is not a protected file, or goes through a link.
    """
    recorded_paths = reduce(
        apply, setup.thread.session_state.permissions, GrantState()
    ).allowed_protected
    paths = tuple(map(partial(_protected_file, policy), setup.options.allow_protected))
    if recorded_paths.issuperset(paths):
        return ()
    update = PermissionUpdate(type="allowProtected", paths=paths)
    return (PermissionUpdated(updates=(update,), by="operator"),)


def _protected_file(policy: Policy, path: str) -> str:
    absolute = absolute_path(path, cwd=policy.workspace, home=policy.home)
    if os.path.realpath(absolute) != absolute:
        raise InvalidInput(f"--allow-protected {path}: it is a link, or goes through one")
    if os.path.isdir(absolute):
        raise InvalidInput(f"--allow-protected {path}: it is a folder; name each file in it")
    if not is_guarded(policy, absolute):
        raise InvalidInput(f"--allow-protected {path}: it is not protected")
    return absolute


def reading_rules(agent: Agent) -> tuple[PolicyRule, ...]:
    """Rules that allow reading the files of skills without approval."""
    return tuple(
        PolicyRule(text=f"Read(/{folder.as_posix()}/**)", behavior="allow", source="skills")
        for folder in skill_folders(agent)
    )


def with_rules(pinned_policy: PinnedPolicy, rules: tuple[PolicyRule, ...]) -> PinnedPolicy:
    """The policy with more rules for this run; they are not pinned."""
    policy = replace(pinned_policy.policy, rules=(*pinned_policy.policy.rules, *rules))
    return replace(pinned_policy, policy=policy) if rules else pinned_policy


def _mode_of(setup: SetupRequest, pinned_policy: PinnedPolicy) -> Mode:
    """The current mode of the session, from its log."""
    grants = reduce(apply, setup.thread.session_state.permissions, GrantState())
    return grants.mode or pinned_policy.policy.mode or "default"


async def read_pinned_policy(
    own_log: OwnLog, log: SessionLog, digest: str, loaded: LoadedPolicy
) -> PinnedPolicy:
    """The policy that a session started with, from the blob that its log names."""
    pinned = await _decode(own_log, log, digest)
    # new prohibitions of the operator apply at once; they can only make things stricter
    texts = {rule.text for rule in pinned.policy.rules if rule.behavior != "allow"}
    new = tuple(
        rule
        for rule in loaded.policy.rules
        if rule.scope == "managed" and rule.behavior != "allow" and rule.text not in texts
    )
    return replace(pinned, policy=replace(pinned.policy, rules=(*new, *pinned.policy.rules)))


async def _decode(own_log: OwnLog, log: SessionLog, digest: str) -> PinnedPolicy:
    """`own_log` proves that the rules and hooks are our own."""
    del own_log
    return msgspec.json.decode(await log.blob(digest), type=PinnedPolicy)


async def has_end_hooks(own_log: OwnLog, log: SessionLog) -> bool:
    """Whether a session has `SessionEnd` hooks that have not run yet."""
    events = await log.read(own_log.session_id, types=event_types(PolicyAdopted, HookRan))
    payloads = [event.payload for event in events]
    if any(isinstance(item, HookRan) and item.hook_event == "SessionEnd" for item in payloads):
        return False
    digests = [item.policy for item in payloads if isinstance(item, PolicyAdopted)]
    if not digests:
        return False
    pinned = await _decode(own_log, log, digests[-1])
    return any(b'"SessionEnd"' in bytes(hook) for hook in pinned.hooks)


async def hook_runs(
    log: SessionLog, session_id: str, pinned_policy: PinnedPolicy
) -> set[tuple[str, str]]:
    """Event and handler of the hooks that have run in a session, if some run only once."""
    if not any(b'"once":true' in bytes(hook) for hook in pinned_policy.hooks):
        return set()
    events = await log.read(session_id, types=event_types(HookRan))
    payloads = [event.payload for event in events]
    return {
        (payload.hook_event, payload.handler)
        for payload in payloads
        if isinstance(payload, HookRan) and payload.outcome == "ok"
    }
