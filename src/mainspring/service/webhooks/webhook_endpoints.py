"""Webhook endpoints: their URLs, event types and signing secrets. `webhook_deliveries` sends to
them."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from mainspring.core import clock as clocks
from mainspring.core import ids
from mainspring.core.clock import Clock
from mainspring.core.errors import InvalidInput
from mainspring.core.ports import Seal
from mainspring.log.records import RecordQuery, Records, Replace
from mainspring.service.storage.metadata import apply_patch, copy_fields
from mainspring.service.storage.repository import IndexColumns, Repository, delete_children
from mainspring.service.webhooks.webhook_events import EventType
from mainspring.service.webhooks.webhook_signing import SECRET_BYTES, new_secret

KIND = "webhook"
DELIVERY_KIND = "webhook_delivery"
MAX_ENDPOINTS = 100  # of a tenant
_MAX_SECRETS = 3  # the current one and those being replaced

Url = Annotated[str, Meta(min_length=1, max_length=2048)]
EventTypes = Annotated[tuple[EventType, ...], Meta(min_length=1, max_length=100)]
Description = Annotated[str, Meta(max_length=1024)]
DisabledReason: TypeAlias = Literal["manual", "redirect", "address", "failing"]
"""A person disabled it; it answered with a redirect; its name has an address that is not public; it
failed for too long."""


class Webhook(Struct, frozen=True, kw_only=True):
    id: str
    url: str
    event_types: tuple[EventType, ...]
    created_at: datetime
    updated_at: datetime
    enabled_at: datetime
    """Events before this time are not sent."""
    status: Literal["enabled", "disabled"] = "enabled"
    disabled_reason: DisabledReason | None = None
    failing_since: datetime | None = None
    description: str = ""
    type: Literal["webhook_endpoint"] = "webhook_endpoint"


class WebhookWithSecret(Webhook, frozen=True, kw_only=True):
    """Returned once, when the secret is created."""

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
        self, records: Records, *, seal: Seal, allow_http: bool = False, clock: Clock = clocks.now
    ) -> None:
        self._records = records
        self._repository = Repository(records, KIND, Webhook, columns=_index_columns, clock=clock)
        self.get = self._repository.get
        self.page = self._repository.page
        self._seal = seal
        self._allow_http = allow_http
        self._clock = clock

    async def create(self, tenant: str, request: CreateWebhook) -> WebhookWithSecret:
        """Raises: InvalidInput: the address is not allowed, or there are too many endpoints."""
        self._check(request.url)
        if await self._records.count(RecordQuery(kind=KIND, tenant=tenant)) >= MAX_ENDPOINTS:
            raise InvalidInput(f"at most {MAX_ENDPOINTS} webhook endpoints; delete one first")
        now = self._clock()
        webhook = copy_fields(
            Webhook,
            request,
            id=ids.new_id("whk"),
            event_types=_unique_types(request.event_types),
            created_at=now,
            updated_at=now,
            enabled_at=now,
        )
        secret = new_secret(secrets.token_bytes(SECRET_BYTES))
        sealed = self._seal_secrets(tenant, webhook.id, [_EndpointSecret(secret=secret)])
        await self._repository.put(tenant, webhook, content=sealed)
        return copy_fields(WebhookWithSecret, webhook, secret=secret)

    async def update(self, tenant: str, webhook_id: str, request: UpdateWebhook) -> Webhook:
        """Update an endpoint; if it is enabled again, events in between are not sent."""
        if request.url is not UNSET:
            self._check(request.url)

        def change(current: Webhook) -> Webhook:
            now = self._clock()
            new = apply_patch(current, request, updated_at=now)
            is_enabled = new.status == "enabled"
            is_restarted = is_enabled and current.status == "disabled"
            has_new_types = new.event_types != current.event_types
            return replace(
                new,
                event_types=_unique_types(new.event_types),
                disabled_reason=None if is_enabled else current.disabled_reason or "manual",
                failing_since=None if is_restarted else current.failing_since,
                enabled_at=now if is_restarted or has_new_types else current.enabled_at,
            )

        return await self._repository.update(tenant, webhook_id, change)

    async def delete(self, tenant: str, webhook_id: str) -> None:
        """Delete an endpoint with its deliveries."""
        await self._repository.remove(tenant, webhook_id)
        await delete_children(self._records, DELIVERY_KIND, tenant=tenant, parent=webhook_id)

    async def rotate(
        self, tenant: str, webhook_id: str, *, old_for: timedelta
    ) -> WebhookWithSecret:
        """Create a new secret. For `old_for`, requests are also signed with the old one."""
        secret = new_secret(secrets.token_bytes(SECRET_BYTES))

        async def prepare() -> tuple[Webhook, list[Replace]]:
            row = await self._repository.row(tenant, webhook_id)
            now = self._clock()
            until = now + old_for
            old = [
                _EndpointSecret(secret=item.secret, expires_at=min(item.expires_at or until, until))
                for item in await self._unseal(tenant, webhook_id)
            ]
            secrets = [_EndpointSecret(secret=secret), *_valid_secrets(old, now)][:_MAX_SECRETS]
            sealed = self._seal_secrets(tenant, webhook_id, secrets)
            webhook = replace(self._repository.read(row), updated_at=now)
            return webhook, [self._repository.replace_change(row, webhook, content=sealed)]

        webhook = await self._repository.transact(webhook_id, prepare)
        return copy_fields(WebhookWithSecret, webhook, secret=secret)

    async def secrets(self, tenant: str, webhook_id: str) -> list[str]:
        """The valid secrets, the newest first."""
        secrets = await self._unseal(tenant, webhook_id)
        return [item.secret for item in _valid_secrets(secrets, self._clock())]

    async def list_enabled(self, tenant: str) -> list[Webhook]:
        query = RecordQuery(kind=KIND, tenant=tenant, label="enabled", limit=MAX_ENDPOINTS)
        return [self._repository.read(row) for row in await self._records.list(query)]

    async def worked(self, tenant: str, webhook: Webhook) -> None:
        if webhook.failing_since is not None:
            await self._repository.update(
                tenant, webhook.id, lambda current: replace(current, failing_since=None)
            )

    async def failed(self, tenant: str, webhook: Webhook, *, disable_after: timedelta) -> Webhook:
        """Record a failure; an endpoint that has only failed for `disable_after` is disabled."""
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
            _ = parts.port  # raises if it is not a number
        except ValueError as error:
            raise InvalidInput(f"url: {error}") from error
        schemes = ("https", "http") if self._allow_http else ("https",)
        if parts.scheme not in schemes:
            raise InvalidInput(
                "url: must begin with https://; `serve --allow-network` allows http, too"
            )
        if not parts.hostname or "@" in parts.netloc or not url.isprintable() or " " in url:
            raise InvalidInput("url: must have a host, and no user name or password")

    def _seal_secrets(
        self, tenant: str, webhook_id: str, secrets: Sequence[_EndpointSecret]
    ) -> bytes:
        return self._seal.seal(msgspec.json.encode(secrets), _context(tenant, webhook_id))

    async def _unseal(self, tenant: str, webhook_id: str) -> list[_EndpointSecret]:
        sealed = await self._records.content(KIND, webhook_id)
        plain = self._seal.unseal(sealed, _context(tenant, webhook_id))
        return msgspec.json.decode(plain, type=list[_EndpointSecret])


def _context(tenant: str, webhook_id: str) -> str:
    return f"webhook {tenant} {webhook_id}"


def _valid_secrets(secrets: Sequence[_EndpointSecret], now: datetime) -> list[_EndpointSecret]:
    return [item for item in secrets if item.expires_at is None or item.expires_at > now]


def _unique_types(types: Sequence[EventType]) -> tuple[EventType, ...]:
    return tuple(dict.fromkeys(types))


def _disable(current: Webhook, reason: DisabledReason, now: datetime) -> Webhook:
    if current.status == "disabled":
        return current
    return replace(current, status="disabled", disabled_reason=reason, updated_at=now)


def _index_columns(webhook: Webhook) -> IndexColumns:
    return IndexColumns(label=webhook.status)
