"""The instructions of an agent's folder: those that apply from the start, and nested ones that
come with the first tool result about a file they apply to.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import PurePosixPath
from typing import TypeAlias, TypeVar

from anyio import to_thread
from msgspec import Struct

from mainspring.core.content import TextBlock
from mainspring.core.errors import InvalidInput
from mainspring.core.tool import Call, Tool, ToolResult, Traits
from mainspring.harness.context.instruction_files import (
    InstructionFiles,
    InstructionIssue,
    InstructionRoots,
)
from mainspring.harness.context.instruction_parsing import InstructionLimits
from mainspring.harness.context.instructions import (
    Instructions,
    Section,
    load,
    load_nested,
    render_section,
    rules_for,
)
from mainspring.harness.permissions.policy import Policy, is_hidden
from mainspring.retrieval.globs import expand_braces, matches_glob
from mainspring.runtime.definition_files.finding import Finding
from mainspring.runtime.definition_files.scopes import MANAGED, Scopes
from mainspring.runtime.skills.skill import Skill

_CLAUDE_MANAGED = {
    "linux": PurePosixPath("/etc/claude-code"),
    "darwin": PurePosixPath("/Library/Application Support/ClaudeCode"),
}


class FolderInstructions(Struct, frozen=True, kw_only=True):
    instructions: Instructions
    instruction_roots: InstructionRoots
    """The places they come from; instructions for single files are searched there too."""
    findings: tuple[Finding, ...]


def read_instructions(
    scopes: Scopes,
    *,
    instruction_files: InstructionFiles | None = None,
    instruction_limits: InstructionLimits | None = None,
) -> FolderInstructions:
    """Read the instructions from disk, unless other files are given."""
    places = places_of(scopes)
    instructions = load(instruction_files or InstructionFiles(), places, instruction_limits)
    findings = tuple(finding_of(issue) for issue in instructions.issues)
    return FolderInstructions(
        instructions=instructions, instruction_roots=places, findings=findings
    )


def places_of(scopes: Scopes) -> InstructionRoots:
    folder = PurePosixPath(scopes.folder)
    return InstructionRoots(
        project=folder,
        cwd=folder,
        agent=folder,
        home=None if scopes.home is None else PurePosixPath(scopes.home),
        managed=_managed(scopes),
    )


def finding_of(issue: InstructionIssue) -> Finding:
    return Finding(
        level="note" if issue.is_note else "warning",
        file=issue.file,
        line=issue.line,
        what=issue.what,
        fix=issue.fix,
    )


def _managed(scopes: Scopes) -> tuple[PurePosixPath, ...]:
    if scopes.managed is None:
        return ()
    own = PurePosixPath(scopes.managed)
    claude = _CLAUDE_MANAGED.get(sys.platform)
    # The operator may have written for Claude Code; that only applies to the standard folder.
    return (own,) if claude is None or scopes.managed != MANAGED else (claude, own)


MAX_PATH_INSTRUCTION_CHARS = 40_000
"""The maximum length of instructions in one tool result, as for a single file. The rest comes with
the next result."""
_RESULT_MAX_CHARS = MAX_PATH_INSTRUCTION_CHARS + 2000  # tags and notices

AnyTool = TypeVar("AnyTool", bound=Tool)
ExtraSections: TypeAlias = Callable[[str], Iterable[Section]]
"""Further instructions for a path relative to the project. May block: it runs in a thread."""


class PathInstructions:
    """The instructions for single files in one session. Each thread sees a section once, until it
    is compacted."""

    def __init__(
        self,
        instruction_roots: InstructionRoots,
        instruction_files: InstructionFiles | None = None,
        also: Sequence[ExtraSections] = (),
    ) -> None:
        self._files = instruction_files or InstructionFiles()
        self._instruction_roots = instruction_roots
        self._also = tuple(also)
        self._shown: dict[str, set[str]] = {}

    async def for_path(self, path: str, *, thread_id: str = "") -> list[Section]:
        """The sections for a file that a thread has not seen yet, the most general first."""
        sections = await to_thread.run_sync(self._sections, path)
        seen_sections = self._shown.setdefault(thread_id, set())
        new: list[Section] = []
        room = MAX_PATH_INSTRUCTION_CHARS
        for section in sections:
            if section.source in seen_sections or (new and len(section.text) > room):
                continue
            room -= len(section.text)
            seen_sections.add(section.source)
            new.append(section)
        return new

    def forget(self, thread_id: str | None = None) -> None:
        """Call it after a compaction, which may drop sections. Without a thread, all threads
        forget."""
        if thread_id is None:
            self._shown.clear()
        else:
            self._shown.pop(thread_id, None)

    @cached_property
    def _instructions(self) -> Instructions:
        """Read when they are first needed: many sessions touch no file."""
        return load(self._files, self._instruction_roots)

    def _sections(self, path: str) -> list[Section]:
        places = self._instruction_roots.resolved(self._files)
        real = self._files.real(places.cwd / path)
        if not real.is_relative_to(places.project):
            return []
        name = real.relative_to(places.project).as_posix()
        nested = load_nested(
            self._files, places, real, InstructionLimits(max_chars=MAX_PATH_INSTRUCTION_CHARS)
        )
        rules = (*rules_for(self._instructions, [name]), *rules_for(nested, [name]))
        sections = [
            *nested.sections,
            *(Section(rule.source, rule.text, rule.scope) for rule in rules),
            *(section for find_sections in self._also for section in find_sections(name)),
        ]
        # Skip what already applies and the file that the call is about.
        skipped_sources = {name, *(section.source for section in self._instructions.sections)}
        return [section for section in sections if section.source not in skipped_sources]


def path_instructions(
    scopes: Scopes,
    *,
    policy: Policy,
    hidden: Sequence[str],
    also: Sequence[ExtraSections] = (),
) -> PathInstructions:
    """The instructions of a workspace. Files that the session may not see are not read: the
    `hidden` paths in the workspace, and those that its policy hides."""
    folders = [PurePosixPath(scopes.folder, item) for item in hidden]

    def is_out_of_sight(path: PurePosixPath) -> bool:
        own = path.as_posix()
        return any(path.is_relative_to(item) for item in folders) or is_hidden(policy, own, own)

    return PathInstructions(places_of(scopes), InstructionFiles(is_hidden=is_out_of_sight), also)


def with_path_instructions(tool: AnyTool, path_instructions: PathInstructions) -> AnyTool:
    """Wrap a tool with the input `file_path`: its results carry the instructions for that file."""

    async def run(call: Call) -> ToolResult:
        result = await tool.run(call)
        path = call.input.get("file_path")
        if not result.ok or not isinstance(path, str):
            return result
        sections = await path_instructions.for_path(path, thread_id=call.thread_id)
        blocks = tuple(TextBlock(render_section(section)) for section in sections)
        return replace(result, content=(*result.content, *blocks)) if blocks else result

    def traits(tool_input: Mapping[str, object]) -> Traits:
        tool_traits = tool.traits(tool_input)
        return replace(tool_traits, max_chars=tool_traits.max_chars + _RESULT_MAX_CHARS)

    return replace(tool, run=run, traits=traits)


def skills_for_path(skills: Iterable[Skill]) -> Callable[[str], list[Section]]:
    """Finds the skills for a file by its path in the project."""
    candidates = [(skill, _globs(skill)) for skill in skills if skill.paths and skill.for_model]

    def find_sections(path: str) -> list[Section]:
        return [
            Section(f"skill:{skill.name}", _path_hint(skill), skill.scope)
            for skill, globs in candidates
            if any(matches_glob(glob, path) for glob in globs)
        ]

    return find_sections


def _globs(skill: Skill) -> list[str]:
    globs: list[str] = []
    for glob in skill.paths:
        try:
            globs += expand_braces(glob)
        except InvalidInput:
            continue  # it expands to too many patterns
    return globs


def _path_hint(skill: Skill) -> str:
    return (
        f"The skill {skill.name} applies to this file: {skill.description}\n"
        "Use it before you go on, if it fits your task."
    )
