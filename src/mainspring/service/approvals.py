"""Approvals of a tenant: what waits for a person in all of its sessions, and their answers.

The truth is in the logs. A record for each call that waits is kept in step with them, so that a
list is cheap and deadlines are found; whoever dies over it leaves nothing that the next does not
mend.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Annotated, Protocol

from msgspec import Meta, Struct
from msgspec.structs import replace

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock
from mainspring.core.errors import (
    AlreadyThere,
    EventIdTaken,
    InvalidInput,
    MainspringError,
    NotFound,
    SessionNotFound,
    Stale,
)
from mainspring.core.events import PermissionUpdated, UserToolConfirmation
from mainspring.harness.permissions.always import always, update_of
from mainspring.log.records import Change, Record, Wanted
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow
from mainspring.service import session_record, speakers
from mainspring.service.answering import EXPIRED, Leave, answer_client_id, answered_by
from mainspring.service.approval_calls import Asking, Glance, answer_to, glance, questions
from mainspring.service.approval_policy import ApprovalPolicy, Policies
from mainspring.service.approval_record import (
    KIND,
    MAX_PREVIEW_CHARS,
    Approval,
    MayAnswer,
    Result,
    approval_drawer,
    approval_id,
    shortened,
)
from mainspring.service.dispatch import Job
from mainspring.service.drawer import Drawer, Listing
from mainspring.service.jobs import PutJob, unqueued
from mainspring.service.notice import Notice
from mainspring.service.page import Page
from mainspring.service.principal import Principal
from mainspring.service.session_digest import Digests
from mainspring.service.session_record import SessionRecord
from mainspring.service.sessions import Wake
from mainspring.service.sweeping import sweep

TASK = "approval"
ESCALATED = "mainspring.approval_escalated"
OVERDUE = "mainspring.approval_expired"
"""What webhooks are told of; the id in it is the approval's."""
MAX_MESSAGE_CHARS = 10_000
_TRIES = 8
_BATCH = 200
_PATROL = 500
_RECENT = timedelta(days=7)


class Answer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    result: Result
    message: Annotated[str, Meta(min_length=1, max_length=MAX_MESSAGE_CHARS)] | None = None
    """Why not: the agent reads it."""
    for_session: bool = False
    """Allow the like of it in this session from now on, without asking."""


class Answered(Struct, frozen=True, kw_only=True):
    """What came of one of several answers."""

    id: str
    approval: Approval | None = None
    error: str | None = None


class Teller(Protocol):
    """An `Outbox`: notices that are written together with what they are of."""

    async def telling(self, *notices: Notice) -> list[Change]: ...

    async def told(self, changes: Sequence[Change]) -> None: ...


class Untold:
    """For who has no webhooks at hand."""

    async def telling(self, *notices: Notice) -> list[Change]:
        return []

    async def told(self, changes: Sequence[Change]) -> None:
        pass


async def unwoken(_tenant: str, _session_id: str) -> None:
    """A worker finds by looking what has come to an inbox."""


class Approvals:
    def __init__(
        self,
        log: SessionLog,
        *,
        wake: Wake = unwoken,
        put: PutJob = unqueued,
        teller: Teller | None = None,
        digests: Digests | None = None,
        clock: Clock = clocks.now,
    ) -> None:
        """`digests`: those of `Sessions`, to fold each log once in a process."""
        records = log.store.records
        self.policies = Policies(records, clock=clock)
        self._log = log
        self._records = records
        self._wake = wake
        self._put = put
        self._teller = teller or Untold()
        self._digests = digests or Digests(log)
        self._clock = clock
        self._leave = Leave(records, clock=clock)
        self._drawer = approval_drawer(records, clock)
        self._sessions = Drawer(records, session_record.KIND, SessionRecord, clock=clock)
        self._patrolled: dict[str, int] = {}
        self._last_seen: SessionRow | None = None

    async def page(self, who: Principal, listing: Listing) -> Page[Approval]:
        """Those that wait, unless the listing includes archived ones."""
        if who.agent_id is not None:
            if listing.label not in (None, who.agent_id):
                return Page(data=[])
            listing = msgspec_free_replace(listing, who.agent_id)
        found = await self._drawer.page(who.tenant, listing)
        shown = [await self._shown(who.tenant, each) for each in found.data]
        return Page(data=shown, next_page=found.next_page)

    async def get(self, who: Principal, approval_id: str) -> Approval:
        """Raises: NotFound."""
        return await self._shown(who.tenant, await self._found(who, approval_id))
