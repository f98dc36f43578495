"""Values that a person enters once: `inputs` in a file of MCP servers, as in VS Code, `${input:ID}`
in its entries, and the values in the user's vault."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, cast, get_args

import msgspec
from msgspec import Struct

from mainspring.runtime.mcp_server import McpServer, ServerInput

InputKind: TypeAlias = Literal["project", "user"]
"""Which files define the input: projects do not get the user's values."""


class _Input(Struct, frozen=True, kw_only=True):
    id: str
    type: Literal["promptString", "pickString"] = "promptString"
    description: str = ""
    password: bool = False
    default: str = ""
    options: tuple[str, ...] = ()


def read_inputs(value: object) -> tuple[ServerInput, ...]:
    """The inputs that can be parsed; for others, only the names in entries are known."""
    inputs: list[ServerInput] = []
    for item in cast("list[object]", value) if isinstance(value, list) else ():
        with suppress(msgspec.ValidationError):
            entry = msgspec.convert(item, _Input)
            inputs.append(msgspec.convert(entry, ServerInput, from_attributes=True))
    return tuple(inputs)


def input_kind(server: McpServer) -> InputKind:
    return "project" if server.scope == "project" else "user"


def input_variable(kind: InputKind, id_: str) -> str:
    """The name of a value in an environment."""
    return f"input:{kind}:{id_}"


def input_values(server: McpServer, environment: Mapping[str, str]) -> dict[str, str]:
    """The values of a server's inputs, by the names that its entry uses."""
    prefix = input_variable(input_kind(server), "")
    return {
        f"input:{name.removeprefix(prefix)}": value
        for name, value in environment.items()
        if name.startswith(prefix)
    }


class SecretStore(Protocol):
    """The user's vault. Blocks."""

    def values(self) -> Mapping[str, str]: ...

    def put(self, name: str, value: str) -> None: ...


class _Index(Struct, frozen=True):
    """Which inputs of a place have values."""

    inputs: tuple[str, ...] = ()


class _PlainValue(Struct, frozen=True, forbid_unknown_fields=True):
    """A value that is not secret, so that it is not redacted in the log."""

    input: str


def stored_inputs(secrets: SecretStore, folder: Path) -> dict[str, str]:
    """The values of inputs, by variable.

    Raises: InvalidInput: the vault cannot be opened.
    """
    values: dict[str, str] = {}
    if not (secret_values := secrets.values()):
        return values
    kinds: tuple[InputKind, ...] = get_args(InputKind)
    for kind in kinds:
        index = secret_values.get(_secret_name(kind, folder))
        for id_ in _read_index(index).inputs:
            if (value := secret_values.get(_secret_name(kind, folder, id_))) is not None:
                values[input_variable(kind, id_)] = _decode_value(value)
    return values


def store_input(
    secrets: SecretStore, folder: Path, server: McpServer, server_input: ServerInput, value: str
) -> None:
    """Raises: InvalidInput: it cannot be stored."""
    kind = input_kind(server)
    plain = msgspec.json.encode(_PlainValue(value)).decode()
    name = _secret_name(kind, folder, server_input.id)
    secrets.put(name, value if server_input.password else plain)
    ids = _read_index(secrets.values().get(_secret_name(kind, folder))).inputs
    index = msgspec.json.encode(_Index(tuple(dict.fromkeys((*ids, server_input.id)))))
    secrets.put(_secret_name(kind, folder), index.decode())


def _secret_name(kind: InputKind, folder: Path, *ids: str) -> str:
    """The vault's name for an input, or for the index of inputs. Projects do not share values, even
    if their inputs have the same name."""
    place = os.path.realpath(folder) if kind == "project" else ""
    digest = hashlib.sha256(msgspec.json.encode((kind, place, *ids))).hexdigest()[:32]
    return f"MCP_INPUT_{digest.upper()}"


def _read_index(value: str | None) -> _Index:
    return _Index() if value is None else msgspec.json.decode(value, type=_Index)


def _decode_value(value: str) -> str:
    try:
        return msgspec.json.decode(value, type=_PlainValue).input
    except (msgspec.MsgspecError, RecursionError):
        return value
