"""What `mainspring keys` does, straight on the store."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

import msgspec

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.edges.cli.operator_access import open_as_operator
from mainspring.edges.cli.printing import Screen, local_time
from mainspring.service.access.api_keys import CreateKey, Key, Keys, NewKey
from mainspring.service.access.principal import Role
from mainspring.service.access.request_ids import check_ids_exist, ids_in
from mainspring.service.access.tenants import ROOT_TENANT, Tenants
from mainspring.service.storage.repository import ListQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyOptions:
    name: str
    role: Role
    agent_id: str | None
    grants: tuple[str, ...]
    environment_id: str | None
    lent_to: str | None
    expires_in: timedelta | None
    requests_per_minute: int | None
    daily_budget_usd: Decimal | None


async def create(settings: Settings, *, tenant: str, key_options: KeyOptions, json: bool) -> int:
    expires = None if key_options.expires_in is None else clock.now() + key_options.expires_in
    async with open_as_operator(settings, is_new=True) as operator:
        tenants = Tenants(operator.records)
        if tenant == ROOT_TENANT:
            await tenants.ensure_root()
        await tenants.get(tenant)
        new = CreateKey(
            name=key_options.name,
            role=key_options.role,
            agent_id=key_options.agent_id,
            grants=key_options.grants,
            environment_id=key_options.environment_id,
            lent_to=key_options.lent_to,
            expires_at=expires,
            requests_per_minute=key_options.requests_per_minute,
            daily_budget_usd=key_options.daily_budget_usd,
        )
        await check_ids_exist(operator.records, tenant, ids_in(new, CreateKey))
        made = await Keys(operator.records).create(operator.principal_in(tenant), new)
        await operator.audit(tenant, "keys create", made.id)
    _print_new_key(settings, made, json=json)
    return 0


def _print_new_key(settings: Settings, made: NewKey, *, json: bool) -> None:
    screen = Screen(settings)
    if json:
        screen.json(msgspec.json.encode(made))
        return
    screen.paragraph((made.key, "bold"))
    note = f"{made.id}, {made.role} of {made.tenant_id}; keep it: it is not shown again"
    Screen(settings, stderr=True).paragraph((note, "dim"))


async def ls(settings: Settings, *, tenant: str, everything: bool, json: bool) -> int:
    async with open_as_operator(settings) as operator:
        await Tenants(operator.records).get(tenant)
        found = await _list_keys(Keys(operator.records), tenant, everything=everything)
    screen = Screen(settings)
    if json:
        for key in found:
            screen.json(msgspec.json.encode(key))
        return 0
    heads = ["ID", "NAME", "ROLE", "FOR", "CREATED", "USED", "STATE"]
    screen.table(heads, [_key_row(key) for key in found])
    return 0


async def _list_keys(keys: Keys, tenant: str, *, everything: bool) -> list[Key]:
    found: list[Key] = []
    page: str | None = None
    while True:
        listing = ListQuery(limit=1000, page=page, include_archived=everything)
        shown = await keys.page(tenant, listing)
        found += shown.data
        if (page := shown.next_page) is None:
            return found


def _key_row(key: Key) -> list[tuple[str, str]]:
    scope = key.agent_id or key.environment_id or ""
    lent = f"lent to {key.lent_to}" if key.lent_to else ""
    used = "" if key.last_used_at is None else local_time(key.last_used_at)
    return [
        (key.id, ""),
        (key.name, "bold"),
        (key.role, ""),
        (" ".join(part for part in (scope, lent) if part), ""),
        (local_time(key.created_at), "dim"),
        (used, "dim"),
        _key_state(key),
    ]


def _key_state(key: Key) -> tuple[str, str]:
    if key.revoked_at is not None:
        return "revoked", "red"
    if key.expires_at is None:
        return "", ""
    is_over = key.expires_at <= clock.now()
    return ("expired", "red") if is_over else (f"until {local_time(key.expires_at)}", "dim")


async def revoke(settings: Settings, *, meant: str, json: bool) -> int:
    async with open_as_operator(settings) as operator:
        keys = Keys(operator.records)
        key = await keys.find_any_tenant(meant)
        revoked = await keys.revoke(key.tenant_id, key.id)
        await operator.audit(key.tenant_id, "keys revoke", key.id)
    screen = Screen(settings)
    if json:
        screen.json(msgspec.json.encode(revoked))
    else:
        screen.line(("revoked ", "green"), (revoked.id, "bold"), (f"  {revoked.name}", "dim"))
    return 0
