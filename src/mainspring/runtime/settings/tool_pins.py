"""Facts about a user's MCP servers that are stored: hashes of their tools, and which are legacy
servers.

A tool whose definition has changed since its first use is not used until the user accepts it. A
legacy server is not probed again for a week, because some of them take seconds to fail.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from mainspring.core.clock import Clock
from mainspring.core.errors import InvalidInput
from mainspring.files.atomic_file import read_bounded, write_atomic
from mainspring.runtime.mcp_server import McpServer
from mainspring.runtime.packages.hidden_text import find_hidden_text
from mainspring.runtime.packages.scan_text import find_matches, scanned_text

_FILE = Path(".mainspring") / "mcp-tools.json"
_ERA_FILE = Path(".mainspring") / "mcp-legacy.json"
_ERA_SECONDS = 7 * 24 * 3600.0  # a week; then a server is asked again which protocol it speaks
_MAX_BYTES = 16 << 20  # of the file of pins
_Pins = dict[str, dict[str, str]]


@dataclass(frozen=True, slots=True)
class ServerHistory:
    """Facts about MCP servers from the user's earlier sessions. Its methods block."""

    home: Path | None
    """The user's home folder; `None` if nothing is stored."""
    clock: Clock

    def is_legacy(self, server: McpServer) -> bool:
        return self.home is not None and is_known_legacy(self.home, server, self.clock())

    def remember_legacy(self, server: McpServer) -> None:
        if self.home is not None:
            remember_legacy(self.home, server, self.clock())

    def refused_tools(
        self, server: McpServer, texts: Mapping[str, str], hashes: Mapping[str, str]
    ) -> dict[str, str | None]:
        """The tools that may not be used, and why: disabled, dangerous or changed. `texts` and
        `hashes` are those of each tool's definition, by name."""
        refusals: dict[str, str | None] = dict.fromkeys(server.disabled_tools)
        for name, text in texts.items():
            if name not in refusals and (danger := danger_in(text)) is not None:
                refusals[name] = danger
        try:
            changed = {} if self.home is None else check_pins(self.home, server, hashes)
        except InvalidInput as error:  # the earlier definitions are unknown
            changed = dict.fromkeys(hashes, str(error))
        return {**changed, **refusals}

    def danger_in(self, text: str) -> str | None:
        return danger_in(text)


def check_pins(home: Path, server: McpServer, tools: Mapping[str, str]) -> dict[str, str]:
    """Why tools may not be used, by name. `tools`: the hashes of their definitions by name. The
    tools of a new server are pinned.

    Raises: InvalidInput: the pins cannot be read or written.
    """
    pins = _read(home)
    pinned = pins.get(_server_id(server))
    if pinned is None:
        _write(home, {**pins, _server_id(server): dict(tools)})
        return {}
    accept = f"`mainspring mcp accept {server.name}` accepts it"
    return {
        name: f"its definition has changed since you first used it; {accept}"
        if name in pinned
        else f"it is new since you first used the server; {accept}"
        for name, digest in tools.items()
        if pinned.get(name) != digest
    }


def accept_tools(home: Path, server: McpServer) -> bool:
    """Remove a server's pins: its next tools are accepted. False if it had none.

    Raises: InvalidInput.
    """
    pins = _read(home)
    was_pinned = pins.pop(_server_id(server), None) is not None
    if was_pinned:
        _write(home, pins)
    return was_pinned


def is_known_legacy(home: Path, server: McpServer, now: datetime) -> bool:
    """Whether the server was a legacy server within the last week."""
    seen_at = _read_legacy(home).get(_server_id(server), 0.0)
    return 0 <= now.timestamp() - seen_at < _ERA_SECONDS


def remember_legacy(home: Path, server: McpServer, now: datetime) -> None:
    times = {**_read_legacy(home), _server_id(server): now.timestamp()}
    (home / _ERA_FILE).parent.mkdir(parents=True, exist_ok=True)
    write_atomic(home / _ERA_FILE, msgspec.json.encode(times, order="sorted") + b"\n")


def _read_legacy(home: Path) -> dict[str, float]:
    """When legacy servers were last seen, by id; empty if the file cannot be read."""
    try:
        content = read_bounded(home / _ERA_FILE, max_bytes=_MAX_BYTES)
        return {} if content is None else msgspec.json.decode(content, type=dict[str, float])
    except (msgspec.MsgspecError, InvalidInput, OSError, RecursionError):
        return {}


def danger_in(text: str) -> str | None:
    """Why a model should not read a text, if a scan finds a danger in it."""
    page = scanned_text("tool.md", text, is_script=False, is_prose=True)
    for match in (*find_matches(page), *find_hidden_text(text, is_script=False)):
        if match.severity == "danger":
            return match.why
    return None


def _server_id(server: McpServer) -> str:
    """The id of a server; it changes with the command or address."""
    parts = (server.name, server.transport, server.command, *server.args, server.url)
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


def _read(home: Path) -> _Pins:
    content = read_bounded(home / _FILE, max_bytes=_MAX_BYTES)
    try:
        return {} if content is None else msgspec.json.decode(content, type=_Pins)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidInput(f"{home / _FILE}: {error}; remove it to start over") from error


def _write(home: Path, pins: _Pins) -> None:
    (home / _FILE).parent.mkdir(parents=True, exist_ok=True)
    write_atomic(home / _FILE, msgspec.json.encode(pins, order="sorted") + b"\n")
