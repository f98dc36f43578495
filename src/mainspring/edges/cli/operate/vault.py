"""`mainspring vault`. Values are never printed."""

from __future__ import annotations

import sys
from datetime import datetime
from getpass import getpass
from typing import Annotated

import msgspec
import typer
from msgspec import Struct

from mainspring.capabilities.vault.vault_file import MAX_VALUE_BYTES, Secret, unknown_secret
from mainspring.config import Settings
from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.commands import command, command_group
from mainspring.edges.cli.options import JsonOption
from mainspring.edges.cli.render.printing import (
    StyledText,
    local_time,
    print_list,
    print_note,
    print_result,
)
from mainspring.wiring.user_vault import user_vault

app = command_group()

SecretName = Annotated[str, typer.Argument(metavar="NAME", help="A name such as GITHUB_TOKEN.")]


class SecretView(Struct, frozen=True, kw_only=True):
    name: str
    hosts: tuple[str, ...]
    created: datetime
    updated: datetime


@command(app, "set")
async def put(
    settings: Settings,
    *,
    name: SecretName,
    host: Annotated[
        list[str] | None,
        typer.Option(
            help="A host that may receive it: api.example.com, or *.example.com for all"
            " subdomains. Can be repeated; without it, programs in a sandbox cannot use the"
            " secret.",
            metavar="HOST",
        ),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Save a secret. Its value is read from a prompt or from standard input, never from an
    argument."""
    secret = user_vault(settings).open().put(name, _read_value(name), host or [])
    print_result(settings, _secret_view(secret), ("saved ", "green"), (name, "bold"), json=json)
    if not host and not json:
        print_note(settings, "no --host: programs in a sandbox cannot use it")
    return 0


def _read_value(name: str) -> str:
    if sys.stdin.isatty():
        return getpass(
            f"Value of {name}: "
        )  # echoes nothing, not even what was typed before the prompt
    content = sys.stdin.buffer.read(MAX_VALUE_BYTES + 3)
    try:
        return content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{name}: the value is not text") from error


@command(app)
async def ls(settings: Settings, *, json: JsonOption = False) -> int:
    """List the secrets: names, hosts and dates, never values."""
    secrets = user_vault(settings).secrets()
    return print_list(
        settings,
        [_secret_view(secret) for secret in secrets],
        json=json,
        heads=["NAME", "HOSTS", "CREATED", "CHANGED"],
        row=_secret_row,
        empty="the vault is empty",
    )


@command(app)
async def rm(settings: Settings, *, name: SecretName, json: JsonOption = False) -> int:
    """Delete a secret."""
    if not user_vault(settings).exists:
        raise unknown_secret(name)
    user_vault(settings).open().remove(name)
    return print_result(settings, {"removed": name}, ("removed ", ""), (name, "bold"), json=json)


def _secret_view(secret: Secret) -> SecretView:
    return msgspec.convert(secret, SecretView, from_attributes=True)


def _secret_row(secret: SecretView) -> list[StyledText]:
    return [
        (secret.name, "bold"),
        (", ".join(secret.hosts) or "-", ""),
        (local_time(secret.created), "dim"),
        (local_time(secret.updated), "dim"),
    ]
