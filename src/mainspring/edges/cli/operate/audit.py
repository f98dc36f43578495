"""`mainspring audit`: works directly on the store."""

from __future__ import annotations

from contextlib import aclosing
from datetime import timedelta
from typing import Annotated

import typer

from mainspring.config import Settings
from mainspring.edges.cli.commands import command, command_group
from mainspring.edges.cli.operate.operator_access import open_as_operator
from mainspring.edges.cli.options import JsonOption, LimitOption, TenantOption, parse_duration
from mainspring.edges.cli.render.printing import (
    Screen,
    StyledText,
    local_time,
    print_list,
    print_result,
)
from mainspring.service.access.audit import Audit, AuditEntry
from mainspring.service.storage.repository import ListQuery

app = command_group()


@command(app)
async def ls(
    settings: Settings,
    *,
    tenant: TenantOption = "default",
    limit: LimitOption = 20,
    key: Annotated[str | None, typer.Option(help="Only entries of this key.", metavar="ID")] = None,
    json: JsonOption = False,
) -> int:
    """List audit entries, newest first."""
    async with open_as_operator(settings) as operator:
        page = await Audit(operator.records).page(tenant, ListQuery(limit=limit, label=key))
    return print_list(
        settings,
        page.data,
        json=json,
        heads=["SEQ", "TIME", "WHO", "WHAT", "STATUS", "ON", "FROM"],
        row=_entry_row,
        empty="there are no audit entries",
    )


def _entry_row(entry: AuditEntry) -> list[StyledText]:
    agent = f" (agent {entry.agent_id})" if entry.agent_id else ""
    targets = [*entry.targets.values(), entry.made or ""]
    return [
        (str(entry.seq), "dim"),
        (local_time(entry.time), "dim"),
        ((entry.key_name or "nobody") + agent, "bold"),
        (entry.operation, ""),
        (str(entry.status), "red" if entry.status >= 400 else "green"),
        (" ".join(dict.fromkeys(target for target in targets if target)), ""),
        (entry.address, "dim"),
    ]


@command(app)
async def verify(
    settings: Settings,
    *,
    tenant: TenantOption = "default",
    head: Annotated[
        str | None,
        typer.Option(help="A saved hash that the audit log must contain.", metavar="HASH"),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Check that no entry was changed or removed. Prints the hash of the last entry; save it for a
    later check."""
    async with open_as_operator(settings) as operator:
        report = await Audit(operator.records).verify(tenant, head=head)
    screen = Screen(settings)
    if json:
        screen.json(report)
    elif report.ok:
        entries = "1 entry" if report.entries == 1 else f"{report.entries} entries"
        screen.line(("ok  ", "green"), (tenant, "bold"), (f"  {entries}", "dim"))
        screen.paragraph((f"head {report.head}", "dim"))
    else:
        screen.line(("BAD  ", "bold red"), (tenant, "bold"))
        for problem in report.problems:
            screen.paragraph((problem, ""), indent=5)
    return 0 if report.ok else 1


@command(app)
async def export(settings: Settings, *, tenant: TenantOption = "default") -> int:
    """Write all entries as JSON, one per line, oldest first."""
    screen = Screen(settings)
    async with (
        open_as_operator(settings) as operator,
        aclosing(Audit(operator.records).entries(tenant)) as entries,
    ):
        async for entry in entries:
            screen.json(entry)
    return 0


@command(app)
async def prune(
    settings: Settings,
    *,
    older_than: Annotated[
        timedelta,
        typer.Option(
            parser=parse_duration,
            metavar="TIME",
            help="Delete entries older than this, such as 90d or 52w.",
        ),
    ],
    tenant: TenantOption = "default",
    json: JsonOption = False,
) -> int:
    """Delete old entries. The remaining ones can still be verified."""
    async with open_as_operator(settings) as operator:
        removed = await Audit(operator.records).prune(tenant, keep=older_than)
        await operator.audit(tenant, "audit prune")
    entries = "1 entry" if removed == 1 else f"{removed} entries"
    view = {"tenant_id": tenant, "removed": removed}
    return print_result(settings, view, (f"deleted {entries}", ""), json=json)
