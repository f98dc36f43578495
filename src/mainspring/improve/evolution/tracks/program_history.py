"""The experiments of a campaign on a program, for people: `results.tsv`, and a git repository in
which each kept experiment is a commit. Both are copies; the campaign's log is the record."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import anyio

from mainspring.core.events import EvolutionScreened
from mainspring.improve.evolution.candidate import Candidate

_HEAD = "commit\tscore\tstatus\tdescription\n"
_GIT = (
    "git",
    "-c",
    "user.name=mainspring evolve",
    "-c",
    "user.email=evolve@localhost",
    "-c",
    "commit.gpgSign=false",
    "-c",
    "core.hooksPath=/dev/null",
)


@dataclass(frozen=True, slots=True)
class ProgramHistory:
    place: Path
    """The folder of the campaign."""

    @property
    def table(self) -> Path:
        return self.place / "results.tsv"

    @property
    def repository(self) -> Path:
        return self.place / "repository"

    async def begin(self, base: Candidate) -> None:
        """The first commit is the program as it is."""
        if (self.repository / ".git").exists():
            return
        self.repository.mkdir(parents=True, exist_ok=True)
        self.table.write_text(_HEAD, encoding="utf-8")
        await self._git("init", "--quiet")
        await self._commit(base, "the program as it is")

    async def add(self, step: EvolutionScreened, candidate: Candidate) -> None:
        """Commit an experiment; if it is refused, go back."""
        commit = await self._commit(candidate, step.reason)
        if not step.is_kept:
            await self._git("reset", "--quiet", "--hard", "HEAD~1")
        status = "keep" if step.is_kept else "discard"
        score = "" if step.score is None else f"{step.score:.4f}"
        with self.table.open("a", encoding="utf-8") as table:
            table.write(f"{commit}\t{score}\t{status}\t{' '.join(step.reason.split())}\n")

    async def _commit(self, candidate: Candidate, message: str) -> str:
        for path, text in candidate.texts.items():
            file = self.repository / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        await self._git("add", "--all")
        await self._git("commit", "--quiet", "--allow-empty", "-m", message)
        return await self._git("rev-parse", "--short", "HEAD")

    async def _git(self, *arguments: str) -> str:
        """git without the settings of the user and of the machine."""
        variables = {
            "PATH": os.defpath,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "LC_ALL": "C",
        }
        done = await anyio.run_process([*_GIT, *arguments], cwd=self.repository, env=variables)
        return done.stdout.decode().strip()
