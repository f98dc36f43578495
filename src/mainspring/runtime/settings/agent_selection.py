"""Selects the agent that a session runs with: from its folder, the caller's choices and the log."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from mainspring.core import clock
from mainspring.core.errors import InvalidInput
from mainspring.core.lazy_module import LazyModule
from mainspring.core.model_facts import ModelFacts
from mainspring.harness.context import instructions
from mainspring.harness.context.instruction_files import InstructionFiles
from mainspring.harness.permissions.policy import Policy, is_hidden
from mainspring.runtime.agent import Agent
from mainspring.runtime.agent_folder import folder_versions
from mainspring.runtime.agent_folder.agent_loader import AgentFolder, read_agent
from mainspring.runtime.agent_folder.output_styles import DEFAULT_STYLE, find_style, output_styles
from mainspring.runtime.agent_folder.plugins import installed_plugins
from mainspring.runtime.definition_files.finding import Finding
from mainspring.runtime.definition_files.scopes import MANAGED, Scopes
from mainspring.runtime.definition_files.settings_file import CustomizationKind
from mainspring.runtime.memory.memory_mode import strictest_memory
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.session.pinned_agent import with_choices
from mainspring.runtime.session.session_summary import SessionSummary
from mainspring.runtime.settings.model_trust import without_other_providers
from mainspring.runtime.settings.policy_loader import LoadedPolicy, load_policy
from mainspring.runtime.settings.project_trust import ReadScripts
from mainspring.runtime.skills.skill import Skill
from mainspring.runtime.skills.skill_discovery import IsPinned, disabled_skills
from mainspring.runtime.subagent import Subagent

if TYPE_CHECKING:
    from mainspring.runtime.packages import trust_pins
else:
    trust_pins = LazyModule(
        "mainspring.runtime.packages.trust_pins"
    )  # scans skills, if there are any


class AgentSelection(Struct, frozen=True, kw_only=True):
    """Opens agents for one user."""

    folder: Path
    """Where the user works; other folders are relative to it."""
    home: Path
    default_model: str
    is_other_provider: Callable[[str, str], bool]
    """Whether another provider serves a model than those of the user's choice, the second."""
    copies: Path
    """Where campaigns keep their copies of agents."""
    read_scripts: ReadScripts

    def open(
        self,
        options: RunOptions,
        recorded: SessionSummary | None = None,
        *,
        facts: Callable[[str], ModelFacts] | None = None,
        loaded: LoadedPolicy | None = None,
    ) -> AgentFolder:
        """The agent of a new session or, with `recorded`, of one that continues with its own model.

        `facts`: of a model; how long instructions may be depends on its context window.
        `loaded`: the settings files that were read before; they are used if they are those of the
        agent's folder.

        Raises:
            InvalidInput: there is no such folder, or its file or settings are not valid.
        """
        place = self._place(options.agent or (recorded.folder if recorded else None))
        if loaded is None or loaded.policy.workspace != place.as_posix():
            loaded = load_policy(place, home=self.home, read_scripts=self.read_scripts)
        scopes = self._scopes(place, loaded.preferences.disabled_plugins)
        chosen = options.model or (recorded.model if recorded is not None else None)

        def model_for(own: str) -> str:
            return chosen or own or self.default_model

        agent_folder = read_agent(
            scopes,
            is_pinned=self.is_pinned,
            instruction_files=_readable_disk(loaded.policy),
            limits_for=lambda own: _instruction_limits(model_for(own), facts),
        )
        agent_folder = self._without_other_providers(agent_folder, chosen)
        limits = agent_folder.agent.limits
        if options.max_turns is not None:
            limits = replace(limits, max_turns=options.max_turns)
        if options.max_cost_usd is not None:
            limits = replace(limits, max_cost_usd=options.max_cost_usd)
        memory = agent_folder.agent.memory if recorded is None else recorded.memory
        agent = replace(
            agent_folder.agent,
            model=model_for(agent_folder.agent.model),
            limits=limits,
            memory=strictest_memory(memory, options.memory_mode),
        )
        agent = with_choices(agent, options)
        if loaded.preferences.plugins_only:
            agent = without_own_parts(agent, scopes, loaded.preferences.plugins_only)
        if recorded is None and agent_folder.is_described:
            agent = replace(agent, version=_store_version(agent_folder.folder))
        agent_folder = replace(agent_folder, agent=agent)
        style = loaded.preferences.output_style
        return agent_folder if style is None else _with_style(agent_folder, scopes, style)

    def _without_other_providers(self, loaded: AgentFolder, chosen: str | None) -> AgentFolder:
        own = chosen or self.default_model
        return without_other_providers(
            loaded,
            lambda model: self.is_other_provider(model, own),
            home=self.home,
            is_copy=loaded.folder.is_relative_to(self.copies.resolve()),
        )

    def scopes(self, folder: str | Path | None = None) -> Scopes:
        """The places of an agent's parts; by default, of the agent in the current folder."""
        place = self._place(folder)
        return self._scopes(place, self.disabled_plugins(place))

    def _place(self, folder: str | Path | None) -> Path:
        return (self.folder / (folder or ".")).resolve()

    def _scopes(self, place: Path, disabled: frozenset[str]) -> Scopes:
        home = self.home.resolve()
        others = None if home == place else home  # its parts are listed once
        plugins = installed_plugins(place, others, disabled=disabled)
        return Scopes(
            folder=place,
            home=others,
            managed=MANAGED,
            plugins=plugins.places,
            disabled_skills=disabled_skills(home),
        )

    def disabled_plugins(self, folder: Path) -> frozenset[str]:
        try:
            loaded = load_policy(folder, home=self.home, read_scripts=self.read_scripts)
        except InvalidInput:  # no session starts with such settings; `validate` says what is wrong
            return frozenset()
        return loaded.preferences.disabled_plugins

    @property
    def is_pinned(self) -> IsPinned:
        """The trusted hash of a skill, if this user has trusted it."""

        @cache
        def pins() -> trust_pins.TrustPins:
            return trust_pins.TrustPins(self.home / trust_pins.PINS_FILE)

        return lambda place: pins().trusted_hash(place)

    def metadata(self, options: RunOptions) -> dict[str, str] | None:
        """The agent's folder, which is stored in the session so that it can continue from
        anywhere."""
        if options.agent is None:
            return None
        return {"folder": str((self.folder / options.agent).resolve())}


