"""Steps of the service around the runs of a session: approvals, webhooks, outputs, clients'
workers. A step that fails does not make the run fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mainspring.service.jobs.periodic_tasks import run_each
from mainspring.service.resources.environments import CloudConfig
from mainspring.service.service_groups import SessionServices, WebhookServices
from mainspring.service.sessions.output_files import OutputFolder
from mainspring.service.sessions.session_record import SessionRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSteps:
    sessions: SessionServices
    webhooks: WebhookServices
    outputs_of: Callable[[str], OutputFolder]
    """The output files of a session, by its id."""

    async def before_idle(self, tenant: str, session: SessionRecord) -> None:
        """When a client sees the session idle, the approvals that it waits for and its output files
        must already be stored."""
        interrupt = frozenset({"user.interrupt"})
        await run_each(
            session.id,
            lambda: self.sessions.approvals.keeper.catch_up(tenant, session.id),
            lambda: self._collect_outputs(tenant, session, stopped_by=interrupt),
        )

    async def after_run(self, tenant: str, session: SessionRecord) -> None:
        await run_each(
            session.id,
            lambda: self.webhooks.news.catch_up(tenant, session.id),
            lambda: self.sessions.approvals.keeper.catch_up(tenant, session.id),
            lambda: self._collect_outputs(tenant, session),
            lambda: self.sessions.work.offer_session(tenant, session),
        )

    async def after_parking(self, tenant: str, session_id: str) -> None:
        repository = self.sessions.sessions.repository
        await self.after_run(tenant, await repository.get(tenant, session_id))

    async def _collect_outputs(
        self, tenant: str, session: SessionRecord, *, stopped_by: frozenset[str] | None = None
    ) -> None:
        """`stopped_by`: the types of events that stop it; `None`: any event in the inbox."""
        store = self.sessions.sessions.log.store

        async def is_stopped() -> bool:
            return bool(await store.pending(session.id, types=stopped_by, limit=1))

        if isinstance(session.environment, CloudConfig):
            await self.sessions.outputs.collect(
                tenant, session.id, self.outputs_of(session.id), is_stopped=is_stopped
            )
