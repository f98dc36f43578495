"""What `mainspring audit` does, straight on the store."""

from __future__ import annotations

from contextlib import aclosing
from datetime import timedelta

import msgspec

from mainspring.config import Settings
from mainspring.edges.cli.operator_access import open_as_operator
from mainspring.edges.cli.printing import Screen, local_time
from mainspring.service.access.audit import Audit, AuditEntry
from mainspring.service.storage.repository import ListQuery


async def ls(settings: Settings, *, tenant: str, limit: int, key: str | None, json: bool) -> int:
    async with open_as_operator(settings) as operator:
        found = await Audit(operator.records).page(tenant, ListQuery(limit=limit, label=key))
    screen = Screen(settings)
    if json:
        for entry in found.data:
            screen.json(msgspec.json.encode(entry))
        return 0
    heads = ["SEQ", "TIME", "WHO", "WHAT", "STATUS", "ON", "FROM"]
    screen.table(heads, [_entry_row(entry) for entry in found.data])
    return 0


def _entry_row(audit_entry: AuditEntry) -> list[tuple[str, str]]:
    who = audit_entry.key_name or "nobody"
    agent = f" (agent {audit_entry.agent_id})" if audit_entry.agent_id else ""
    targets = [*audit_entry.targets.values(), audit_entry.made or ""]
    return [
        (str(audit_entry.seq), "dim"),
        (local_time(audit_entry.time), "dim"),
        (who + agent, "bold"),
        (audit_entry.operation, ""),
        (str(audit_entry.status), "red" if audit_entry.status >= 400 else "green"),
        (" ".join(dict.fromkeys(target for target in targets if target)), ""),
        (audit_entry.address, "dim"),
    ]


async def verify(settings: Settings, *, tenant: str, head: str | None, json: bool) -> int:
    async with open_as_operator(settings) as operator:
        found = await Audit(operator.records).verify(tenant, head=head)
    screen = Screen(settings)
    if json:
        screen.json(msgspec.json.encode(found))
    elif found.ok:
        entries = "1 entry" if found.entries == 1 else f"{found.entries} entries"
        screen.line(("ok  ", "green"), (tenant, "bold"), (f"  {entries}", "dim"))
        screen.paragraph((f"head {found.head}", "dim"))
    else:
        screen.line(("BAD  ", "bold red"), (tenant, "bold"))
        for problem in found.problems:
            screen.paragraph((problem, ""), indent=5)
    return 0 if found.ok else 1


async def export(settings: Settings, *, tenant: str) -> int:
    screen = Screen(settings)
    async with (
        open_as_operator(settings) as operator,
        aclosing(Audit(operator.records).entries(tenant)) as entries,
    ):
        async for entry in entries:
            screen.json(msgspec.json.encode(entry))
    return 0


async def prune(settings: Settings, *, tenant: str, keep: timedelta, json: bool) -> int:
    async with open_as_operator(settings) as operator:
        gone = await Audit(operator.records).prune(tenant, keep=keep)
        await operator.audit(tenant, "audit prune")
    screen = Screen(settings)
    if json:
        screen.json(msgspec.json.encode({"tenant_id": tenant, "removed": gone}))
    else:
        screen.line((f"let go of {gone} entries" if gone != 1 else "let go of 1 entry", ""))
    return 0
