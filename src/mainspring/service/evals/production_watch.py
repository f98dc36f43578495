"""Periodic checks of the real sessions of the folder's agent: grades the share of them that its
agent.yaml states, and compares them with its service levels."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from anyio import to_thread

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock
from mainspring.core.errors import InvalidInput, NotFound
from mainspring.core.lazy_module import LazyModule
from mainspring.log.records import SESSION_KIND
from mainspring.log.session_log import SessionLog
from mainspring.runtime.agent_folder.manifest import FILE, AgentManifest, read_manifest
from mainspring.runtime.insights.service_levels import service_levels
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.settings.project_trust import ProjectFiles, is_trusted
from mainspring.service.evals.alarms import Alarms, AlarmSubject
from mainspring.service.evals.scheduled_evals import OpenSuiteRunner
from mainspring.service.schedules.local_schedule import TENANT

if TYPE_CHECKING:
    from mainspring.improve.evals import production
    from mainspring.improve.evals.suites import suite_files
else:
    production = LazyModule("mainspring.improve.evals.production")  # most folders grade nothing
    suite_files = LazyModule("mainspring.improve.evals.suites.suite_files")

LEVELS_WINDOW = timedelta(days=7)
"""The age up to which sessions are compared with the objectives."""
_LOG = logging.getLogger("mainspring.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductionWatch:
    log: SessionLog
    alarms: Alarms
    folder: Path
    home: Path
    read_project: Callable[[], ProjectFiles]
    """Reads the folder's settings, to check whether it is trusted. Raises: InvalidInput."""
    open_runner: OpenSuiteRunner
    clock: Clock = clocks.now
    _warnings: set[str] = field(default_factory=set[str])

    async def grade(self, model: str | None = None) -> production.GradingReport | None:
        """Grade sessions that are due; `None` if the folder does not ask for it, or is not trusted.
        `model`: for judges that name none, instead of the agent's.

        Raises: InvalidInput: agent.yaml or the suite has mistakes.
        """
        stated = (await self._manifest()).grade
        if stated is None:
            return None
        if not await to_thread.run_sync(self._is_trusted):
            self._warn("%s: grade: no session is graded until you run `mainspring policy trust`")
            return None
        file = self.folder / suite_files.EVALS_FOLDER / f"{stated.suite}.yaml"
        suite_file = await to_thread.run_sync(suite_files.read_suite, file)
        async with self.open_runner(RunOptions(model=model), False) as runner:
            grader = production.ProductionGrader(
                runner=runner,
                suite_file=suite_file,
                settings=stated,
                clock=self.clock,
                includes=self._is_own,
            )
            return await grader.run()

    async def check_levels(self) -> None:
        """Raise or clear the alarm of the agent's objectives.

        Raises: InvalidInput: agent.yaml has mistakes.
        """
        manifest = await self._manifest()
        if manifest.slo is None:
            return
        name = manifest.name or self.folder.name
        since = self.clock() - LEVELS_WINDOW
        missed = [
            words
            for levels in await service_levels(self.log, since=since, includes=self._is_own)
            if levels.agent == name
            for words in levels.missed(manifest.slo)
        ]
        subject = AlarmSubject(type="slo", name=name)
        await self.alarms.set(TENANT, subject, "; ".join(missed) or None)

    async def _manifest(self) -> AgentManifest:
        manifest = await to_thread.run_sync(read_manifest, self.folder / FILE)
        if manifest.error is not None:
            raise InvalidInput(str(manifest.error))
        return manifest

    def _warn(self, text: str) -> None:
        """Log a warning once, not at each check."""
        if text not in self._warnings:
            self._warnings.add(text)
            _LOG.warning(text, self.folder)

    def _is_trusted(self) -> bool:
        return is_trusted(self.folder, self.read_project(), home=self.home)

    async def _is_own(self, session_id: str) -> bool:
        """Whether a session is no other tenant's; sessions of the command line have no tenant."""
        try:
            return (await self.log.store.records.get(SESSION_KIND, session_id)).tenant == TENANT
        except NotFound:
            return True
