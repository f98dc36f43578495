"""Refreshes expired access tokens at their token endpoint (RFC 6749, section 6), once for all
sessions: a refresh token that is used twice is often revoked."""

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
from mainspring.service.storage.repository import Notify, ignore_notification
from mainspring.service.vaults.credential_auth import (
    BasicAuth,
    McpOauth,
    PostAuth,
    Refresh,
    Secrets,
    redacted_repr,
)
from mainspring.service.vaults.credentials import Credentials, UnsealedCredential
from mainspring.service.vaults.vaults import credential_notification

MAX_BODY_CHARS = 2048
"""How many characters of a body are shown."""
_MAX_LIFETIME = timedelta(days=3650)  # ten years; longer ones are taken for a mistake


SendTokenRequest: TypeAlias = Callable[[HttpPost], Awaitable[HttpReply]]
"""Sends a request without following redirects. Raises: NetworkRefused: no answer, or not
reachable."""


class HttpResponse(Struct, frozen=True, kw_only=True):
    """A response as clients see it."""

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
    """The grant; `None` if there is none, whatever the status."""
    if reply.status != 200:
        return None
    try:
        token_grant = _GRANT_DECODER.decode(reply.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return token_grant if token_grant.access_token else None


def is_transient(reply: HttpReply) -> bool:
    """Whether a later retry may help."""
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


_TRIES = 8  # updates of a credential that others refresh, too
_CLAIM_TIME = timedelta(seconds=30)
"""Longer than a request may take; after that, the process that claimed the refresh is dead."""
_PAUSE_SECONDS = 0.1  # between looks at a refresh that another process has begun

RefreshOutcome: TypeAlias = Literal["succeeded", "failed", "connect_error", "no_refresh_token"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshResult:
    """The result of a refresh."""

    outcome: RefreshOutcome
    unsealed: UnsealedCredential = field(repr=False)
    """The current credential."""
    http_response: HttpResponse | None = None
    """The response of the endpoint, if it granted nothing."""
    is_final: bool = False
    """Retrying will not help: the user has to authorize again."""


class Refresher:
    def __init__(
        self,
        credentials: Credentials,
        send: SendTokenRequest,
        *,
        notify: Notify = ignore_notification,
        clock: Clock = clocks.now,
    ) -> None:
        self._credentials = credentials
        self._send = send
        self._notify = notify
        self._clock = clock
        self._locks: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self._refused: dict[str, tuple[int, RefreshResult]] = {}
        """By credential: the revision of the record, and the result for its refresh token."""

    async def refresh(self, credential: UnsealedCredential) -> RefreshResult:
        """Get a new access token, unless another process already has one. A refresh token that was
        refused is not sent again.

        Raises: NotFound, InvalidInput: it no longer exists, or is archived.
        """
        id_ = credential.credential.id
        lock = self._locks.setdefault(id_, anyio.Lock())
        async with lock:
            now = await self._reload(credential)
            rev, current = self._refused.get(id_, (None, None))
            if current is not None and rev == now.row.rev:
                return current
            now = await self._claim(credential)
            if now.secrets.value != credential.secrets.value:
                return RefreshResult(outcome="succeeded", unsealed=now)
            return await self._exchange(now)

    async def _claim(self, credential: UnsealedCredential) -> UnsealedCredential:
        """Claim the refresh across all processes; or return the credential with a new token."""
        while True:
            now = await self._reload(credential)
            if now.secrets.value != credential.secrets.value:
                return now
            due, moment = now.row.due, self._clock()
            if due is not None and due > to_micros(moment):
                await anyio.sleep(_PAUSE_SECONDS)
                continue
            try:
                return await self._credentials.claim(now, moment + _CLAIM_TIME)
            except StaleVersion:
                continue

    async def _exchange(self, credential: UnsealedCredential) -> RefreshResult:
        auth = credential.credential.auth
        if not isinstance(auth, McpOauth) or auth.refresh is None:
            return RefreshResult(
                outcome="no_refresh_token", unsealed=await self._release(credential)
            )
        try:
            reply = await self._send(refresh_request(auth.refresh, credential.secrets))
        except NetworkRefused:
            return RefreshResult(outcome="connect_error", unsealed=await self._release(credential))
        if (grant := parse_grant(reply)) is not None:
            return RefreshResult(
                outcome="succeeded", unsealed=await self._store_grant(credential, grant)
            )
        failed = RefreshResult(
            outcome="failed",
            unsealed=await self._release(credential),
            http_response=redacted_response(reply, credential.secrets),
            is_final=not is_transient(reply),
        )
        if failed.is_final:
            self._refused[credential.credential.id] = (failed.unsealed.row.rev, failed)
            await self._notify_change(credential)
        return failed

    async def _release(self, credential: UnsealedCredential) -> UnsealedCredential:
        try:
            return await self._credentials.claim(credential, None)
        except StaleVersion:  # it was changed, which ended the claim
            return await self._reload(credential)

    async def _store_grant(
        self, credential: UnsealedCredential, grant: TokenGrant
    ) -> UnsealedCredential:
        """Store the tokens. The old refresh token may be invalid now, so the new one must be
        stored, whatever else changed in the credential."""
        for _ in range(_TRIES):
            auth = credential.credential.auth
            assert isinstance(auth, McpOauth)  # its type never changes
            now = self._clock()
            changed = replace(
                credential.credential,
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
            f"credential {credential.credential.id}: other requests kept changing it; try again"
        )

    async def _reload(self, credential: UnsealedCredential) -> UnsealedCredential:
        current = credential.credential
        return await self._credentials.unseal(credential.row.tenant, current.vault_id, current.id)

    async def _notify_change(self, credential: UnsealedCredential) -> None:
        vault_id, id_ = credential.credential.vault_id, credential.credential.id
        await self._notify(
            credential_notification(credential.row.tenant, vault_id, id_, "refresh_failed")
        )
