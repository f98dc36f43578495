"""Access tokens that have expired are exchanged for new ones, once however many ask: many
endpoints take a refresh token that comes twice for a stolen one, and revoke everything."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, TypeAlias
from weakref import WeakValueDictionary

import anyio
from msgspec.structs import replace

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock, to_micros
from mainspring.core.errors import NetworkRefused, Stale
from mainspring.service.keeping.notice import Notice, Notify, unnoticed
from mainspring.service.vaults.credential_auth import McpOauth
from mainspring.service.vaults.credentials import Credentials, Opened
from mainspring.service.vaults.token_endpoint import (
    Fetch,
    Granted,
    HttpResponse,
    granted,
    is_passing,
    refresh_request,
    shown,
)

_TRIES = 8
_CLAIM = timedelta(seconds=30)
"""Longer than an endpoint is waited for; after it whoever claimed the exchange has died."""
_PAUSE_SECONDS = 0.1

Outcome: TypeAlias = Literal["succeeded", "failed", "connect_error", "no_refresh_token"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What came of an exchange."""

    outcome: Outcome
    opened: Opened = field(repr=False)
    """The credential as it is now."""
    http_response: HttpResponse | None = None
    """What the endpoint said, when it granted nothing."""
    is_final: bool = False
    """Asking again will not help: the user has to authorize anew."""


class Refresher:
    def __init__(
        self,
        credentials: Credentials,
        fetch: Fetch,
        *,
        notify: Notify = unnoticed,
        clock: Clock = clocks.now,
    ) -> None:
        self._credentials = credentials
        self._fetch = fetch
        self._notify = notify
        self._clock = clock
        self._locks: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self._refused: dict[str, tuple[int, Exchange]] = {}
        """By credential: what came of its refresh token, at which revision of the record."""

    async def refresh(self, opened: Opened) -> Exchange:
        """A new access token in the place of the one that was opened, unless somebody else has
        got one already. A refresh token that was refused is not sent again.

        Raises: NotFound, InvalidInput: it is gone or archived by now.
        """
        id_ = opened.credential.id
        lock = self._locks.setdefault(id_, anyio.Lock())
        async with lock:
            now = await self._again(opened)
            rev, known = self._refused.get(id_, (None, None))
            if known is not None and rev == now.record.rev:
                return known
            now = await self._claimed(opened)
            if now.secrets.value != opened.secrets.value:
                return Exchange(outcome="succeeded", opened=now)
            return await self._exchanged(now)

    async def _claimed(self, opened: Opened) -> Opened:
        """Ours alone to exchange, in whatever process others are; or with a new token already."""
        while True:
            now = await self._again(opened)
            if now.secrets.value != opened.secrets.value:
                return now
            due, moment = now.record.due, self._clock()
            if due is not None and due > to_micros(moment):
                await anyio.sleep(_PAUSE_SECONDS)
                continue
            try:
                return await self._credentials.claim(now, moment + _CLAIM)
            except Stale:
                continue

    async def _exchanged(self, opened: Opened) -> Exchange:
        auth = opened.credential.auth
        if not isinstance(auth, McpOauth) or auth.refresh is None:
            return Exchange(outcome="no_refresh_token", opened=await self._released(opened))
        try:
            reply = await self._fetch(refresh_request(auth.refresh, opened.secrets))
        except NetworkRefused:
            return Exchange(outcome="connect_error", opened=await self._released(opened))
        if (grant := granted(reply)) is not None:
            return Exchange(outcome="succeeded", opened=await self._kept(opened, grant))
        failed = Exchange(
            outcome="failed",
            opened=await self._released(opened),
            http_response=shown(reply, opened.secrets),
            is_final=not is_passing(reply),
        )
        if failed.is_final:
            self._refused[opened.credential.id] = failed.opened.record.rev, failed
            await self._tell(opened)
        return failed

    async def _released(self, opened: Opened) -> Opened:
        try:
            return await self._credentials.claim(opened, None)
        except Stale:  # somebody changed it, which ended the claim
            return await self._again(opened)

    async def _kept(self, opened: Opened, grant: Granted) -> Opened:
        """The endpoint may have made the old refresh token void: what it gave must be kept,
        whatever else changed in the credential meanwhile."""
        for _ in range(_TRIES):
            auth = opened.credential.auth
            assert isinstance(auth, McpOauth)  # a credential stays what it is
            now = self._clock()
            changed = replace(
                opened.credential,
                auth=replace(auth, expires_at=grant.expires_at(now)),
                updated_at=now,
            )
            secrets = replace(
                opened.secrets,
                value=grant.access_token,
                refresh_token=grant.refresh_token or opened.secrets.refresh_token,
            )
            try:
                await self._credentials.keep(opened, changed, secrets)
            except Stale:
                opened = await self._again(opened)
                continue
            return await self._again(opened)
        raise Stale(f"credential {opened.credential.id}: others kept changing it; try again")

    async def _again(self, opened: Opened) -> Opened:
        known = opened.credential
        return await self._credentials.opened(opened.record.tenant, known.vault_id, known.id)

    async def _tell(self, opened: Opened) -> None:
        await self._notify(
            Notice(
                tenant=opened.record.tenant,
                type="vault_credential.refresh_failed",
                id=opened.credential.id,
                vault_id=opened.credential.vault_id,
            )
        )
