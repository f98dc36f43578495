"""Sign-ins of browsers: a cookie stands for a key or a token that was presented once.

The cookie is a random secret whose hash is stored, beside the sealed key. Each request is then
authenticated with the key itself, so that its role, limits and revocation apply at once.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock
from mainspring.core.errors import NotFound, StoreCorrupt, Unauthenticated
from mainspring.core.ports import Seal
from mainspring.log.records import Records
from mainspring.service.storage.repository import IndexColumns, Repository

KIND = "browser_session"
LIFETIME = timedelta(hours=12)  # a working day
_MAX_COOKIE_CHARS = 100  # ours are shorter
_REMOVED_AT_ONCE = 100  # expired ones

CredentialHeader = Literal["x-api-key", "authorization"]


class StoredSignIn(Struct, frozen=True, kw_only=True):
    id: str
    """The hash of the cookie."""
    header: CredentialHeader
    sealed: bytes
    """The value of the header."""
    expires_at: datetime


class SignIn(Struct, frozen=True, kw_only=True):
    cookie: str
    csrf_token: str


class BrowserSessions:
    def __init__(self, records: Records, seal: Seal, *, clock: Clock = clocks.now) -> None:
        self._seal = seal
        self._clock = clock
        self._repository = Repository(
            records,
            KIND,
            StoredSignIn,
            columns=lambda item: IndexColumns(due=item.expires_at),
            clock=clock,
        )

    async def sign_in(self, tenant: str, header: CredentialHeader, credential: str) -> SignIn:
        """Start a sign-in for a credential that has just been accepted."""
        now = self._clock()
        await self._repository.remove_due(now, limit=_REMOVED_AT_ONCE)
        cookie = secrets.token_urlsafe(32)
        id_ = _digest(cookie)
        stored = StoredSignIn(
            id=id_,
            header=header,
            sealed=self._seal.seal(credential.encode(), _context(id_)),
            expires_at=now + LIFETIME,
        )
        await self._repository.put(tenant, stored)
        return SignIn(cookie=cookie, csrf_token=csrf_token(cookie))

    async def credential(self, cookie: str) -> tuple[CredentialHeader, str]:
        """The header that authenticates a request with this cookie.

        Raises: Unauthenticated.
        """
        if len(cookie) > _MAX_COOKIE_CHARS:
            raise _signed_out()
        id_ = _digest(cookie)
        try:
            stored = self._repository.read(await self._repository.records.get(KIND, id_))
            if stored.expires_at <= self._clock():
                raise _signed_out()
            return stored.header, self._seal.unseal(stored.sealed, _context(id_)).decode()
        except (NotFound, StoreCorrupt):  # the latter: the vault's key was replaced
            raise _signed_out() from None

    async def sign_out(self, tenant: str, cookie: str) -> None:
        with suppress(NotFound):
            await self._repository.remove(tenant, _digest(cookie))


def csrf_token(cookie: str) -> str:
    """The token that a request other than GET must send with the cookie: only pages of this server
    can read it."""
    return hmac.new(cookie.encode(), b"csrf", hashlib.sha256).hexdigest()


def is_csrf_token(cookie: str, token: str) -> bool:
    return hmac.compare_digest(csrf_token(cookie).encode(), token.encode())


def _digest(cookie: str) -> str:
    return hashlib.sha256(cookie.encode()).hexdigest()


def _context(id_: str) -> str:
    return f"browser_session/{id_}"


def _signed_out() -> Unauthenticated:
    return Unauthenticated("you are signed out; sign in again")
