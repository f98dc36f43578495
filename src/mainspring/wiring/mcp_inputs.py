"""Values of `${input:ID}` in the entries of MCP servers, in the user's vault."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import msgspec

from mainspring.config import Settings
from mainspring.runtime.agent_folder.mcp_inputs import InputKind, input_kind, input_variable
from mainspring.runtime.definition_files.scopes import MANAGED, Scopes
from mainspring.runtime.mcp_server import McpServer, ServerInput
from mainspring.runtime.settings.policy_loader import LoadedPolicy
from mainspring.runtime.settings.session_servers import usable_servers
from mainspring.wiring.user_vault import has_vault, open_vault


class _Index(msgspec.Struct, frozen=True):
    """Which inputs of a place have values."""

    inputs: tuple[str, ...] = ()


class _PlainValue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is no secret is not removed from the log wherever it occurs."""

    input: str


def with_inputs(settings: Settings, folder: Path) -> Mapping[str, str]:
    """The environment, and the values of inputs. Raises: InvalidInput: the vault does not open."""
    if not has_vault(settings):
        return settings.environment
    stored = {secret.name: secret.value for secret in open_vault(settings).secrets()}
    values: dict[str, str] = {}
    kinds: tuple[InputKind, ...] = get_args(InputKind)
    for kind in kinds:
        index = stored.get(_name(kind, folder))
        for id_ in _read_index(index).inputs:
            if (value := stored.get(_name(kind, folder, id_))) is not None:
                values[input_variable(kind, id_)] = _decoded(value)
    return {**settings.environment, **values}


def user_servers(settings: Settings, folder: Path, loaded: LoadedPolicy) -> tuple[McpServer, ...]:
    """The servers that a session in a folder may use. Raises: InvalidInput."""
    scopes = Scopes(folder=folder, home=Path(settings.home), managed=MANAGED)
    return usable_servers(scopes, with_inputs(settings, folder), loaded)


def store_input(settings: Settings, server: McpServer, asked: ServerInput, value: str) -> None:
    """Raises: InvalidInput: it cannot be stored."""
    kind, folder, vault = input_kind(server), Path(settings.folder), open_vault(settings)
    plain = msgspec.json.encode(_PlainValue(value)).decode()
    vault.put(_name(kind, folder, asked.id), value if asked.password else plain, ())
    stored = {secret.name: secret.value for secret in vault.secrets()}
    ids = _read_index(stored.get(_name(kind, folder))).inputs
    index = msgspec.json.encode(_Index(tuple(dict.fromkeys((*ids, asked.id)))))
    vault.put(_name(kind, folder), index.decode(), ())


def _name(kind: InputKind, folder: Path, *ids: str) -> str:
    """Of the vault's entry for an input, or for the index of all. Projects do not get each other's
    values, whatever they call them."""
    place = os.path.realpath(folder) if kind == "project" else ""
    digest = hashlib.sha256(msgspec.json.encode((kind, place, *ids))).hexdigest()[:32]
    return f"MCP_INPUT_{digest.upper()}"


def _read_index(value: str | None) -> _Index:
    return _Index() if value is None else msgspec.json.decode(value, type=_Index)


def _decoded(value: str) -> str:
    try:
        return msgspec.json.decode(value, type=_PlainValue).input
    except msgspec.MsgspecError:
        return value
