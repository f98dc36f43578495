"""Runs of the service's sessions: what a worker does when one is woken."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from pathlib import Path

import anyio
import msgspec
from anyio import to_thread

from mainspring.capabilities.network.placeholders import Credential
from mainspring.config import Settings
from mainspring.core.envelope import Event
from mainspring.core.errors import InvalidInput, StoreUnavailable
from mainspring.core.latest import Latest
from mainspring.core.sender import Sender
from mainspring.harness.gates import OpenGates
from mainspring.log.background import running
from mainspring.log.chain import Scrub
from mainspring.log.session_log import SessionLog
from mainspring.log.store import Store
from mainspring.runtime.kit import Kit, Opening
from mainspring.runtime.outline import workspace_of
from mainspring.runtime.sessions import Runtime, Session
from mainspring.service.access.halts import Halts
from mainspring.service.access.ledger import TallyLedger
from mainspring.service.describing.environments import CloudConfig
from mainspring.service.keeping.about import about
from mainspring.service.keeping.seal import Seal
from mainspring.service.sessions.deltas import Deltas, Previews
from mainspring.service.sessions.mounted import token_context
from mainspring.service.sessions.record import KIND, SessionRecord
from mainspring.service.vaults.usable import Usable, UsableCredentials, Variable
from mainspring.service.watching.observing import Observers, Subject
from mainspring.service.work.worker import Postponed
from mainspring.wiring.casting import Cast, Part, cast_for
from mainspring.wiring.forked import bring_workspace
from mainspring.wiring.hands import Bench
from mainspring.wiring.models import Shelf
from mainspring.wiring.mounts import Mounts
from mainspring.wiring.outfit import Outfitter
from mainspring.wiring.outputs import OUTPUTS_NOTE
from mainspring.wiring.scrub import passages, scrubber
from mainspring.wiring.session_skills import SessionSkills
from mainspring.wiring.vaults import known_secrets
from mainspring.wiring.wish import Wish

_MOST_KNOWN = 256
"""Sessions whose logs stay folded in memory between two runs."""
_HALT_SECONDS = 2.0
_POSTPONED_SECONDS = 5.0
_CENT = Decimal("0.01")

_EXPIRED = (
    "Your workspace was removed because nobody used it for long. It is new now: what you have"
    " written there before is gone, except for files that you had put into outputs."
)

_WORKER = Sender(kind="system", id="worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ongoing:
    tenant: str
    asked: SessionRecord
    wish: Wish


@dataclass(frozen=True, slots=True, kw_only=True)
class Backing:
    """What the service keeps and a run needs."""

    halts: Halts
    ledger: TallyLedger
    credentials: UsableCredentials
    seal: Seal
    mounts: Mounts
    skills: SessionSkills
    deltas: Deltas
    observers: Observers
    was_removed: Callable[[str, str], Awaitable[bool]]
    """Tenant and session: whether its workspace was removed because nobody used it."""
    before_idle: Callable[[str, SessionRecord], Awaitable[None]]
    """Tenant and session: what clients expect to find as soon as they see that it is idle."""
    after_run: Callable[[str, SessionRecord], Awaitable[None]]
    """Tenant and session: what others make of its log. Called while it is still held, so that
    what a worker that dies has left undone is done by the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrubbing:
    scrub: Scrub
    passages: tuple[str, ...]

    @classmethod
    def of(cls, secrets: Mapping[str, str]) -> Scrubbing:
        return cls(scrub=scrubber(secrets), passages=passages(secrets))


