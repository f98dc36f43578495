"""Selects, opens and validates the agents of this user."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mainspring.config import FOLDER, Settings, read_settings
from mainspring.core import ids
from mainspring.core.errors import InvalidInput
from mainspring.core.lazy_module import LazyModule
from mainspring.runtime.agent import Agent
from mainspring.runtime.agent_folder.agent_loader import read_agent
from mainspring.runtime.agent_folder.canary import read_canary
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.settings.agent_selection import AgentSelection
from mainspring.runtime.settings.model_trust import ChosenModel, named_models
from mainspring.wiring.providers import default_model, is_other_provider, read_catalog
from mainspring.wiring.sandbox_settings import read_environment
from mainspring.wiring.settings_files import read_scripts

if TYPE_CHECKING:
    from mainspring.capabilities.hooks import config as hook_config
    from mainspring.capabilities.providers import catalog
    from mainspring.runtime.agent_folder.validation import FolderReport
    from mainspring.runtime.settings import folder_validation
    from mainspring.runtime.workflows import validation as workflow_validation
else:
    hook_config = LazyModule("mainspring.capabilities.hooks.config")  # most folders have none
    catalog = LazyModule("mainspring.capabilities.providers.catalog")  # most agents name no model
    folder_validation = LazyModule("mainspring.runtime.settings.folder_validation")
    workflow_validation = LazyModule("mainspring.runtime.workflows.validation")


def agent_selection(settings: Settings) -> AgentSelection:
    return AgentSelection(
        folder=Path(settings.folder),
        home=Path(settings.home),
        default_model=default_model(settings),
        is_other_provider=partial(is_other_provider, settings),
        copies=evolution_place(settings),
        read_scripts=read_scripts,
    )


def load_agent(folder: Path) -> Agent:
    """Raises: InvalidInput: there is no such folder, or it describes no agent."""
    loaded = agent_selection(read_settings()).open(RunOptions(agent=folder))
    if not loaded.is_described:
        raise InvalidInput(f"{folder} describes no agent: it has neither agent.yaml nor AGENTS.md")
    return replace(loaded.agent, folder=loaded.folder)


def with_canary(settings: Settings, options: RunOptions) -> tuple[RunOptions, Callable[[], str]]:
    """The options of a program's new sessions, with the canary of the agent if their ids choose it;
    and what gives them such ids. Blocks."""
    folder = Path(settings.folder, options.agent or ".")
    canary = read_canary(evolution_place(settings), folder)
    if canary is None:
        return options, partial(ids.new_id, ids.SESSION)
    is_canary = canary.includes(ids.new_id(ids.SESSION))

    def new_id() -> str:
        while canary.includes(found := ids.new_id(ids.SESSION)) != is_canary:
            pass
        return found

    if is_canary:
        options = replace(options, agent=canary.copy_in(evolution_place(settings), folder))
    return options, new_id


def evolution_place(settings: Settings) -> Path:
    """Where campaigns keep their copies of agents."""
    return home_place(settings, "evolution")


def home_place(settings: Settings, name: str) -> Path:
    """A folder for what belongs to a store and decides something. It is in the user's home, because
    the folder of a store can come with a repository."""
    store = hashlib.sha256(os.path.abspath(settings.store).encode()).hexdigest()[:16]
    return Path(settings.home, FOLDER, name, store)


def trust_models(settings: Settings, folder: Path) -> list[ChosenModel]:
    """Trust the models that a folder's files name, and return them. Raises: InvalidInput."""
    loaded = read_agent(agent_selection(settings).scopes(folder), allows_errors=True)
    named = list(named_models(loaded))
    for model in named:
        model.trust(Path(settings.home))
    return named


def validate(settings: Settings, folder: str | None = None) -> FolderReport:
    """Raises: InvalidInput: there is no such folder."""
    agents = agent_selection(settings)
    scopes = agents.scopes(folder)
    checks = folder_validation.FolderChecks(
        describe_hooks=hook_config.describe_hooks,
        check_environment=read_environment,
        missing_model=partial(missing_model_reason, settings),
        read_scripts=read_scripts,
        is_pinned=agents.is_pinned,
        home=agents.home,
        variables=settings.environment,
        disabled_plugins=agents.disabled_plugins(scopes.folder),
    )
    report = folder_validation.validate_folder(scopes, checks)
    return workflow_validation.with_workflows(report, scopes.folder)


def missing_model_reason(settings: Settings, names: str) -> str | None:
    """Why a model cannot be found."""
    return catalog.missing_model_reason(partial(read_catalog, settings), names)
