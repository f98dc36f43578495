"""The store of dreams over a memory folder, and the test of their edits on a copy of it."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

from anyio import to_thread

from mainspring.core.errors import InvalidInput
from mainspring.core.events import DreamScore
from mainspring.core.sender import Sender
from mainspring.improve.dreams.dreamer import DreamStore
from mainspring.improve.evals.evaluation import evaluate
from mainspring.improve.evals.runs.runner import SuiteRunner
from mainspring.improve.evals.suite import SuiteFile
from mainspring.runtime.memory.learning.memory_edits import AppliedEdits, MemoryEdit, apply_edits
from mainspring.runtime.memory.memory_folder import MemoryFolder
from mainspring.runtime.memory.memory_versions import Change


@dataclass(frozen=True, slots=True)
class FolderStore:
    folder: MemoryFolder

    async def texts(self) -> Mapping[str, str]:
        return await to_thread.run_sync(folder_texts, self.folder)

    async def apply(self, dream_id: str, edits: Sequence[MemoryEdit]) -> AppliedEdits:
        def work() -> AppliedEdits:
            author = Sender(kind="agent", id=dream_id)
            return apply_edits(self.folder, edits, author=author, key=lambda _: dream_id)

        return await to_thread.run_sync(work)

    async def revert(self, versions: Sequence[str], reason: str) -> list[str]:
        return await to_thread.run_sync(_revert, self.folder, versions, reason)


def folder_texts(folder: MemoryFolder) -> dict[str, str]:
    """Blocks."""
    return {path: folder.text(path) for path in folder.paths()}


def _revert(folder: MemoryFolder, versions: Sequence[str], reason: str) -> list[str]:
    """Revert the newest version first; leave memories that have changed since."""
    history = folder.history()
    newest: dict[str, str] = {}
    for version in history:
        newest.setdefault(version.path, version.id)
    author = Sender(kind="system", id="dreams")
    version_ids: list[str] = []
    for version in history:
        if version.id in versions and newest[version.path] == version.id:
            version_ids.append(folder.revert(version, Change(author=author, reason=reason)).id)
    return version_ids


def write_copy(folder: Path, texts: Mapping[str, str], edits: Sequence[MemoryEdit]) -> str:
    """Write the memories with the edits into a new folder; return a hash of them. Blocks."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    changed = dict(texts)
    for edit in edits:
        if edit.text is None:
            changed.pop(edit.path, None)
        else:
            changed[edit.path] = edit.text
    digest = hashlib.sha256()
    for path, text in sorted(changed.items()):
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        digest.update(f"{path}\n{text}\n".encode())
    return digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteTest:
    """Scores edits of memories with a suite of the agent."""

    store: DreamStore
    suite_file: SuiteFile
    place: Path
    """The folder for copies of the memories."""
    budget_usd: Decimal | None
    open_runner: Callable[[Path], AbstractAsyncContextManager[SuiteRunner]]
    """Opens a runner whose sessions have the memories of a folder."""

    async def __call__(self, edits: Sequence[MemoryEdit]) -> DreamScore | None:
        """Raises: InvalidInput: the suite cannot be run."""
        texts = await self.store.texts()
        before = await self._score("before", texts, ())
        after = await self._score("after", texts, edits)
        if before is None or after is None:
            return None
        return DreamScore(
            suite=self.suite_file.suite.name,
            before=before[0],
            after=after[0],
            before_run_id=before[1],
            after_run_id=after[1],
        )

    async def _score(
        self, name: str, texts: Mapping[str, str], edits: Sequence[MemoryEdit]
    ) -> tuple[float, str] | None:
        folder = self.place / name / "memory"
        digest = await to_thread.run_sync(write_copy, folder, texts, edits)
        async with self.open_runner(folder) as opened:
            runner = replace(opened, model_hash=f"{opened.model_hash} {digest}")
            scores = await evaluate(
                runner, self.suite_file, self.budget_usd, name=f"dream {name} {digest[:12]}"
            )
        if not scores.is_complete:
            raise InvalidInput(f"the budget is too small for suite {self.suite_file.suite.name}")
        return scores.summary.pass_rate, scores.run_id
