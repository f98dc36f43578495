"""Loads the agent that a folder describes, from all its parts and those of wider scopes, and finds
the agent folders below a path."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from mainspring import error_table
from mainspring.core.errors import InvalidInput
from mainspring.harness.context.instruction_files import InstructionFiles
from mainspring.harness.context.instruction_parsing import InstructionLimits
from mainspring.harness.context.instructions import render
from mainspring.runtime.agent import Agent
from mainspring.runtime.agent_folder.folder_instructions import (
    FolderInstructions,
    read_instructions,
)
from mainspring.runtime.agent_folder.manifest import FILE, AgentManifest, read_manifest
from mainspring.runtime.agent_folder.subagent_files import discover_subagents
from mainspring.runtime.definition_files.finding import Finding
from mainspring.runtime.definition_files.scopes import Scopes
from mainspring.runtime.skills.skill_discovery import IsPinned, discover
from mainspring.runtime.subagent import BUILT_IN_SUBAGENTS, Subagent

MAX_SUBAGENT_DEPTH = 5  # agents that call agents
MAX_PARALLEL_SUBAGENTS = 100
"""Upper bounds that a folder cannot exceed."""

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
    """The model is empty if the folder names none."""
    agent_manifest: AgentManifest
    instructions: FolderInstructions
    """The instruction files, and the places that were searched."""
    findings_by_source: Mapping[FindingSource, tuple[Finding, ...]]
    """Findings by source."""
    is_described: bool
    """Whether the folder describes an agent."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(finding for item in self.findings_by_source.values() for finding in item)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for every run. Those about skills are summarized in one line."""
        findings = self.findings_by_source
        own = (*findings["manifest"], *findings["instructions"])
        warnings = tuple(str(finding) for finding in own if finding.level == "warning")
        parts = (*findings["skills"], *findings["subagents"])
        count = sum(finding.level != "note" for finding in parts)
        if not count:
            return warnings
        problems = "1 problem" if count == 1 else f"{count} problems"
        return (*warnings, f"{problems} in skills or subagents; `mainspring validate` lists them")


def read_agent(
    scopes: Scopes,
    *,
    is_pinned: IsPinned = _never_pinned,
    instruction_files: InstructionFiles | None = None,
    limits_for: LimitsFor = _default_limits,
    allows_errors: bool = False,
) -> AgentFolder:
    """Read a folder, and the parts of wider scopes. `instruction_files` are the files that
    instructions may be in and may import; by default all files on disk. `limits_for` gives the
    length limits of instructions for the model in the manifest, which may be empty. With
    `allows_errors`, errors in the manifest are only reported: for display, not for running.

    Raises:
        InvalidInput: there is no such folder, or its `agent.yaml` is not valid; the message names
            the line.
    """
    folder = scopes.folder
    if not folder.is_dir():
        raise error_table.NO_AGENT_FOLDER.error(InvalidInput, folder=folder)
    manifest = read_manifest(folder / FILE)
    if manifest.error is not None and not allows_errors:
        raise error_table.BAD_AGENT_FILE.error(InvalidInput, finding=manifest.error)
    instructions = read_instructions(
        scopes, instruction_files=instruction_files, instruction_limits=limits_for(manifest.model)
    )
    skills = discover(scopes, is_pinned=is_pinned)
    files = discover_subagents(scopes)
    subagents, unknown = _subagents(manifest, files.subagents)
    agent = Agent(
        name=manifest.name or folder.resolve().name or "agent",
        description=manifest.description,
        model=manifest.model,
        effort=manifest.effort,
        instructions="\n\n".join(
            filter(None, [render(instructions.instructions), manifest.instructions])
        ),
        built_ins=manifest.tools,
        limits=manifest.limits,
        rules=manifest.rules,
        checks=manifest.checks,
        require_evidence=manifest.require_evidence,
        resources=manifest.resources,
        memory=manifest.memory.mode,
        learning=manifest.memory.learning,
        input_schema=manifest.input_schema,
        subagents=subagents,
        max_depth=min(manifest.subagents.max_depth, MAX_SUBAGENT_DEPTH),
        max_at_once=min(manifest.subagents.max_parallel, MAX_PARALLEL_SUBAGENTS),
        is_coordinator=manifest.is_coordinator,
        skills=skills.skills,
    )
    project_parts = [
        *(section for section in instructions.instructions.sections if section.scope == "project"),
        *(skill for skill in (*skills.skills, *files.subagents) if skill.scope == "project"),
    ]
    return AgentFolder(
        folder=folder,
        agent=agent,
        agent_manifest=manifest,
        instructions=instructions,
        findings_by_source={
            "manifest": (*manifest.findings, *unknown),
            "instructions": tuple(instructions.findings),
            "skills": skills.findings,
            "subagents": files.findings,
        },
        is_described=bool(project_parts) or (folder / FILE).is_file(),
    )


def _subagents(
    manifest: AgentManifest, files: Iterable[Subagent]
) -> tuple[tuple[Subagent, ...], tuple[Finding, ...]]:
    """The built-in subagents, replaced and extended by those from files; limited to the names in
    the manifest, if it gives any."""
    available = {file.name: file for file in (*BUILT_IN_SUBAGENTS, *files)}
    names = manifest.subagents.names
    if names is None:
        return tuple(available.values()), ()
    findings = [
        Finding(
            level="warning",
            file=FILE,
            line=manifest.lines.get("agents", manifest.lines.get("subagents")),
            what=f"there is no subagent {name}",
            fix=f"there are {', '.join(available)}; a new one is a file agents/{name}.md",
        )
        for name in names
        if name not in available
    ]
    return tuple(available[name] for name in names if name in available), tuple(findings)


_AGENT_FILES = frozenset(("agent.yaml", "AGENTS.md", "CLAUDE.md"))
_SKIPPED_FOLDERS = frozenset(("node_modules", "__pycache__", "dist", "build", "target", "venv"))
_MAX_DEPTH = 4  # folders below the one that is searched for agents
_MAX_FOLDERS = 5_000  # searched


def find_agent_folders(top: Path) -> Iterator[Path]:
    """The nearest folders come first. Hidden folders and links are not entered."""
    pending = deque([(top, 0)])
    visited = 0
    while pending and visited < _MAX_FOLDERS:
        folder, depth = pending.popleft()
        visited += 1
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
