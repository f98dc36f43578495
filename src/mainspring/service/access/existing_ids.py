"""Whether what a request names exists. One check for every request body and for the CLI, so that a
misspelled id is refused everywhere: a halt of an agent that does not exist would stop nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from mainspring.core.errors import NotFound
from mainspring.log.records import Records
from mainspring.service.access.named_ids import NamedId

_RECORD_KINDS = frozenset(
    {"agent", "environment", "file", "skill", "vault", "memory_store", "session", "deployment"}
)
"""Kinds of ids that are kinds of records too. Others are looked up by who uses them: threads and
calls in their session, approvals one by one, models in the catalogue."""
_GRANTABLE = ("vault", "memory_store", "file", "skill", "environment")


async def check_exist(records: Records, tenant: str, named: Iterable[NamedId]) -> None:
    """Raises: NotFound: the tenant has no such thing."""
    for each in dict.fromkeys(named):
        if each.may_be_gone:
            continue
        if each.kind == "granted":
            await _check_any(records, tenant, each.id)
        elif each.kind in _RECORD_KINDS:
            await _check(records, tenant, each.kind, each.id)


async def _check(records: Records, tenant: str, kind: str, id_: str) -> None:
    if (await records.get(kind, id_)).tenant != tenant:
        raise NotFound(kind, id_)


async def _check_any(records: Records, tenant: str, id_: str) -> None:
    for kind in _GRANTABLE:
        try:
            return await _check(records, tenant, kind, id_)
        except NotFound:
            continue
    raise NotFound("vault, memory store, file, skill or environment", id_)
