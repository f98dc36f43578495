"""Agents of this user: select, open and validate them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mainspring.config import FOLDER, Settings, read_settings
from mainspring.core.errors import InvalidInput
from mainspring.core.lazy_module import LazyModule
from mainspring.core.model_facts import ModelFacts
from mainspring.runtime.agent import Agent
from mainspring.runtime.agent_folder.agent_loader import AgentFolder
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.session.session_summary import SessionSummary
from mainspring.runtime.settings.agent_selection import AgentSelection
from mainspring.wiring.providers import default_model
from mainspring.wiring.sandbox_environment import read_environment
from mainspring.wiring.settings_files import read_scripts

if TYPE_CHECKING:
    from mainspring.capabilities.hooks import config as hook_config
    from mainspring.capabilities.providers import catalog
    from mainspring.runtime.agent_folder.validation import FolderReport
    from mainspring.runtime.settings import folder_validation
else:
    hook_config = LazyModule("mainspring.capabilities.hooks.config")  # most folders have none
    catalog = LazyModule("mainspring.capabilities.providers.catalog")  # most agents name no model
    folder_validation = LazyModule("mainspring.runtime.settings.folder_validation")

_RELATIVE_MODELS = ("inherit", "small", "default")
"""Whichever it is where the agent runs."""
_SCRIPT_PREFIX = "scripted:"


def agent_selection(settings: Settings) -> AgentSelection:
    return AgentSelection(
        folder=Path(settings.folder),
        home=Path(settings.home),
        default_model=default_model(settings),
        read_scripts=read_scripts,
    )


def open_agent(
    settings: Settings,
    options: RunOptions,
    recorded: SessionSummary | None = None,
    *,
    facts: Callable[[str], ModelFacts] | None = None,
) -> AgentFolder:
    return agent_selection(settings).open(options, recorded, facts=facts)


def load_agent(folder: Path) -> Agent:
    """Raises: InvalidInput: there is no such folder, or it describes no agent."""
    found = open_agent(read_settings(), RunOptions(agent=folder))
    if not found.is_described:
        raise InvalidInput(f"{folder} describes no agent: it has neither agent.yaml nor AGENTS.md")
    return replace(found.agent, folder=found.folder)


def validate(settings: Settings, folder: str | None = None) -> FolderReport:
    """Raises: InvalidInput: there is no such folder."""
    agents = agent_selection(settings)
    scopes = agents.scopes(folder)
    checks = folder_validation.FolderChecks(
        describe_hooks=_describe_hooks,
        check_environment=read_environment,
        missing_model=partial(missing_model_reason, settings),
        read_scripts=read_scripts,
        is_pinned=agents.is_pinned,
        home=agents.home,
        variables=settings.environment,
        disabled_plugins=agents.disabled_plugins(scopes.folder),
    )
    return folder_validation.validate_folder(scopes, checks)


def _describe_hooks(
    fields: Mapping[str, object], source: str
) -> tuple[Sequence[str], Sequence[str]]:
    config = hook_config.parse_hooks(fields, scope="project", source=source)
    return [
        f"{hook.event}{f' {hook.matcher}' if hook.matcher else ''}: {hook.handler.label}"
        for hook in config.hooks
    ], config.warnings


def missing_model_reason(settings: Settings, names: str) -> str | None:
    """Why there is no such model; `None` for scripts: the user sees the error."""
    wanted = [name.strip() for name in names.split(",")]
    wanted = [entry for entry in wanted if entry not in ("", *_RELATIVE_MODELS)]
    wanted = [entry for entry in wanted if not entry.startswith(_SCRIPT_PREFIX)]
    if not wanted:
        return None
    try:
        known = catalog.Catalog.load(Path(settings.folder) / FOLDER / "models.toml")
        for item in wanted:
            known.resolve(item)
    except InvalidInput as error:
        return str(error)
    return None
