"""Loads the agent that a folder describes, out of all its parts and those of wider scopes, and
finds the agent folders below a path.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from mainspring.core import error_table
from mainspring.core.errors import InvalidInput
from mainspring.harness.context.instructions import InstructionFiles, InstructionLimits, render
from mainspring.runtime.agent import Agent
from mainspring.runtime.agent_folder.folder_instructions import (
    FolderInstructions,
    read_instructions,
)
from mainspring.runtime.agent_folder.manifest import FILE, AgentManifest, read_manifest
from mainspring.runtime.agent_folder.subagent_files import discover_subagents
from mainspring.runtime.definition_files.finding import Finding
from mainspring.runtime.definition_files.scopes import Scopes
from mainspring.runtime.skills.skill_discovery import IsPinned, SkillFileCache, discover
from mainspring.runtime.subagent import BUILT_IN_SUBAGENTS, Subagent

MAX_SUBAGENT_DEPTH = 5
MAX_PARALLEL_SUBAGENTS = 100
"""Whatever a folder says of how many subagents there may be."""

LimitsFor: TypeAlias = Callable[[str], InstructionLimits]
FindingSource: TypeAlias = Literal["manifest", "instructions", "skills", "subagents"]


def _default_limits(_model: str) -> InstructionLimits:
    return InstructionLimits()


def _never_pinned(_place: Path) -> bool | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFolder:
    folder: Path
    agent: Agent
    """Its model is empty if the folder names none."""
    agent_manifest: AgentManifest
    instructions: FolderInstructions
    """Its instruction files, and where they were looked for."""
    findings_by_source: Mapping[FindingSource, tuple[Finding, ...]]
    """What is odd, by where."""
    is_described: bool
    """Whether anything was found there."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(finding for item in self.findings_by_source.values() for finding in item)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is to be said whenever it is run. Of hundreds of skills, only how many are odd."""
        own = [
            skill_warning
            for skill_warning in self._skill_warnings("manifest", "instructions")
            if skill_warning.level == "warning"
        ]
        rest = len(self._skill_warnings("skills", "subagents"))
        things = "1 thing is odd" if rest == 1 else f"{rest} things are odd"
        more = (f"{things} about skills or subagents; `mainspring validate` says which",)
        return (*(str(item) for item in own), *(more if rest else ()))

    def _skill_warnings(self, *sources: FindingSource) -> list[Finding]:
        every = (finding for source in sources for finding in self.findings_by_source[source])
        return [finding for finding in every if finding.level != "note"]


def read_agent(
    scopes: Scopes,
    *,
    is_pinned: IsPinned = _never_pinned,
    skill_file_cache: SkillFileCache | None = None,
    instruction_files: InstructionFiles | None = None,
    limits_for: LimitsFor = _default_limits,
) -> AgentFolder:
    """Read a folder and what wider scopes add to it. `files` are those that instructions may be in
    and may import; all of the disk's, unless given. `limits_for` says how long instructions may be
    for the model that the manifest names, which may be none.

    Raises:
        InvalidInput: there is no such folder, or its `agent.yaml` is wrong; it says in which line.
    """
    found = inspect_agent(
        scopes,
        is_pinned=is_pinned,
        skill_file_cache=skill_file_cache,
        instruction_files=instruction_files,
        limits_for=limits_for,
    )
    if (wrong := found.agent_manifest.error) is not None:
        raise error_table.BAD_AGENT_FILE.error(InvalidInput, finding=wrong)
    return found


def inspect_agent(
    scopes: Scopes,
    *,
    is_pinned: IsPinned = _never_pinned,
    skill_file_cache: SkillFileCache | None = None,
    instruction_files: InstructionFiles | None = None,
    limits_for: LimitsFor = _default_limits,
) -> AgentFolder:
    """As `read_agent`, but what is wrong is only noted: to be shown, not to be run.

    Raises:
        InvalidInput: there is no such folder.
    """
    folder = scopes.folder
    if not folder.is_dir():
        raise error_table.NO_AGENT_FOLDER.error(InvalidInput, folder=folder)
    said = read_manifest(folder / FILE)
    told = read_instructions(
        scopes, instruction_files=instruction_files, instruction_limits=limits_for(said.model)
    )
    skills = discover(scopes, is_pinned=is_pinned, skill_file_cache=skill_file_cache)
    helpers = discover_subagents(scopes)
    subagents, unknown = _subagents(said, helpers.subagents)
    agent = Agent(
        name=said.name or folder.resolve().name or "agent",
        description=said.description,
        model=said.model,
        effort=said.effort,
        instructions="\n\n".join(filter(None, [render(told.instructions), said.instructions])),
        built_ins=said.tools,
        limits=said.limits,
        rules=said.rules,
        subagents=subagents,
        max_depth=min(said.subagents.max_depth, MAX_SUBAGENT_DEPTH),
        max_at_once=min(said.subagents.max_parallel, MAX_PARALLEL_SUBAGENTS),
        is_coordinator=said.is_coordinator,
        skills=skills.skills,
    )
    own = [
        *(section for section in told.instructions.sections if section.scope == "project"),
        *(skill for skill in (*skills.skills, *helpers.subagents) if skill.scope == "project"),
    ]
    return AgentFolder(
        folder=folder,
        agent=agent,
        agent_manifest=said,
        instructions=told,
        findings_by_source={
            "manifest": (*said.findings, *unknown),
            "instructions": tuple(told.findings),
            "skills": skills.findings,
            "subagents": helpers.findings,
        },
        is_described=bool(own) or (folder / FILE).is_file(),
    )


def _subagents(
    said: AgentManifest, files: Iterable[Subagent]
) -> tuple[tuple[Subagent, ...], tuple[Finding, ...]]:
    """Ours, with those of files in their place or beside them; only some, if the manifest says."""
    known = {file.name: file for file in (*BUILT_IN_SUBAGENTS, *files)}
    wanted = said.subagents.names
    if wanted is None:
        return tuple(known.values()), ()
    missing = [
        Finding(
            level="warning",
            file=FILE,
            line=said.lines.get("agents", said.lines.get("subagents")),
            what=f"there is no subagent {name}",
            fix=f"there are {', '.join(known)}; a new one is a file agents/{name}.md",
        )
        for name in wanted
        if name not in known
    ]
    return tuple(known[name] for name in wanted if name in known), tuple(missing)


_AGENT_FILES = frozenset(("agent.yaml", "AGENTS.md", "CLAUDE.md"))
_SKIPPED_FOLDERS = frozenset(("node_modules", "__pycache__", "dist", "build", "target", "venv"))
_MAX_DEPTH = 4
_MAX_FOLDERS = 5_000


def find_agent_folders(top: Path) -> Iterator[Path]:
    """Those nearest to the top first; hidden folders and links are not entered."""
    pending = deque([(top, 0)])
    looked = 0
    while pending and looked < _MAX_FOLDERS:
        folder, depth = pending.popleft()
        looked += 1
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            continue
        if not _AGENT_FILES.isdisjoint(entry.name for entry in entries):
            yield folder
        pending += [
            (folder / entry.name, depth + 1)
            for entry in entries
            if depth < _MAX_DEPTH and _is_searchable(entry)
        ]


def _is_searchable(entry: os.DirEntry[str]) -> bool:
    is_hidden = entry.name.startswith(".") or entry.name in _SKIPPED_FOLDERS
    return not is_hidden and entry.is_dir(follow_symlinks=False)
