"""Values that a person is asked for once: `inputs` of a file with MCP servers, as VS Code has them,
and `${input:ID}` in its entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Literal, TypeAlias, cast

import msgspec
from msgspec import Struct

from mainspring.runtime.mcp_server import McpServer, ServerInput

InputKind: TypeAlias = Literal["project", "user"]
"""Whose files name it: projects do not get the user's values."""


class _Input(Struct, frozen=True, kw_only=True):
    id: str
    type: Literal["promptString", "pickString"] = "promptString"
    description: str = ""
    password: bool = False
    default: str = ""
    options: tuple[str, ...] = ()


def read_inputs(value: object) -> tuple[ServerInput, ...]:
    """Those that can be understood; of others, only what entries call them is known."""
    inputs: list[ServerInput] = []
    for item in cast("list[object]", value) if isinstance(value, list) else ():
        with suppress(msgspec.ValidationError):
            found = msgspec.convert(item, _Input)
            inputs.append(
                ServerInput(
                    id=found.id,
                    description=found.description,
                    password=found.password,
                    default=found.default,
                    options=found.options,
                )
            )
    return tuple(inputs)


def input_kind(server: McpServer) -> InputKind:
    return "project" if server.scope == "project" else "user"


def input_variable(kind: InputKind, id_: str) -> str:
    """The name of a value in an environment."""
    return f"input:{kind}:{id_}"


def input_values(server: McpServer, environment: Mapping[str, str]) -> dict[str, str]:
    """The values of a server's inputs, by what its entry calls them."""
    prefix = input_variable(input_kind(server), "")
    return {
        f"input:{name.removeprefix(prefix)}": value
        for name, value in environment.items()
        if name.startswith(prefix)
    }
