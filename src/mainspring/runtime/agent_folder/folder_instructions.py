"""The instructions of an agent's folder: those that apply from the start, and nested ones that
come with the first tool result about a file they apply to.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TypeAlias, TypeVar

from anyio import to_thread

from mainspring.core.content import TextBlock
from mainspring.core.tool import Call, Tool, ToolResult, Traits
from mainspring.harness.context.instruction_files import DiskInstructionFiles
from mainspring.harness.context.instructions import (
    InstructionFiles,
    InstructionIssue,
    InstructionLimits,
    InstructionRoots,
    Instructions,
    Section,
    load,
    load_nested,
    render_section,
    rules_for,
)
from mainspring.runtime.definition_files.finding import Finding
from mainspring.runtime.definition_files.scopes import MANAGED, Scopes

_CLAUDE_MANAGED = {
    "linux": PurePosixPath("/etc/claude-code"),
    "darwin": PurePosixPath("/Library/Application Support/ClaudeCode"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderInstructions:
    instructions: Instructions
    instruction_roots: InstructionRoots
    """Where they were looked for: what comes later, with a file, is looked for there too."""
    findings: tuple[Finding, ...]


def read_instructions(
    scopes: Scopes,
    *,
    project: Path | None = None,
    cwd: Path | None = None,
    instruction_files: InstructionFiles | None = None,
    instruction_limits: InstructionLimits | None = None,
) -> FolderInstructions:
    """Read them from the disk, unless other files are given; `project`, if the agent's folder
    stands in a larger one of which the instructions hold as well, and `cwd`, if the work is done
    further down."""
    places = places_of(scopes, project=project, cwd=cwd)
    found = load(instruction_files or DiskInstructionFiles(), places, instruction_limits)
    findings = tuple(finding_of(oddity) for oddity in found.issues)
    return FolderInstructions(instructions=found, instruction_roots=places, findings=findings)


def places_of(
    scopes: Scopes, *, project: Path | None = None, cwd: Path | None = None
) -> InstructionRoots:
    folder = PurePosixPath(scopes.folder)
    return InstructionRoots(
        project=folder if project is None else PurePosixPath(project),
        cwd=folder if cwd is None else PurePosixPath(cwd),
        agent=folder,
        home=None if scopes.home is None else PurePosixPath(scopes.home),
        managed=_managed(scopes),
    )


def finding_of(instruction_issue: InstructionIssue) -> Finding:
    return Finding(
        level="note" if instruction_issue.is_note else "warning",
        file=instruction_issue.file,
        line=instruction_issue.line,
        what=instruction_issue.what,
        fix=instruction_issue.fix,
    )


def _managed(scopes: Scopes) -> tuple[PurePosixPath, ...]:
    if scopes.managed is None:
        return ()
    own = PurePosixPath(scopes.managed)
    claude = _CLAUDE_MANAGED.get(sys.platform)
    # Who runs this machine may have written for Claude Code; beside another place nothing stands.
    return (own,) if claude is None or scopes.managed != MANAGED else (claude, own)


MAX_PATH_INSTRUCTION_CHARS = 40_000
"""Of what comes with one result: as much as a single file may say. The rest comes with the next."""
_RESULT_MAX_CHARS = MAX_PATH_INSTRUCTION_CHARS + 2000  # tags and notices

AnyTool = TypeVar("AnyTool", bound=Tool)
ExtraSections: TypeAlias = Callable[[str], Iterable[Section]]
"""What else holds for a path, which is relative to the project. May wait: it runs in a thread."""


class PathInstructions:
    """Of one session. Each thread is shown a section once, until it has to forget."""

    def __init__(
        self,
        instruction_roots: InstructionRoots,
        instructions: Instructions,
        *,
        instruction_files: InstructionFiles | None = None,
        also: Sequence[ExtraSections] = (),
    ) -> None:
        self._files = instruction_files or DiskInstructionFiles()
        self._instruction_roots = instruction_roots
        self._instructions = instructions
        self._known = frozenset(section.source for section in instructions.sections)
        self._also = tuple(also)
        self._shown: dict[str, set[str]] = {}

    async def for_path(self, path: str, *, thread_id: str = "") -> list[Section]:
        """What a thread has not been shown yet of what holds for a file: the most general first."""
        found = await to_thread.run_sync(self._sections, path)
        shown = self._shown.setdefault(thread_id, set())
        new: list[Section] = []
        room = MAX_PATH_INSTRUCTION_CHARS
        for section in found:
            if section.source in shown or (new and len(section.text) > room):
                continue
            room -= len(section.text)
            shown.add(section.source)
            new.append(section)
        return new

    def forget(self, thread_id: str | None = None) -> None:
        """After a compaction: what was shown may be gone. Of all threads, unless one is named."""
        if thread_id is None:
            self._shown.clear()
        else:
            self._shown.pop(thread_id, None)

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
            *(section for bring in self._also for section in bring(name)),
        ]
        # It holds already, or is what the call was about.
        return [item for item in sections if item.source not in self._known and item.source != name]


def with_path_instructions(tool: AnyTool, path_instructions: PathInstructions) -> AnyTool:
    """A tool on files, by its input `file_path`, that also tells what holds for that file."""

    async def run(call: Call) -> ToolResult:
        outcome = await tool.run(call)
        path = call.input.get("file_path")
        if not outcome.ok or not isinstance(path, str):
            return outcome
        sections = await path_instructions.for_path(path, thread_id=call.thread_id)
        told = tuple(TextBlock(render_section(section)) for section in sections)
        return replace(outcome, content=(*outcome.content, *told)) if told else outcome

    def traits(given: Mapping[str, object]) -> Traits:
        own = tool.traits(given)
        return replace(own, max_chars=own.max_chars + _RESULT_MAX_CHARS)

    return replace(tool, run=run, traits=traits)
