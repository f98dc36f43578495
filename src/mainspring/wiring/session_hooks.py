"""Assembles the hooks of a session: their runner, the transcript they read, and the tools and
servers they may call."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from mainspring.capabilities.hooks.command import HookEnvironment
from mainspring.capabilities.hooks.config import ALL_SCOPES, TRUSTED_SCOPES, permitted_hooks
from mainspring.capabilities.hooks.handlers import HandlerPorts
from mainspring.capabilities.hooks.runner import HookPolicy, HookRunner, HookSession
from mainspring.capabilities.hooks.scripts import Scripts
from mainspring.config import Settings
from mainspring.core.hook import HookEventName
from mainspring.core.lazy_module import LazyModule
from mainspring.core.tool import ToolOrigin
from mainspring.harness.permissions.engine import PermissionEngine
from mainspring.harness.permissions.tool_names import ALIASES
from mainspring.log.lru_cache import LruCache
from mainspring.runtime.export_sessions.transcript_files import TranscriptFiles, open_transcript
from mainspring.runtime.hook_agent import HookAgent
from mainspring.runtime.mcp_server import call_server_tool
from mainspring.runtime.session_context import Models, SetupRequest
from mainspring.runtime.settings.pinned_policy import PinnedPolicy, hook_runs
from mainspring.runtime.thread_setup.ports import HookPorts
from mainspring.runtime.thread_setup.session_policy import hook_fields, matches_rule

if TYPE_CHECKING:
    from mainspring.wiring import mcp_servers
else:
    mcp_servers = LazyModule("mainspring.wiring.mcp_servers")  # only hooks that call servers do


class HookMachine(Struct, frozen=True):
    """What the hooks of one thread run with."""

    settings: Settings
    models: Models
    transcripts: LruCache[str, TranscriptFiles]
    """The transcripts of sessions that ran in this process; each continues where it ended."""
    ports: HookPorts


async def attach_hooks(
    stack: AsyncExitStack,
    pinned_policy: PinnedPolicy,
    setup: SetupRequest,
    authorizer: PermissionEngine,
    machine: HookMachine,
) -> frozenset[HookEventName]:
    """Let the authorizer run the session's hooks, with a transcript that they can read, until the
    stack closes. Returns the events that the hooks handle."""
    ran_before = await hook_runs(setup.log, setup.writer.session_id, pinned_policy)
    transcript = open_transcript(
        machine.transcripts,
        setup.log,
        machine.ports.folder,
        session_id=setup.writer.session_id,
        main_thread=setup.writer.thread_id,
        warn=machine.ports.warn,
    )
    runner = _hook_runner(pinned_policy, setup, authorizer, machine, ran_before, transcript)
    if runner.has_hooks and setup.subagent is None:
        await stack.enter_async_context(transcript.keep_updated())
    authorizer.hooks = await stack.enter_async_context(runner)
    for warning in runner.warnings:
        machine.ports.warn(warning)
    return runner.events


def _hook_runner(
    pinned_policy: PinnedPolicy,
    setup: SetupRequest,
    authorizer: PermissionEngine,
    machine: HookMachine,
    ran_before: Collection[tuple[str, str]],
    transcript: TranscriptFiles,
) -> HookRunner:
    """Runs the hooks of trusted files; enter it before use."""

    async def prepare() -> None:
        await transcript.update(setup.writer.staged)

    ports = machine.ports
    configs = permitted_hooks(pinned_policy.hooks, ports.preferences.permits_hooks, ports.warn)
    return HookRunner(
        [config for config in configs if config.subagent in (None, setup.subagent)],
        HookSession(
            fields=partial(hook_fields, setup, authorizer, transcript.path),
            matches_rule=partial(matches_rule, authorizer),
            prepare=prepare,
            ran_before=ran_before,
            active_skills=lambda: [skill.name for skill in authorizer.thread.session_state.skills],
            warn=machine.ports.warn,
            show=setup.options.warn,
        ),
        _handler_ports(pinned_policy, setup, authorizer, machine),
        policy=HookPolicy(
            trusted=ALL_SCOPES if pinned_policy.is_trusted else TRUSTED_SCOPES,
            fail_open=bool(pinned_policy.policy.hooks_fail_open),
            aliases=ALIASES,
        ),
    )


def _handler_ports(
    pinned_policy: PinnedPolicy,
    setup: SetupRequest,
    authorizer: PermissionEngine,
    machine: HookMachine,
) -> HandlerPorts:
    session_id, env = setup.writer.session_id, machine.ports.preferences.hook_env

    async def call_tool(server: str, tool: str, arguments: Mapping[str, object]) -> str:
        servers = mcp_servers.SERVERS.of_session(session_id)
        tools = () if servers is None else servers.tools.values()
        return await call_server_tool(tools, ToolOrigin(server, tool), arguments, session_id)

    hook_agent = HookAgent.of_thread(
        setup, authorizer, machine.models, machine.ports.tools, machine.ports.side_events
    )
    return HandlerPorts(
        environment=HookEnvironment(
            project=Path(pinned_policy.policy.workspace),
            environment={**machine.settings.environment, **env},
            also_passed=frozenset(env),
            scripts=Scripts(
                roots=pinned_policy.hook_roots or (pinned_policy.policy.workspace,),
                files=pinned_policy.hook_files,
            ),
        ),
        call_tool=call_tool,
        ask_model=hook_agent.ask,
        run_hook_agent=hook_agent.run,
    )
