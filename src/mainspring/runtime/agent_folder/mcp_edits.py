"""Changes the files that define MCP servers: add, remove, enable, disable, import from
elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from mainspring.core.errors import InvalidInput
from mainspring.files.atomic_file import read_bounded, write_atomic
from mainspring.runtime.agent_folder.mcp_file import (
    PROJECT_FILES,
    SERVERS,
    McpServer,
    ServerTable,
    read_table,
)
from mainspring.runtime.definition_files.json_file import (
    JsonFile,
    JsonObject,
    as_object,
    decode_object,
)

WritableScope: TypeAlias = Literal["project", "user"]
Program: TypeAlias = Literal["claude-desktop", "cursor", "vscode"]
_TABLES = (SERVERS, "servers")
"""VS Code uses another key."""


def servers_file(scope: WritableScope, *, folder: Path, home: Path) -> Path:
    return folder / PROJECT_FILES[0] if scope == "project" else home / ".mainspring" / "mcp.json"


def add_server(file: Path, name: str, entry: JsonObject) -> bytes:
    """Add a server to a file. Returns the file's new content.

    Raises:
        InvalidInput: the entry is not a server, or the file has one of this name.
    """
    check_entry(name, entry)

    def add(servers: JsonObject) -> None:
        if name in servers:
            raise InvalidInput(f"{file} has a server {name}; remove it first")
        servers[name] = entry

    return _change(file, add)


def remove_server(file: Path, name: str) -> bytes:
    """Raises: InvalidInput: the file has no such server."""

    def remove(servers: JsonObject) -> None:
        _entry(file, servers, name)
        del servers[name]

    return _change(file, remove)


def enable_server(file: Path, name: str, *, is_enabled: bool) -> bytes:
    """Raises: InvalidInput: the file has no such server."""

    def enable(servers: JsonObject) -> None:
        entry = dict(_entry(file, servers, name))
        for key in ("enabled", "disabled"):
            entry.pop(key, None)
        servers[name] = entry if is_enabled else {**entry, "disabled": True}

    return _change(file, enable)


def check_entry(name: str, entry: JsonObject) -> McpServer:
    """Raises: InvalidInput: the entry is not a usable server."""
    file = JsonFile("", "", {})
    table = ServerTable(file, (SERVERS,), {name: entry})
    servers, findings = read_table(table, McpServer(name="", transport="stdio"))
    errors = [finding.what for finding in findings if finding.level == "error"]
    if errors or not servers:
        raise InvalidInput(errors[0] if errors else f"{name} is not an MCP server")
    return servers[0]


def foreign_file(program: Program, *, folder: Path, home: Path) -> Path:
    """The file in which another program stores its servers."""
    match program:
        case "cursor":
            file = folder / ".cursor" / "mcp.json"
            return file if file.exists() else home / ".cursor" / "mcp.json"
        case "vscode":
            return folder / ".vscode" / "mcp.json"
        case "claude-desktop":
            is_mac = sys.platform == "darwin"
            place = "Library/Application Support/Claude" if is_mac else ".config/Claude"
            return home / place / "claude_desktop_config.json"


def read_foreign(file: Path) -> Mapping[str, JsonObject]:
    """The servers in a file of another program.

    Raises: InvalidInput.
    """
    content = read_bounded(file)
    if content is None:
        raise InvalidInput(f"{file}: there is no such file")
    fields = _decode_fields(content, file)
    tables = (as_object(fields.get(key)) for key in _TABLES)
    servers = next((table for table in tables if table), JsonObject())
    entries = {name: as_object(entry) for name, entry in servers.items()}
    return {name: entry for name, entry in entries.items() if entry is not None}


def _decode_fields(content: bytes, file: Path) -> JsonObject:
    decoded = decode_object(content, str(file))
    if not isinstance(decoded, JsonFile):
        raise InvalidInput(str(decoded))
    return decoded.fields


def _entry(file: Path, servers: JsonObject, name: str) -> JsonObject:
    entry = as_object(servers.get(name))
    if entry is None:
        raise InvalidInput(f"{file} has no server {name}")
    return entry


def _change(file: Path, change: Callable[[JsonObject], None]) -> bytes:
    fields = dict(_decode_fields(read_bounded(file) or b"{}", file))
    table = as_object(fields.setdefault(SERVERS, {}))
    if table is None:
        raise InvalidInput(f"{file}: {SERVERS} must be an object")
    change(table)
    encoded = msgspec.json.format(msgspec.json.encode(fields), indent=2) + b"\n"
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(file, encoded)
    return encoded
