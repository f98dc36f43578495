"""The instructions that hold in an agent's folder from the start, and what is odd about them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from mainspring.harness.context.disk import Disk
from mainspring.harness.context.instructions import (
    Files,
    Instructions,
    Limits,
    Oddity,
    Places,
    load,
)
from mainspring.runtime.folder.finding import Finding
from mainspring.runtime.folder.scopes import MANAGED, Scopes

_CLAUDE_MANAGED = {
    "linux": PurePosixPath("/etc/claude-code"),
    "darwin": PurePosixPath("/Library/Application Support/ClaudeCode"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Instructed:
    instructions: Instructions
    places: Places
    """Where they were looked for: what comes later, with a file, is looked for there too."""
    findings: tuple[Finding, ...]


def read_instructions(
    scopes: Scopes,
    *,
    project: Path | None = None,
    cwd: Path | None = None,
    files: Files | None = None,
    limits: Limits | None = None,
) -> Instructed:
    """Read them from the disk, unless other files are given; `project`, if the agent's folder
    stands in a larger one of which the instructions hold as well, and `cwd`, if the work is done
    further down."""
    places = places_of(scopes, project=project, cwd=cwd)
    found = load(files or Disk(), places, limits)
    findings = tuple(finding_of(oddity) for oddity in found.oddities)
    return Instructed(instructions=found, places=places, findings=findings)


def places_of(scopes: Scopes, *, project: Path | None = None, cwd: Path | None = None) -> Places:
    folder = PurePosixPath(scopes.folder)
    return Places(
        project=folder if project is None else PurePosixPath(project),
        cwd=folder if cwd is None else PurePosixPath(cwd),
        agent=folder,
        home=None if scopes.home is None else PurePosixPath(scopes.home),
        managed=_managed(scopes),
    )


def finding_of(oddity: Oddity) -> Finding:
    return Finding(
        level="note" if oddity.is_note else "warning",
        file=oddity.file,
        line=oddity.line,
        what=oddity.what,
        fix=oddity.fix,
    )


def _managed(scopes: Scopes) -> tuple[PurePosixPath, ...]:
    if scopes.managed is None:
        return ()
    own = PurePosixPath(scopes.managed)
    claude = _CLAUDE_MANAGED.get(sys.platform)
    # Who runs this machine may have written for Claude Code; beside another place nothing stands.
    return (own,) if claude is None or scopes.managed != MANAGED else (claude, own)
