"""Webhook endpoints: their URLs, event types and signing secrets. Sending to them is the job of
`webhook_deliveries`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict, replace

from mainspring.core import clock as clocks
from mainspring.core import ids
from mainspring.core.clock import Clock
from mainspring.core.errors import InvalidInput, StaleVersion
from mainspring.log.records import RecordQuery, Records
from mainspring.service.storage.pagination import Page
from mainspring.service.storage.repository import (
    IndexColumns,
    ListQuery,
    Repository,
    Seal,
    delete_children,
)
from mainspring.service.webhooks.webhook_events import EventType
from mainspring.service.webhooks.webhook_signing import SECRET_BYTES, new_secret

KIND = "webhook"
DELIVERY_KIND = "webhook_delivery"
MAX_ENDPOINTS = 100
_MAX_SECRETS = 3
_TRIES = 8

Url = Annotated[str, Meta(min_length=1, max_length=2048)]
EventTypes = Annotated[tuple[EventType, ...], Meta(min_length=1, max_length=100)]
Description = Annotated[str, Meta(max_length=1024)]
DisabledReason: TypeAlias = Literal["manual", "redirect", "address", "failing"]
"""Why: somebody said so; it answered with a redirect; its name led to an address that is not
public; it failed for too long."""


class Webhook(Struct, frozen=True, kw_only=True):
    id: str
    url: str
    event_types: tuple[EventType, ...]
    created_at: datetime
    updated_at: datetime
    enabled_at: datetime
    """What happened before is not told."""
    status: Literal["enabled", "disabled"] = "enabled"
    disabled_reason: DisabledReason | None = None
    failing_since: datetime | None = None
    description: str = ""
    type: Literal["webhook_endpoint"] = "webhook_endpoint"


class WebhookWithSecret(Webhook, frozen=True, kw_only=True):
    """As it is answered once, when the secret is made."""

    secret: str


class CreateWebhook(Struct, frozen=True, kw_only=True):
    url: Url
    event_types: EventTypes
    description: Description = ""


class UpdateWebhook(Struct, frozen=True, kw_only=True):
    url: Url | UnsetType = UNSET
    event_types: EventTypes | UnsetType = UNSET
    description: Description | UnsetType = UNSET
    status: Literal["enabled", "disabled"] | UnsetType = UNSET


class _EndpointSecret(Struct, frozen=True, kw_only=True):
    secret: str
    expires_at: datetime | None = None


class Webhooks:
    def __init__(
        self,
        records: Records,
        *,
        seal: Seal,
        allow_http: bool = False,
        clock: Clock = clocks.now,
        new_id: Callable[[str], str] = ids.new_id,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._records = records
        self._repository = Repository(records, KIND, Webhook, columns=_index_columns, clock=clock)
        self._seal = seal
        self._allow_http = allow_http
        self._clock = clock
        self._new_id = new_id
        self._random = random

    async def create(self, tenant: str, request: CreateWebhook) -> WebhookWithSecret:
        """Raises: InvalidInput: an address that is not called, or too many of them."""
        self._check(request.url)
        if await self._records.count(RecordQuery(kind=KIND, tenant=tenant)) >= MAX_ENDPOINTS:
            raise InvalidInput(f"at most {MAX_ENDPOINTS} webhook endpoints; delete one first")
        now = self._clock()
        made = Webhook(
            id=self._new_id("whk"),
            url=request.url,
            event_types=_unique_types(request.event_types),
            description=request.description,
            created_at=now,
            updated_at=now,
            enabled_at=now,
        )
        secret = new_secret(self._random(SECRET_BYTES))
        sealed = self._seal_secrets(tenant, made.id, [_EndpointSecret(secret=secret)])
        await self._repository.put(tenant, made, content=sealed)
        return WebhookWithSecret(**asdict(made), secret=secret)

    async def get(self, tenant: str, webhook_id: str) -> Webhook:
        return await self._repository.get(tenant, webhook_id)

    async def page(self, tenant: str, list_query: ListQuery) -> Page[Webhook]:
        return await self._repository.page(tenant, list_query)

    async def update(self, tenant: str, webhook_id: str, request: UpdateWebhook) -> Webhook:
        """To enable it makes it as new: what happened meanwhile is not told."""
        if request.url is not UNSET:
            self._check(request.url)

        def change(current: Webhook) -> Webhook:
            now = self._clock()
            types = current.event_types if request.event_types is UNSET else request.event_types
            status = current.status if request.status is UNSET else request.status
            is_restarted = status == "enabled" and current.status == "disabled"
            return replace(
                current,
                url=current.url if request.url is UNSET else request.url,
                event_types=_unique_types(types),
                description=(
                    current.description if request.description is UNSET else request.description
                ),
                status=status,
                disabled_reason=_disabled_reason(current, status),
                failing_since=None if is_restarted else current.failing_since,
                enabled_at=now
                if is_restarted or types != current.event_types
                else current.enabled_at,
                updated_at=now,
            )

        return await self._repository.update(tenant, webhook_id, change)

    async def delete(self, tenant: str, webhook_id: str) -> None:
        """With its deliveries."""
        await self._repository.remove(tenant, webhook_id)
        await delete_children(self._records, DELIVERY_KIND, tenant=tenant, parent=webhook_id)

    async def rotate(
        self, tenant: str, webhook_id: str, *, old_for: timedelta
    ) -> WebhookWithSecret:
        """A new secret. For so long, calls are signed with the old one too."""
        for _ in range(_TRIES):
            record = await self._repository.record(tenant, webhook_id)
            current, now = self._repository.read(record), self._clock()
            secret = new_secret(self._random(SECRET_BYTES))
            until = now + old_for
            aging = [
                _EndpointSecret(secret=item.secret, expires_at=min(item.expires_at or until, until))
                for item in await self._unseal(tenant, webhook_id)
            ]
            kept = [_EndpointSecret(secret=secret), *_valid_secrets(aging, now)][:_MAX_SECRETS]
            sealed = self._seal_secrets(tenant, webhook_id, kept)
            made = replace(current, updated_at=now)
            try:
                await self._records.write(
                    self._repository.replace_change(record, made, content=sealed)
                )
            except StaleVersion:
                continue
            return WebhookWithSecret(**asdict(made), secret=secret)
        raise StaleVersion(f"{KIND} {webhook_id}: others kept changing it; try again")

    async def secrets(self, tenant: str, webhook_id: str) -> list[str]:
        """Those to sign with now, the newest first."""
        opened = await self._unseal(tenant, webhook_id)
        return [valid_secret.secret for valid_secret in _valid_secrets(opened, self._clock())]

    async def list_enabled(self, tenant: str) -> list[Webhook]:
        """All that are enabled."""
        wanted = RecordQuery(kind=KIND, tenant=tenant, label="enabled", limit=MAX_ENDPOINTS)
        return [self._repository.read(record) for record in await self._records.list(wanted)]

    async def worked(self, tenant: str, webhook: Webhook) -> None:
        if webhook.failing_since is not None:
            await self._repository.update(
                tenant, webhook.id, lambda current: replace(current, failing_since=None)
            )

    async def failed(self, tenant: str, webhook: Webhook, *, disable_after: timedelta) -> Webhook:
        """It is disabled once nothing but failures has come of it for so long."""
        now = self._clock()

        def change(current: Webhook) -> Webhook:
            since = current.failing_since or now
            if now - since >= disable_after:
                return _disable(replace(current, failing_since=since), "failing", now)
            return replace(current, failing_since=since)

        if webhook.failing_since is not None and now - webhook.failing_since < disable_after:
            return webhook
        return await self._repository.update(tenant, webhook.id, change)

    async def disable(self, tenant: str, webhook_id: str, reason: DisabledReason) -> Webhook:
        now = self._clock()
        return await self._repository.update(
            tenant, webhook_id, lambda current: _disable(current, reason, now)
        )

    def _check(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            _ = parts.port  # raises for one that is none
        except ValueError as error:
            raise InvalidInput(f"url: {error}") from error
        schemes = ("https", "http") if self._allow_http else ("https",)
        if parts.scheme not in schemes:
            raise InvalidInput(
                "url: it must begin with https://; `serve --allow-network` allows http, too"
            )
        if not parts.hostname or "@" in parts.netloc or not url.isprintable() or " " in url:
            raise InvalidInput("url: a host and a path, without a name or password")

    def _seal_secrets(self, tenant: str, webhook_id: str, kept: Sequence[_EndpointSecret]) -> bytes:
        return self._seal.seal(msgspec.json.encode(kept), _context(tenant, webhook_id))

    async def _unseal(self, tenant: str, webhook_id: str) -> list[_EndpointSecret]:
        sealed = await self._records.content(KIND, webhook_id)
        plain = self._seal.unseal(sealed, _context(tenant, webhook_id))
        return msgspec.json.decode(plain, type=list[_EndpointSecret])


def _context(tenant: str, webhook_id: str) -> str:
    return f"webhook {tenant} {webhook_id}"


def _valid_secrets(kept: Sequence[_EndpointSecret], now: datetime) -> list[_EndpointSecret]:
    return [item for item in kept if item.expires_at is None or item.expires_at > now]


def _unique_types(types: Sequence[EventType]) -> tuple[EventType, ...]:
    return tuple(dict.fromkeys(types))


def _disabled_reason(current: Webhook, status: str) -> DisabledReason | None:
    if status == "enabled":
        return None
    return current.disabled_reason or "manual"


def _disable(current: Webhook, reason: DisabledReason, now: datetime) -> Webhook:
    if current.status == "disabled":
        return current
    return replace(current, status="disabled", disabled_reason=reason, updated_at=now)


def _index_columns(webhook: Webhook) -> IndexColumns:
    return IndexColumns(label=webhook.status)
