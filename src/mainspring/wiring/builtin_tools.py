"""The built-in tools of one session, and the files that they may reach."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from mainspring.capabilities.monty.python_tool import CodeInterpreter, python
from mainspring.capabilities.sandbox.sandbox_environment import SandboxEnvironment
from mainspring.capabilities.sandbox.sandbox_session import SandboxSession
from mainspring.capabilities.tools.artifact import artifact
from mainspring.capabilities.tools.cron import cron_tools
from mainspring.capabilities.tools.file_search import find_ripgreps
from mainspring.capabilities.tools.file_tools import file_tools
from mainspring.capabilities.tools.service_tools import service_tools
from mainspring.capabilities.tools.shell import bash
from mainspring.capabilities.tools.tasks import task_tools
from mainspring.capabilities.tools.think import think
from mainspring.capabilities.tools.web_search import web_search
from mainspring.capabilities.workspace.folder_workspace import FolderWorkspace
from mainspring.capabilities.workspace.workspace_roots import Root
from mainspring.config import Settings
from mainspring.core.content import BlobSource
from mainspring.core.events import KnownPayload
from mainspring.core.lazy_module import LazyModule
from mainspring.core.ports import Workspace
from mainspring.core.tool import Tool
from mainspring.files.openat import real_path
from mainspring.harness.permissions.policy import Policy, is_guarded
from mainspring.log.records import Records
from mainspring.runtime.agent import Agent
from mainspring.runtime.session.session_paths import SessionPaths
from mainspring.runtime.session_context import Models, SetupRequest
from mainspring.wiring.sandbox_settings import egress_rules
from mainspring.wiring.settings_files import read_project_files
from mainspring.wiring.user_vault import user_vault

if TYPE_CHECKING:
    from mainspring.harness.permissions import bash as bash_analysis
    from mainspring.runtime import model_question
    from mainspring.service.schedules import agent_schedules
    from mainspring.wiring import session_egress
else:
    model_question = LazyModule("mainspring.runtime.model_question")
    agent_schedules = LazyModule("mainspring.service.schedules.agent_schedules")
    bash_analysis = LazyModule("mainspring.harness.permissions.bash")
    session_egress = LazyModule("mainspring.wiring.session_egress")


@lru_cache(maxsize=256)
def classify_command(command: str) -> tuple[bool, bool]:
    """Whether a command only reads, and whether it destroys."""
    verdict = bash_analysis.analyze_command(command)
    return verdict.read_only, verdict.destructive


def workspace_tools(workspace: Workspace, earlier: Mapping[str, int]) -> list[Tool]:
    """The file tools. They remember which files the session has read, so one set serves all its
    runs in this process. `earlier`: see `SessionFiles`."""

    def find_ripgrep() -> str | None:
        """Skips one in the workspace: the session could have put it there."""
        root = workspace.root
        paths = find_ripgreps()
        return next((p for p in paths if not Path(p).resolve().is_relative_to(root)), None)

    return file_tools(workspace, find_ripgrep, earlier=earlier)


def built_in_tools(
    setup: SetupRequest,
    workspace: Workspace,
    files: Sequence[Tool],
    sandbox: SandboxSession | None,
    workers: CodeInterpreter | None,
    settings: Settings,
) -> dict[str, Tool]:
    """The tools by name. Without a sandbox, none of them runs programs."""

    async def keep(content: bytes, media_type: str) -> BlobSource:
        return await setup.writer.put_blob(content, media_type=media_type)

    tools = [*files, artifact(workspace, keep), *task_tools(setup.thread.tasks), think()]
    if not setup.options.is_served and setup.subagent is None:
        tools += cron_tools(lambda: _session_schedules(settings, setup))
    if workers is not None:
        tools.append(python(workers, sandbox, workspace))
    if sandbox is not None:
        tools += [
            bash(
                sandbox,
                judge=classify_command,
                max_seconds=sandbox.opened_with[0].program_seconds,
                resumed=setup.thread.session_state.shell_was_used,
                variables=setup.options.program.variables,
                max_output_bytes=setup.options.program.max_output_bytes,
            )
        ]
        tools += service_tools(sandbox.sandbox_services, judge=classify_command)
    return {tool.spec.name: tool for tool in tools}


def folder_schedules(
    settings: Settings, records: Records, agent: Agent, folder: Path
) -> agent_schedules.AgentSchedules:
    read_project = partial(read_project_files, folder, home=Path(settings.home))
    return agent_schedules.open_agent_schedules(
        records, user_vault(settings), agent, folder, read_project
    )


def _session_schedules(settings: Settings, setup: SetupRequest) -> agent_schedules.AgentSchedules:
    folder = setup.thread.session_state.workspace or str(setup.options.workspace or "")
    return folder_schedules(settings, setup.log.store.records, setup.agent, Path(folder))


def web_tools(
    setup: SetupRequest,
    sandbox_environment: SandboxEnvironment,
    settings: Settings,
    models: Models,
    record: Callable[[KnownPayload], None],
) -> dict[str, Tool]:
    """Tools that reach hosts from outside the sandbox: pages of hosts that the rules allow, and the
    search provider that the operator configures."""
    tools: list[Tool] = []
    if (rules := egress_rules(sandbox_environment)) is not None:
        fetch, limits = session_egress.WebFetch(rules, record), setup.options.web_fetch
        session_id = setup.writer.session_id
        tools.append(
            session_egress.web_fetch_tool(fetch, limits, log=setup.log, session_id=session_id)
        )
    if provider := settings.environment.get("MAINSPRING_SEARCH"):
        report = model_question.report_searches(models, record)
        search = session_egress.search_provider(provider, settings, models.facts, report)
        domains = setup.options.search_domains
        tools.append(web_search(search, allowed=domains.allowed, blocked=domains.blocked))
    return {tool.spec.name: tool for tool in tools}


def session_tree(paths: SessionPaths, policy: Policy, skills: Collection[Path]) -> FolderWorkspace:
    extra = [
        Root(path=Path(directory))
        for directory in policy.directories
        if _is_folder(paths, directory)
    ]
    extra += [Root(path=skill, read_only=True) for skill in skills if skill.is_dir()]
    return FolderWorkspace(
        paths.workspace,
        hidden=paths.hidden,
        extra=extra,
        is_guarded=partial(is_guarded, policy),
        aliases=paths.aliases,
    )


def _is_folder(paths: SessionPaths, path: str) -> bool:
    """Links in the workspace are not followed: a program may have created them."""
    try:
        return os.path.isdir(real_path(path, distrusted=[str(paths.workspace)]))
    except OSError:
        return False
