"""The ids that a request names, found by their types: in its query, in its body, in lists and in
objects inside them. Whether they may be named is `scope.py`'s to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple, cast

from msgspec import Struct, inspect

from mainspring.core.ids import KIND, MAY_BE_GONE

_IN_PATHS = {
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
    "deployment_run_id": "deployment_run",
    "approval_id": "approval",
    "webhook_id": "webhook",
    "delivery_id": "delivery",
    "trigger_id": "trigger",
    "key_id": "key",
    "tenant_id": "tenant",
    "work_id": "work",
}

_LISTS = (inspect.ListType, inspect.VarTupleType, inspect.SetType, inspect.FrozenSetType)


class NamedId(NamedTuple):
    kind: str
    """What it is the id of."""
    id: str
    where: str
    """As `resources[0].file_id`."""
    may_be_gone: bool = False
    """It need not exist: it is named to undo something."""


def ids_in_path(path: Mapping[str, str]) -> list[NamedId]:
    """A name that is not known is a kind that no key of limited scope may name."""
    return [
        NamedId(_IN_PATHS.get(name, name), value, name)
        for name, value in path.items()
        if name.endswith("_id")
    ]


def ids_in(value: object, type_: object) -> list[NamedId]:
    """In what was decoded as this type."""
    return list(_found(value, _type_info(type_), ""))


def kind_of(info: inspect.Type) -> str | None:
    """What a text of this type is the id of, if it is one."""
    return _extra(info).get(KIND)


def _extra(info: inspect.Type) -> dict[str, Any]:
    if not isinstance(info, inspect.Metadata):
        return {}
    extra = cast("dict[str, Any] | None", info.extra)  # pyright: ignore[reportUnknownMemberType]
    return extra or {}


def _found(value: Any, info: inspect.Type, where: str) -> Iterator[NamedId]:  # noqa: ANN401 (JSON)
    kind = kind_of(info)
    if kind is not None and isinstance(value, str):
        yield NamedId(kind, value, where, bool(_extra(info).get(MAY_BE_GONE)))
    elif isinstance(info, inspect.Metadata):
        yield from _found(value, info.type, where)
    elif isinstance(info, inspect.UnionType):
        for each in info.types:
            yield from _found(value, each, where)
    else:
        for part, type_, place in _parts(value, info):
            yield from _found(part, type_, f"{where}{place}".lstrip("."))


def _parts(
    value: Any,  # noqa: ANN401 (JSON)
    info: inspect.Type,
) -> Iterator[tuple[Any, inspect.Type, str]]:
    """What it is made of: each part with its type, and where it is."""
    if isinstance(info, inspect.StructType) and isinstance(value, _plain(info.cls)):
        for field in info.fields:
            yield getattr(value, field.name), field.type, f".{field.encode_name}"
    elif isinstance(info, inspect.DictType) and isinstance(value, dict):
        for name, each in cast("dict[str, Any]", value).items():
            yield each, info.value_type, f".{name}"
    elif isinstance(info, _LISTS) and isinstance(value, (list, tuple, set, frozenset)):
        for index, each in enumerate(cast("list[Any]", value)):
            yield each, info.item_type, f"[{index}]"


def _plain(struct: Any) -> type[Struct]:  # noqa: ANN401 (a struct, or one with its parameters)
    return getattr(struct, "__origin__", struct)


@cache
def _type_info(type_: object) -> inspect.Type:
    return inspect.type_info(type_)
