"""The operator of this machine: anyone who can open the store may do anything, and each command is
audited.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from mainspring.config import Settings
from mainspring.edges.cli.session_lookup import require_store
from mainspring.log.records import Records
from mainspring.service.access.audit import Audit, AuditAction, attribute_to
from mainspring.service.access.principal import CLI_PRINCIPAL, Principal
from mainspring.wiring.stores import open_store


@dataclass(frozen=True, slots=True)
class Operator:
    records: Records
    name: str

    def principal_in(self, tenant: str) -> Principal:
        return Principal(tenant=tenant, key_id=CLI_PRINCIPAL, role="admin", name=self.name)

    async def audit(self, tenant: str, command: str, target: str | None = None) -> None:
        """Record a command in the audit log. If that fails, the command fails."""
        act = attribute_to(
            AuditAction(operation=f"cli {command}", status=200, made=target),
            self.principal_in(tenant),
        )
        await Audit(self.records).note(tenant, act)


@asynccontextmanager
async def open_as_operator(
    settings: Settings, *, is_new: bool = False
) -> AsyncGenerator[Operator, None]:
    """`is_new`: create the store if it does not exist.

    Raises: InvalidInput: there is no store.
    """
    if not is_new:
        require_store(settings)
    async with open_store(settings) as store:
        yield Operator(store.records, settings.user or "operator")