def _with_style(agent_folder: AgentFolder, scopes: Scopes, name: str) -> AgentFolder:
    """Add an output style to the instructions, or a warning if there is no such style."""
    if name.lower() == DEFAULT_STYLE:
        return agent_folder
    agent = agent_folder.agent
    if (style := find_style(scopes, name)) is not None:
        text = f"{agent.instructions}\n\n{style.rendered}".strip()
        return replace(agent_folder, agent=replace(agent, instructions=text))
    names = ", ".join(output_style.name for output_style in output_styles(scopes))
    what = f"outputStyle {name}: there is no such output style; there are {names}"
    finding = Finding(level="warning", file="settings.json", what=what)
    by_source = agent_folder.findings_by_source
    return replace(
        agent_folder,
        findings_by_source={**by_source, "instructions": (*by_source["instructions"], finding)},
    )


def _instruction_limits(
    model: str, facts: Callable[[str], ModelFacts] | None
) -> instructions.InstructionLimits:
    try:
        model_facts = facts(model) if facts is not None else None
    except InvalidInput:  # a script, or a name that is refused when the model is opened
        model_facts = None
    return (
        instructions.InstructionLimits()
        if model_facts is None
        else instructions.InstructionLimits.of_window(model_facts.window)
    )


def without_own_parts(
    agent: Agent, scopes: Scopes, plugins_only: Collection[CustomizationKind]
) -> Agent:
    """Remove the user's and the project's own parts of each kind that only plugins may add."""
    if "skills" in plugins_only:
        skills = [skill for skill in agent.skills if _is_allowed(skill, scopes)]
        agent = replace(agent, skills=skills)
    if "agents" in plugins_only:
        subagents = [subagent for subagent in agent.subagents if _is_allowed(subagent, scopes)]
        agent = replace(agent, subagents=subagents)
    return agent


def _is_allowed(part: Skill | Subagent, scopes: Scopes) -> bool:
    """Whether a part may be used if only plugins may add parts: it belongs to a plugin or the
    operator, or is built in. Its name proves nothing: anybody can write a colon into a name."""
    roots = [place.plugin_root or place.path for place in scopes.plugins]
    is_plugins = any(Path(part.file).is_relative_to(root) for root in roots)
    return is_plugins or part.scope in (None, "managed")


def _readable_disk(policy: Policy) -> InstructionFiles:
    """All files except those that rules deny reading: instruction files cannot import these."""
    return InstructionFiles(
        is_hidden=lambda path: is_hidden(policy, path.as_posix(), path.as_posix())
    )


def _store_version(folder: Path) -> str | None:
    """Record the current state of the folder as a version, unless it is the last recorded one."""
    version = folder_versions.record_version(folder, clock.now)
    return version.label if version.number else None
