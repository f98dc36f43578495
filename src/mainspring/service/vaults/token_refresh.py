"""Exchanges expired access tokens at their token endpoint (RFC 6749, section 6), once however
many sessions ask: a refresh token that is used twice is often revoked.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, TypeAlias
from urllib.parse import quote, quote_plus, urlencode
from weakref import WeakValueDictionary

import anyio
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock, to_micros
from mainspring.core.errors import NetworkRefused, StaleVersion
from mainspring.core.ports import HttpPost, HttpReply
from mainspring.service.storage.notifications import Notification, Notify, ignore_notification
from mainspring.service.vaults.credential_auth import (
    BasicAuth,
    McpOauth,
    PostAuth,
    Refresh,
    Secrets,
    redacted_repr,
)
from mainspring.service.vaults.credentials import Credentials, UnsealedCredential

MAX_BODY_CHARS = 2048
"""Characters of a body that are told."""
_MAX_LIFETIME = timedelta(days=3650)


SendTokenRequest: TypeAlias = Callable[[HttpPost], Awaitable[HttpReply]]
"""Sends it and follows no redirect. Raises: NetworkRefused: no answer, or not to be reached."""


class HttpResponse(Struct, frozen=True, kw_only=True):
    """An answer as clients are told of it."""

    status_code: int
    content_type: str
    body: str
    body_truncated: bool


class TokenGrant(Struct, frozen=True, kw_only=True):
    access_token: str
    refresh_token: str | None = None
    expires_in: float | None = None
    __repr__ = redacted_repr

    def expires_at(self, now: datetime) -> datetime | None:
        if self.expires_in is None or not 0 < self.expires_in < _MAX_LIFETIME.total_seconds():
            return None
        return now + timedelta(seconds=self.expires_in)


_GRANT_DECODER = msgspec.json.Decoder(TokenGrant, strict=False)


def refresh_request(refresh: Refresh, secrets: Secrets) -> HttpPost:
    form = {"grant_type": "refresh_token", "refresh_token": secrets.refresh_token or ""}
    headers = [
        ("content-type", "application/x-www-form-urlencoded"),
        ("accept", "application/json"),
    ]
    client_secret = secrets.client_secret or ""
    if isinstance(refresh.token_endpoint_auth, BasicAuth):
        login = f"{quote_plus(refresh.client_id)}:{quote_plus(client_secret)}"
        headers.append(("authorization", f"Basic {b64encode(login.encode()).decode()}"))
    else:
        form["client_id"] = refresh.client_id
    if isinstance(refresh.token_endpoint_auth, PostAuth):
        form["client_secret"] = client_secret
    form |= {name: value for name in ("scope", "resource") if (value := getattr(refresh, name))}
    return HttpPost(
        url=refresh.token_endpoint, headers=tuple(headers), body=urlencode(form).encode()
    )


def parse_grant(reply: HttpReply) -> TokenGrant | None:
    """What it grants; `None` if it is no grant, whatever its status."""
    if reply.status != 200:
        return None
    try:
        found = _GRANT_DECODER.decode(reply.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found if found.access_token else None


def is_transient(reply: HttpReply) -> bool:
    """Whether asking again later may help."""
    return reply.status == 429 or reply.status >= 500


def redacted_response(reply: HttpReply, secrets: Secrets) -> HttpResponse:
    """A reply without the secrets that it may repeat."""
    text = reply.body.decode(errors="replace")
    for secret in sorted(secrets.all(), key=len, reverse=True):
        for form in {secret, quote(secret, safe=""), quote_plus(secret), _json_escaped(secret)}:
            text = text.replace(form, "[redacted]")
    return HttpResponse(
        status_code=reply.status,
        content_type=reply.content_type,
        body=text[:MAX_BODY_CHARS],
        body_truncated=len(text) > MAX_BODY_CHARS,
    )


def _json_escaped(secret: str) -> str:
    return msgspec.json.encode(secret).decode()[1:-1]


_TRIES = 8
_CLAIM_TIME = timedelta(seconds=30)
"""Longer than an endpoint is waited for; after it whoever claimed the exchange has died."""
_PAUSE_SECONDS = 0.1

RefreshOutcome: TypeAlias = Literal["succeeded", "failed", "connect_error", "no_refresh_token"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshResult:
    """What came of an exchange."""

    refresh_outcome: RefreshOutcome
    unsealed_credential: UnsealedCredential = field(repr=False)
    """The credential as it is now."""
    http_response: HttpResponse | None = None
    """What the endpoint said, when it granted nothing."""
    is_final: bool = False
    """Asking again will not help: the user has to authorize anew."""


class Refresher:
    def __init__(
        self,
        credentials: Credentials,
        send_token_request: SendTokenRequest,
        *,
        notify: Notify = ignore_notification,
        clock: Clock = clocks.now,
    ) -> None:
        self._credentials = credentials
        self._send_token_request = send_token_request
        self._notify = notify
        self._clock = clock
        self._locks: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self._refused: dict[str, tuple[int, RefreshResult]] = {}
        """By credential: what came of its refresh token, at which revision of the record."""

    async def refresh(self, credential: UnsealedCredential) -> RefreshResult:
        """A new access token in the place of the one that was opened, unless somebody else has
        got one already. A refresh token that was refused is not sent again.

        Raises: NotFound, InvalidInput: it is gone or archived by now.
        """
        id_ = credential.vault_credential.id
        lock = self._locks.setdefault(id_, anyio.Lock())
        async with lock:
            now = await self._reload(credential)
            rev, current = self._refused.get(id_, (None, None))
            if current is not None and rev == now.record_row.rev:
                return current
            now = await self._claim(credential)
            if now.secrets.value != credential.secrets.value:
                return RefreshResult(refresh_outcome="succeeded", unsealed_credential=now)
            return await self._exchange(now)

    async def _claim(self, credential: UnsealedCredential) -> UnsealedCredential:
        """Ours alone to exchange, in whatever process others are; or with a new token already."""
        while True:
            now = await self._reload(credential)
            if now.secrets.value != credential.secrets.value:
                return now
            due, moment = now.record_row.due, self._clock()
            if due is not None and due > to_micros(moment):
                await anyio.sleep(_PAUSE_SECONDS)
                continue
            try:
                return await self._credentials.claim(now, moment + _CLAIM_TIME)
            except StaleVersion:
                continue

    async def _exchange(self, credential: UnsealedCredential) -> RefreshResult:
        auth = credential.vault_credential.auth
        if not isinstance(auth, McpOauth) or auth.refresh is None:
            return RefreshResult(
                refresh_outcome="no_refresh_token",
                unsealed_credential=await self._release(credential),
            )
        try:
            reply = await self._send_token_request(
                refresh_request(auth.refresh, credential.secrets)
            )
        except NetworkRefused:
            return RefreshResult(
                refresh_outcome="connect_error",
                unsealed_credential=await self._release(credential),
            )
        if (grant := parse_grant(reply)) is not None:
            return RefreshResult(
                refresh_outcome="succeeded",
                unsealed_credential=await self._store_grant(credential, grant),
            )
        failed = RefreshResult(
            refresh_outcome="failed",
            unsealed_credential=await self._release(credential),
            http_response=redacted_response(reply, credential.secrets),
            is_final=not is_transient(reply),
        )
        if failed.is_final:
            self._refused[credential.vault_credential.id] = (
                failed.unsealed_credential.record_row.rev,
                failed,
            )
            await self._notify_change(credential)
        return failed

    async def _release(self, credential: UnsealedCredential) -> UnsealedCredential:
        try:
            return await self._credentials.claim(credential, None)
        except StaleVersion:  # somebody changed it, which ended the claim
            return await self._reload(credential)

    async def _store_grant(
        self, credential: UnsealedCredential, grant: TokenGrant
    ) -> UnsealedCredential:
        """The endpoint may have made the old refresh token void: what it gave must be kept,
        whatever else changed in the credential meanwhile."""
        for _ in range(_TRIES):
            auth = credential.vault_credential.auth
            assert isinstance(auth, McpOauth)  # a credential stays what it is
            now = self._clock()
            changed = replace(
                credential.vault_credential,
                auth=replace(auth, expires_at=grant.expires_at(now)),
                updated_at=now,
            )
            secrets = replace(
                credential.secrets,
                value=grant.access_token,
                refresh_token=grant.refresh_token or credential.secrets.refresh_token,
            )
            try:
                await self._credentials.keep(credential, changed, secrets)
            except StaleVersion:
                credential = await self._reload(credential)
                continue
            return await self._reload(credential)
        raise StaleVersion(
            f"credential {credential.vault_credential.id}: others kept changing it; try again"
        )

    async def _reload(self, credential: UnsealedCredential) -> UnsealedCredential:
        current = credential.vault_credential
        return await self._credentials.unseal(
            credential.record_row.tenant, current.vault_id, current.id
        )

    async def _notify_change(self, credential: UnsealedCredential) -> None:
        await self._notify(
            Notification(
                tenant=credential.record_row.tenant,
                type="vault_credential.refresh_failed",
                id=credential.vault_credential.id,
                vault_id=credential.vault_credential.vault_id,
            )
        )
