"""Tokens of work items: a worker uses them for one session instead of its environment's key. They
are sealed, not stored: a stolen database gives no access to sessions."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock
from mainspring.core.errors import NotFound, StoreCorrupt, Unauthenticated
from mainspring.core.ports import Seal
from mainspring.log.records import Records
from mainspring.service.access.principal import Principal
from mainspring.service.self_hosted.work_item import StoredWorkItem, WorkItem
from mainspring.service.self_hosted.work_queue import WORK_KIND
from mainspring.service.storage.repository import Repository

PREFIX = "mswt_"
LIFETIME = timedelta(hours=24)
"""After this time, the worker gets the next item of the session."""
GRACE = timedelta(minutes=10)
"""How long a token is valid after its item has stopped: the worker must still learn of it, and
clean up."""
_CONTEXT = "token of a work item"


class _TokenClaims(Struct, frozen=True, kw_only=True):
    tenant: str
    work_id: str
    expires_at: datetime


class _Secret(Struct, frozen=True, kw_only=True):
    """The format that the official worker expects in an item's `secret`."""

    sessions_token: str


class WorkTokens:
    """Issues the secrets of the work queue, and verifies them for the authenticator."""

    def __init__(self, records: Records, seal: Seal, *, clock: Clock = clocks.now) -> None:
        self._repository = Repository(records, WORK_KIND, StoredWorkItem)
        self._seal = seal
        self._clock = clock

    def secret(self, tenant: str, work: WorkItem) -> str:
        claims = _TokenClaims(tenant=tenant, work_id=work.id, expires_at=self._clock() + LIFETIME)
        sealed = self._seal.seal(msgspec.json.encode(claims), _CONTEXT)
        token = PREFIX + base64.urlsafe_b64encode(sealed).decode()
        return base64.urlsafe_b64encode(msgspec.json.encode(_Secret(sessions_token=token))).decode()

    def is_one(self, secret: str) -> bool:
        return secret.startswith(PREFIX)

    async def principal(self, token: str) -> Principal:
        """Raises: Unauthenticated."""
        claims, now = self._claims(token), self._clock()
        try:
            work = (await self._repository.get(claims.tenant, claims.work_id)).work
        except NotFound:
            raise Unauthenticated("the work item of this token no longer exists") from None
        is_over = work.stopped_at is not None and work.stopped_at + GRACE <= now
        if is_over or claims.expires_at <= now:
            raise Unauthenticated("the token of this work item is no longer valid")
        return Principal(
            tenant=claims.tenant,
            key_id=work.id,
            role="user",
            name=f"worker of {work.data.id}",
            environment_id=work.environment_id,
            session_id=work.data.id,
            work_id=work.id,
        )

    def _claims(self, token: str) -> _TokenClaims:
        try:
            sealed = base64.urlsafe_b64decode(token.removeprefix(PREFIX))
            return msgspec.json.decode(self._seal.unseal(sealed, _CONTEXT), type=_TokenClaims)
        except (binascii.Error, ValueError, StoreCorrupt):
            raise Unauthenticated("this is not the token of a work item") from None
