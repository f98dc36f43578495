"""The ids in a request, found by their types, and whether their resources exist. `key_scope`
decides whether a key may name them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple, cast

from msgspec import inspect

from mainspring.core.errors import NotFound
from mainspring.core.ids import KIND, MAY_BE_GONE
from mainspring.log.records import Records

_KIND_BY_PATH_NAME = {
    "agent_id": "agent",
    "environment_id": "environment",
    "session_id": "session",
    "thread_id": "thread",
    "resource_id": "session_resource",
    "file_id": "file",
    "vault_id": "vault",
    "credential_id": "credential",
    "memory_store_id": "memory_store",
    "memory_id": "memory",
    "memory_version_id": "memory",
    "skill_id": "skill",
    "deployment_id": "deployment",
    "dream_id": "dream",
    "alarm_id": "alarm",
    "deployment_run_id": "deployment_run",
    "approval_id": "approval",
    "webhook_id": "webhook",
    "delivery_id": "delivery",
    "trigger_id": "trigger",
    "key_id": "key",
    "tenant_id": "tenant",
    "work_id": "work",
    "workflow_id": "workflow",
    "workflow_run_id": "workflow_run",
    "campaign_id": "campaign",
    "eval_run_id": "eval_run",
}

_LIST_TYPES = (inspect.ListType, inspect.VarTupleType, inspect.SetType, inspect.FrozenSetType)


class NamedId(NamedTuple):
    kind: str
    """The kind of resource that it identifies."""
    id: str
    where: str
    """The path in the request, such as `resources[0].file_id`."""
    may_be_gone: bool = False
    """Whether it need not exist, because the request undoes something."""


def ids_in_path(path: Mapping[str, str]) -> list[NamedId]:
    """The ids in a path. An unknown name becomes a kind that no key of limited scope may name."""
    return [
        NamedId(_KIND_BY_PATH_NAME.get(name, name), value, name)
        for name, value in path.items()
        if name.endswith("_id")
    ]


def ids_in(value: object, type_: object) -> list[NamedId]:
    """The ids in a value that was decoded as this type."""
    return list(_collect_ids(value, _type_info(type_), ""))


def kind_of(info: inspect.Type) -> str | None:
    """The kind of resource that a string of this type identifies, if it is an id."""
    return _extra_schema(info).get(KIND)


def _extra_schema(info: inspect.Type) -> dict[str, Any]:
    if not isinstance(info, inspect.Metadata):
        return {}
    extra = cast("dict[str, Any] | None", info.extra)  # pyright: ignore[reportUnknownMemberType]
    return extra or {}


def _collect_ids(value: Any, info: inspect.Type, where: str) -> Iterator[NamedId]:  # noqa: ANN401 (JSON)
    kind = kind_of(info)
    if kind is not None and isinstance(value, str):
        yield NamedId(kind, value, where, bool(_extra_schema(info).get(MAY_BE_GONE)))
    elif isinstance(info, inspect.Metadata):
        yield from _collect_ids(value, info.type, where)
    elif isinstance(info, inspect.UnionType):
        for item in info.types:
            yield from _collect_ids(value, item, where)
    else:
        for part, type_, place in _children(value, info):
            yield from _collect_ids(part, type_, f"{where}{place}".lstrip("."))


def _children(
    value: Any,  # noqa: ANN401 (JSON)
    info: inspect.Type,
) -> Iterator[tuple[Any, inspect.Type, str]]:
    """The parts of a value, each with its type and path."""
    if isinstance(info, inspect.StructType) and isinstance(
        value, getattr(info.cls, "__origin__", info.cls)
    ):
        for field in info.fields:
            yield getattr(value, field.name), field.type, f".{field.encode_name}"
    elif isinstance(info, inspect.DictType) and isinstance(value, dict):
        for name, item in cast("dict[str, Any]", value).items():
            yield item, info.value_type, f".{name}"
    elif isinstance(info, _LIST_TYPES) and isinstance(value, (list, tuple, set, frozenset)):
        for index, item in enumerate(cast("list[Any]", value)):
            yield item, info.item_type, f"[{index}]"


_type_info = cache(inspect.type_info)

_RECORD_KINDS = frozenset(
    {"agent", "environment", "file", "skill", "vault", "memory_store", "session", "deployment"}
)
"""Ids of records. Others are looked up where they are used: threads and calls in their session,
models in the catalog."""
_GRANTABLE_KINDS = ("vault", "memory_store", "file", "skill", "environment")


async def check_ids_exist(records: Records, tenant: str, named: Iterable[NamedId]) -> None:
    """Raises: NotFound: the tenant has no such resource."""
    for item in dict.fromkeys(named):
        if item.may_be_gone:
            continue
        if item.kind == "granted":
            await _check_any_exists(records, tenant, item.id)
        elif item.kind in _RECORD_KINDS:
            await _check_exists(records, tenant, item.kind, item.id)


async def _check_exists(records: Records, tenant: str, kind: str, id_: str) -> None:
    if (await records.get(kind, id_)).tenant != tenant:
        raise NotFound(kind, id_)


async def _check_any_exists(records: Records, tenant: str, id_: str) -> None:
    for kind in _GRANTABLE_KINDS:
        try:
            return await _check_exists(records, tenant, kind, id_)
        except NotFound:
            continue
    raise NotFound("vault, memory store, file, skill or environment", id_)