class Runs:
    """`run` is what a worker calls; the rest of it is kept between runs to be quick."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        shelf: Shelf,
        bench: Bench,
        backing: Backing,
        *,
        model: str | None = None,
    ) -> None:
        """`model`: the operator's word, whatever agents say."""
        self._settings = settings
        self._store = store
        self._shelf = shelf
        self._back = backing
        self._model = model
        self._outfitter = Outfitter(settings, shelf, bench, self._wish, OpenGates())
        self._ongoing: dict[str, _Ongoing] = {}
        self._sessions: Latest[str, Session] = Latest(_MOST_KNOWN)
        self._known = known_secrets(settings)
        self._scrub = Scrubbing.of(self._known)

    async def run(self, session_id: str) -> None:
        """
        Raises:
            LeaseHeld: another worker has it. Postponed: somebody has stopped it, for now.
            InvalidInput: it cannot be run here, and why.
        """
        record = await self._store.records.get(KIND, session_id)
        with about(session_id=session_id, tenant=record.tenant):
            asked = msgspec.json.decode(record.body, type=SessionRecord)
            await self._run(record.tenant, asked)

    async def _run(self, tenant: str, asked: SessionRecord) -> None:
        session_id = asked.id
        await self._require_running(tenant, asked)
        usable = await self._back.credentials.usable(tenant, asked.vault_ids)
        scrubbing = self._scrubbing(usable)
        cast = await self._cast(tenant, asked, usable)
        session = self._session(tenant, asked, cast, scrubbing)
        previews = Previews(
            self._back.deltas,
            await self._store.session(session_id),
            scrub=scrubbing.scrub,
            passages=scrubbing.passages,
        )
        self._ongoing[session_id] = _Ongoing(tenant=tenant, asked=asked, wish=cast.wish)
        try:
            async with (
                self._back.observers.run(_subject(tenant, asked)) as observer,
                running(lambda: self._stop_when_halted(tenant, asked)),
            ):
                await session.run(previews.emit, tell=both(previews.tell, observer.tell))
        finally:
            self._ongoing.pop(session_id, None)  # another try at it may have ended first
        self._sessions.put(session_id, session)

    async def _require_running(self, tenant: str, asked: SessionRecord) -> None:
        if why := await self._back.halts.why_stopped(tenant, asked.agent.id):
            raise Postponed(why, seconds=_POSTPONED_SECONDS)

    async def _stop_when_halted(self, tenant: str, asked: SessionRecord) -> None:
        while True:
            await anyio.sleep(_HALT_SECONDS)
            with suppress(StoreUnavailable):  # a database that restarts is no reason to stop
                await self._require_running(tenant, asked)

    async def _cast(self, tenant: str, asked: SessionRecord, usable: Sequence[Usable]) -> Cast:
        workspace = Path(self._settings.workspaces) / asked.id
        log = SessionLog(self._store)
        await bring_workspace(self._settings, log, asked.id, workspace, asked.resources)
        is_expired = await self._require_here(tenant, asked.id, workspace)
        notes = await self._back.mounts.prepare(
            workspace, asked.resources, tenant=tenant, tokens=self._tokens(asked)
        )
        budget = asked.budget
        return cast_for(
            Part(
                agent=asked.agent,
                environment=asked.environment,
                workspace=workspace,
                max_cost_usd=None if budget is None else int(budget.max_list_cost.amount) * _CENT,
                credentials=tuple(_credentials(usable)),
                notes=(*notes, *_output_notes(asked), *([_EXPIRED] if is_expired else [])),
                model=self._model,
                skills=await self._back.skills.of(tenant, asked),
            )
        )

    async def _require_here(self, tenant: str, session_id: str, workspace: Path) -> bool:
        """Going on in an empty folder would look as if the work had been lost; unless it was
        removed on purpose: whether it was."""
        if await to_thread.run_sync(workspace.is_dir):
            return False
        before = await workspace_of(SessionLog(self._store), session_id)
        if before is None:
            return False
        if not await self._back.was_removed(tenant, session_id):
            raise InvalidInput(
                f"session {session_id} has worked in {before}, which is not on this machine; give"
                " all workers the same MAINSPRING_WORKSPACES on a disk that they share"
            )
        return True

    def _tokens(self, asked: SessionRecord) -> dict[str, str]:
        unseal = self._back.seal.unseal
        return {
            id_: unseal(each, token_context(id_)).decode() for id_, each in asked.sealed.items()
        }

    def _session(
        self, tenant: str, asked: SessionRecord, cast: Cast, scrubbing: Scrubbing
    ) -> Session:
        """With what is known of its log, if this process has run it before."""
        runtime = Runtime(
            SessionLog(self._store, scrub=scrubbing.scrub),
            self._shelf,
            outfit=self._outfit,
            purse=self._back.ledger.purse(tenant, asked.created_by.key_id),
            sender=_WORKER,
        )
        return runtime.known(cast.agent, asked.id, self._sessions.pop(asked.id))

    def _scrubbing(self, usable: Sequence[Usable]) -> Scrubbing:
        if not usable:
            return self._scrub
        named = {
            each.name if isinstance(each, Variable) else each.credential_id: _value(each)
            for each in usable
        }
        return Scrubbing.of({**self._known, **named})

    def _wish(self, opening: Opening) -> Wish:
        return self._ongoing[opening.writer.session_id].wish

    @asynccontextmanager
    async def _outfit(self, opening: Opening) -> AsyncGenerator[Kit, None]:
        ongoing = self._ongoing[opening.writer.session_id]
        before = partial(self._back.before_idle, ongoing.tenant, ongoing.asked)
        async with self._outfitter(opening) as kit:
            yield replace(kit, before_idle=before)
        await self._back.after_run(ongoing.tenant, ongoing.asked)


def _output_notes(asked: SessionRecord) -> tuple[str, ...]:
    return (OUTPUTS_NOTE,) if isinstance(asked.environment, CloudConfig) else ()


def _subject(tenant: str, asked: SessionRecord) -> Subject:
    return Subject(
        session_id=asked.id,
        tenant=tenant,
        agent_id=asked.agent.id,
        agent_name=asked.agent.name,
    )


def both(
    first: Callable[[Event], None], second: Callable[[Event], None]
) -> Callable[[Event], None]:
    def tell(event: Event) -> None:
        first(event)
        second(event)

    return tell


def _value(usable: Usable) -> str:
    return usable.value if isinstance(usable, Variable) else usable.token


def _credentials(usable: Sequence[Usable]) -> list[Credential]:
    """What programs may use by a placeholder; tokens of MCP servers are not for them."""
    return [
        Credential(name=each.name, value=each.value, hosts=each.hosts or ("*",))
        for each in usable
        if isinstance(each, Variable) and each.in_headers
    ]
