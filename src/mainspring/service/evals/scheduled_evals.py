"""Suites that deployments run, with the suite and the agent of the folder that the service runs in.
A run is a job. Its id is derived from the deployment's run, so that it is run and paid for once,
even if workers die. Afterwards the alarm of the suite is raised or cleared.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from mainspring.core import clock, ids
from mainspring.core.errors import (
    AlreadyExists,
    InvalidInput,
    LeaseHeld,
    MainspringError,
    StoreFailed,
)
from mainspring.core.lazy_module import LazyModule
from mainspring.log.records import Records
from mainspring.runtime.run_options import RunOptions
from mainspring.service.evals.alarms import Alarms, AlarmSubject, SubjectType
from mainspring.service.jobs.dispatcher import Job, PutJob
from mainspring.service.schedules.deployment_types import EvalAction
from mainspring.service.schedules.local_schedule import TENANT
from mainspring.service.sessions.session_record import ListCostBudget
from mainspring.service.storage.repository import Repository

if TYPE_CHECKING:
    from mainspring.improve.evals.runs.runner import SuiteRunner
    from mainspring.improve.evals.suite import SuiteFile
    from mainspring.service.evals import suite_runs
else:
    suite_runs = LazyModule("mainspring.service.evals.suite_runs")  # most services run no suites

TASK = "eval"


OpenSuiteRunner: TypeAlias = (
    "Callable[[RunOptions, bool], AbstractAsyncContextManager[SuiteRunner]]"
)
"""For a run, and whether the first model is treated as down."""


class EvalJob(Struct, frozen=True, kw_only=True):
    id: str
    """The id of the eval run."""
    action: EvalAction
    created_at: datetime
    budget_usd: str | None = None
    status: Literal["pending", "completed", "failed"] = "pending"
    error: str | None = None


class ScheduledEvals:
    def __init__(
        self,
        records: Records,
        alarms: Alarms,
        *,
        put: PutJob,
        folder: Path,
        open_runner: OpenSuiteRunner,
    ) -> None:
        """`folder`: that of the agent and its suites."""
        self._jobs = Repository(records, "eval_job", EvalJob)
        self._alarms = alarms
        self._put = put
        self._folder = folder
        self._open_runner = open_runner

    async def check(self, tenant: str, action: EvalAction) -> SuiteFile:
        """Raises: InvalidInput: it cannot be run here."""
        _require_tenant(tenant)
        return await to_thread.run_sync(suite_runs.find_suite, self._folder, action)

    async def start(
        self, tenant: str, action: EvalAction, budget: ListCostBudget | None, key: str
    ) -> str:
        """Start an eval run, once for each key; returns its id. A suite that is gone or unreadable
        by now raises its alarm when it runs. Raises: InvalidInput: of another tenant."""
        run_id = ids.stable_id(ids.SESSION, "scheduled-eval", tenant, key)
        if await self._jobs.find(tenant, run_id) is None:
            _require_tenant(tenant)
            job = EvalJob(
                id=run_id,
                action=action,
                created_at=clock.now(),
                budget_usd=None
                if budget is None
                else str(Decimal(budget.max_list_cost.amount) / 100),
            )
            try:
                await self._jobs.put(tenant, job)
            except AlreadyExists:
                return run_id
        await self._put(Job(task=TASK, key=run_id, tenant=tenant))
        return run_id

    async def is_busy(self, tenant: str, run_id: str) -> bool:
        job = await self._jobs.find(tenant, run_id)
        return job is not None and job.status == "pending"

    async def run(self, job: Job, *, model: str | None = None) -> None:
        """Handle a job: run a suite, or continue a run whose worker died. `model`: the operator's,
        used if the action names none."""
        eval_job = await self._jobs.find(job.tenant, job.key)
        if eval_job is None or eval_job.status != "pending":
            return
        error: str | None = None
        try:
            reason = await self._run(job.tenant, eval_job, model)
        except (LeaseHeld, StoreFailed):
            raise  # another worker runs it, or the store failed: the job is retried
        except MainspringError as failure:
            error = f"{type(failure).__name__}: {failure}"
            reason = f"the suite could not be run: {failure}"
        kind: SubjectType = "drill" if eval_job.action.is_drill else "eval"
        subject = AlarmSubject(type=kind, name=eval_job.action.suite)
        await self._alarms.set(job.tenant, subject, reason, run_id=eval_job.id)

        def end(current: EvalJob) -> EvalJob:
            return replace(current, status="failed" if error else "completed", error=error)

        await self._jobs.update(job.tenant, eval_job.id, end)

    async def _run(self, tenant: str, job: EvalJob, model: str | None) -> str | None:
        """Run the suite; returns the reason for an alarm, if there is one."""
        action = job.action
        suite_file = await self.check(tenant, action)
        options = RunOptions(model=action.model or model)
        async with self._open_runner(options, action.is_drill) as runner:
            run = suite_runs.SuiteRun(
                runner=runner,
                suite_file=suite_file,
                run_id=job.id,
                budget_usd=None if job.budget_usd is None else Decimal(job.budget_usd),
            )
            reasons = await (run.run_drill() if action.is_drill else run.run())
        return "; ".join(reasons) or None


def _require_tenant(tenant: str) -> None:
    if tenant != TENANT:
        raise InvalidInput(f"action: suites belong to the tenant {TENANT}")
