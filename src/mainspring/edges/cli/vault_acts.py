"""What `mainspring vault` does. No value is ever printed."""

from __future__ import annotations

import sys
from datetime import datetime
from getpass import getpass

import msgspec
from msgspec import Struct

from mainspring.capabilities.vault.vault_file import MAX_VALUE_BYTES, Secret, unknown_secret
from mainspring.config import Settings
from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.printing import Screen, local_time
from mainspring.wiring.user_vault import has_vault, open_vault


class SecretView(Struct, frozen=True, kw_only=True):
    name: str
    hosts: tuple[str, ...]
    created: datetime
    updated: datetime


async def put(settings: Settings, *, name: str, hosts: list[str], json: bool) -> int:
    vault = open_vault(settings)
    kept = vault.put(name, _read_secret(name), hosts)
    screen = Screen(settings)
    if json:
        screen.json(msgspec.json.encode(_secret_view(kept)))
        return 0
    screen.line(("kept ", "green"), (name, "bold"))
    if not hosts:
        note = "no --host: programs in a sandbox cannot use it"
        Screen(settings, stderr=True).paragraph((note, "dim"))
    return 0


def _read_secret(name: str) -> str:
    if sys.stdin.isatty():
        return getpass(f"Value of {name}: ")  # nothing is echoed, not even what was typed early
    content = sys.stdin.buffer.read(MAX_VALUE_BYTES + 3)
    try:
        return content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{name}: the value is no text") from error


async def ls(settings: Settings, *, json: bool) -> int:
    kept = open_vault(settings).secrets() if has_vault(settings) else []
    screen = Screen(settings)
    if json:
        for secret in kept:
            screen.json(msgspec.json.encode(_secret_view(secret)))
        return 0
    if not kept:
        Screen(settings, stderr=True).paragraph(("the vault is empty", "dim"))
        return 0
    screen.table(
        ["NAME", "HOSTS", "CREATED", "CHANGED"],
        [
            [
                (secret.name, "bold"),
                (", ".join(secret.hosts) or "-", ""),
                (local_time(secret.created), "dim"),
                (local_time(secret.updated), "dim"),
            ]
            for secret in kept
        ],
    )
    return 0


async def rm(settings: Settings, *, name: str, json: bool) -> int:
    if not has_vault(settings):
        raise unknown_secret(name)
    open_vault(settings).remove(name)
    screen = Screen(settings)
    if json:
        screen.json(msgspec.json.encode({"removed": name}))
    else:
        screen.line(("removed ", ""), (name, "bold"))
    return 0


def _secret_view(secret: Secret) -> SecretView:
    return SecretView(
        name=secret.name, hosts=secret.hosts, created=secret.created, updated=secret.updated
    )
