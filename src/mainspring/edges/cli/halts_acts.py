"""What `mainspring halt` and `resume` do, straight on the store."""

from __future__ import annotations

import msgspec

from mainspring.config import Settings
from mainspring.core.errors import InvalidInput, NotFound
from mainspring.edges.cli.operator_access import open_as_operator
from mainspring.edges.cli.printing import Screen, local_time
from mainspring.log.records import Records
from mainspring.service.access.kill_switch import (
    ALL_TENANTS,
    HALT_CACHE_SECONDS,
    CreateHalt,
    Halt,
    Halts,
)
from mainspring.service.access.request_ids import check_ids_exist, ids_in
from mainspring.service.access.tenants import ROOT_TENANT, Tenants


async def halt(
    settings: Settings, *, scope: tuple[str, str | None], reason: str, json: bool
) -> int:
    tenant, agent_id = scope
    async with open_as_operator(settings, is_new=True) as operator:
        asked = CreateHalt(agent_id=agent_id, reason=reason)
        await _check_exists(operator.records, tenant, asked)
        made = await Halts(operator.records).halt(tenant, operator.principal_in(tenant), asked)
        await operator.audit(tenant, "halt", made.id)
    screen = Screen(settings)
    if json:
        screen.json(msgspec.json.encode(made))
    else:
        screen.line(("stopped ", "green"), (_scope_text(made), "bold"))
        note = f"workers know within {HALT_CACHE_SECONDS:.0f} s"
        Screen(settings, stderr=True).paragraph((note, "dim"))
    return 0


async def _check_exists(records: Records, tenant: str, asked: CreateHalt) -> None:
    """Raises: NotFound: a halt of what does not exist stops nothing."""
    tenants = Tenants(records)
    if tenant == ROOT_TENANT:
        await tenants.ensure_root()
    if tenant != ALL_TENANTS:
        await tenants.get(tenant)
    await check_ids_exist(records, tenant, ids_in(asked, CreateHalt))


async def resume(settings: Settings, *, scope: tuple[str, str | None], json: bool) -> int:
    tenant, agent_id = scope
    async with open_as_operator(settings) as operator:
        try:
            await Halts(operator.records).resume(tenant, operator.principal_in(tenant), agent_id)
        except NotFound as error:
            told = InvalidInput("that is not stopped")
            told.add_note("`mainspring halt` shows what is")
            raise told from error
        await operator.audit(tenant, "resume", agent_id)
    screen = Screen(settings)
    if json:
        screen.json(msgspec.json.encode({"tenant_id": tenant, "agent_id": agent_id}))
    else:
        screen.line(("goes on", "green"))
    return 0


async def ls(settings: Settings, *, json: bool) -> int:
    async with open_as_operator(settings) as operator:
        found = await Halts(operator.records).everything()
    screen = Screen(settings)
    if json:
        for item in found:
            screen.json(msgspec.json.encode(item))
        return 0
    if not found:
        Screen(settings, stderr=True).paragraph(("nothing is stopped", "dim"))
        return 0
    screen.table(
        ["STOPPED", "SINCE", "BY", "WHY"],
        [
            [
                (_scope_text(item), "bold"),
                (local_time(item.created_at), "dim"),
                (item.created_by, ""),
                (item.reason, ""),
            ]
            for item in found
        ],
    )
    return 0


def _scope_text(halt: Halt) -> str:
    if halt.tenant_id == ALL_TENANTS:
        return "everything"
    return halt.tenant_id if halt.agent_id is None else f"{halt.agent_id} of {halt.tenant_id}"
