"""Requests that a client may repeat under its own `Idempotency-Key`: each is executed once.

The response is kept for a day, sealed because some contain a secret. So is the fingerprint of the
request: from a plain hash, a short secret in the request could be guessed. If a process dies during
a request, its progress is unknown: after a minute the same request is executed again.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mainspring.core import clock as clocks
from mainspring.core import ids
from mainspring.core.clock import Clock
from mainspring.core.errors import AlreadyExists, Forbidden, InvalidInput, NotFound, StaleVersion
from mainspring.core.ports import Seal
from mainspring.log.records import Records
from mainspring.service.access.principal import Principal
from mainspring.service.storage.repository import IndexColumns, Repository

KIND = "repeated_request"
LIFETIME = timedelta(days=1)  # of an answer; clients retry within minutes
ABANDONED_AFTER = timedelta(seconds=60)  # a request whose process died may be tried again
_OTHER_BODY = "Idempotency-Key: this key was used for another request; choose a new one"
_OTHER_RIGHTS = (
    "Idempotency-Key: the first request with this key had other permissions; choose a new key"
)
_IN_PROGRESS = "Idempotency-Key: the first request with this key is still being handled; try again"


class RequestRecord(Struct, frozen=True, kw_only=True):
    id: str
    attempt_id: str
    """Unique for each request; repetitions have the same."""
    begun_at: datetime
    expires_at: datetime
    sealed_request: bytes = b""
    """The request and its permissions, as `_SealedRequest`: only the same request gets this
    answer."""
    sealed: bytes | None = None
    """The response; `None` if there is none yet."""


class _SealedRequest(Struct, frozen=True, kw_only=True):
    fingerprint: str
    rights: list[str]


class IdempotentRequests:
    def __init__(self, records: Records, seal: Seal, *, clock: Clock = clocks.now) -> None:
        self._repository = Repository(
            records,
            KIND,
            RequestRecord,
            columns=lambda request: IndexColumns(due=request.expires_at),
            clock=clock,
        )
        self._seal = seal
        self._clock = clock

    async def begin(
        self, principal: Principal, operation: str, key: str, fingerprint: str
    ) -> RequestRecord:
        """The record of a request: with the answer, or for the caller to execute it now.

        Raises: InvalidInput: the key is malformed, or was used for another request. Forbidden:
        the caller's permissions have changed since. StaleVersion: another process executes it.
        """
        now = self._clock()
        request = _SealedRequest(fingerprint=fingerprint, rights=_rights(principal))
        new = RequestRecord(
            id=_request_id(principal, operation, key),
            attempt_id=ids.new_id("req"),
            begun_at=now,
            expires_at=now + LIFETIME,
        )
        sealed = self._seal.seal(msgspec.json.encode(request), _request_context(new))
        new = replace(new, sealed_request=sealed)
        try:
            return await self._repository.put(principal.tenant, new)
        except AlreadyExists:
            current = await self._repository.get(principal.tenant, new.id)
            if self._take_over(current, new, request) is current:
                return current
            return await self._repository.update(
                principal.tenant, new.id, lambda current: self._take_over(current, new, request)
            )

    def _take_over(
        self, current: RequestRecord, new: RequestRecord, sealed: _SealedRequest
    ) -> RequestRecord:
        now = new.begun_at
        if current.expires_at <= now:
            return new
        plain = self._seal.unseal(current.sealed_request, _request_context(current))
        before = msgspec.json.decode(plain, type=_SealedRequest)
        if before.fingerprint != sealed.fingerprint:
            raise InvalidInput(_OTHER_BODY)
        if before.rights != sealed.rights:
            raise Forbidden(_OTHER_RIGHTS)
        if current.sealed is None and now - current.begun_at < ABANDONED_AFTER:
            raise StaleVersion(_IN_PROGRESS)
        return current if current.sealed is not None else replace(current, begun_at=now)

    async def finish(self, tenant: str, request: RequestRecord, answer: bytes) -> None:
        sealed = self._seal.seal(answer, _context(request))
        with suppress(NotFound):  # it has expired in the meantime
            await self._repository.update(
                tenant, request.id, lambda current: replace(current, sealed=sealed)
            )

    async def release(self, tenant: str, request: RequestRecord) -> None:
        """The request was refused: the next one with this key is executed again."""
        with suppress(NotFound):
            await self._repository.remove(tenant, request.id)

    def answer(self, request: RequestRecord) -> bytes | None:
        if request.sealed is None:
            return None
        return self._seal.unseal(request.sealed, _context(request))

    async def remove_expired(self) -> int:
        """Delete expired entries of all tenants and return how many. Call it periodically."""
        return await self._repository.remove_due(self._clock())


def _request_id(principal: Principal, operation: str, key: str) -> str:
    if not 1 <= len(key) <= 255 or not key.isascii():
        raise InvalidInput("Idempotency-Key: must have 1 to 255 ASCII characters")
    parts = [
        principal.tenant,
        principal.issuer,
        principal.key_id,
        principal.acting_agent,
        operation,
        key,
    ]
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


def _rights(principal: Principal) -> list[str]:
    """The permissions that an answer was given under: a key with fewer or other permissions does
    not get it."""
    bounds = (
        principal.agent_id,
        principal.environment_id,
        principal.session_id,
        principal.work_id,
        principal.system,
    )
    return [principal.role, *(bound or "" for bound in bounds), *sorted(principal.grants)]


def _context(request: RequestRecord) -> str:
    return f"repeated request {request.id} {request.attempt_id}"


def _request_context(request: RequestRecord) -> str:
    return f"repeated request {request.id} {request.attempt_id}: what was asked"
