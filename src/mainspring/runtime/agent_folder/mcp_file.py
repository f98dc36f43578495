"""Reads the definitions of MCP servers, mostly from `.mcp.json`. It does not connect to them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct

from mainspring.runtime.agent_folder.mcp_inputs import input_values, read_inputs
from mainspring.runtime.definition_files.finding import Finding
from mainspring.runtime.definition_files.json_file import (
    JsonFile,
    JsonObject,
    JsonValueError,
    ValueReader,
    as_object,
    decode_object,
    flag,
    read_object,
    string,
    string_table,
    strings,
    table,
)
from mainspring.runtime.definition_files.scopes import Scopes
from mainspring.runtime.mcp_server import McpServer, ServerScope, Transport

SERVERS = "mcpServers"
_TRANSPORTS: dict[object, Transport] = {
    **{name: name for name in get_args(Transport)},
    **dict.fromkeys(("streamable-http", "streamableHttp", "streamable_http"), "http"),
    "websocket": "ws",
}
_NON_SERVER_KEYS = {SERVERS, "$schema", "inputs"}
_MAX_CLAUDE_BYTES = 50_000_000
"""Claude Code keeps its history in the same file."""
_PLACEHOLDER = re.compile(r"\$\{([^{}]{1,1000})\}")
_PORTABLE = re.compile(r"\$\{(PLUGIN_ROOT|PLUGIN_DATA)\}")
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


_ServersRead: TypeAlias = tuple[list[McpServer], list[Finding]]


class McpServers(Struct, frozen=True):
    servers: tuple[McpServer, ...]
    findings: tuple[Finding, ...]


class ServerTable(Struct, frozen=True):
    """A table of servers by name, inside a file."""

    file: JsonFile
    keys: tuple[str, ...]
    """The keys that lead to it."""
    entries: object


PROJECT_FILES = (".mcp.json", "mcp.json")


def read_mcp(
    scopes: Scopes, environment: Mapping[str, str], *, plugins: Iterable[McpServer] = ()
) -> McpServers:
    """All servers for a folder, with findings, also about variables that have no value."""
    defined = defined_servers(scopes, plugins=plugins)
    values = {"CLAUDE_PROJECT_DIR": scopes.folder.as_posix(), **environment}
    findings = [
        finding for server in defined.servers for finding in expand_server(server, values)[1]
    ]
    return McpServers(defined.servers, (*defined.findings, *findings))


def defined_servers(
    scopes: Scopes,
    *,
    plugins: Iterable[McpServer] = (),
    project: Mapping[str, bytes] | None = None,
) -> McpServers:
    """The servers as the files define them. Unlike other parts of an agent, and as in Claude Code,
    local overrides project and project overrides user, entry by entry. Only the operator's servers
    override those. `project`: the project's files, if they were already read."""
    by_name: dict[str, McpServer] = {}
    findings: list[Finding] = []
    for servers, source_findings in (*_sources(scopes, project), (tuple(plugins), ())):
        findings += source_findings
        for server in servers:
            if server.name in by_name:
                findings.append(_shadowed_finding(server, by=by_name[server.name]))
            else:
                by_name[server.name] = server
    return McpServers(tuple(by_name.values()), tuple(findings))


def expand_server(
    server: McpServer, environment: Mapping[str, str]
) -> tuple[McpServer, list[Finding]]:
    """The server with `${...}` replaced, and the names that have no value. May hold secrets."""
    if server.is_portable:
        folders = {"PLUGIN_ROOT": server.plugin_root, "PLUGIN_DATA": server.plugin_data}
        return _replace_placeholders(
            server, lambda text: _PORTABLE.sub(lambda match: folders[match[1]], text)
        ), []
    values = {**environment, **input_values(server, environment)}
    if server.plugin is not None:
        values["CLAUDE_PLUGIN_ROOT"] = server.plugin_root
        values["CLAUDE_PLUGIN_DATA"] = server.plugin_data
    unknown: dict[str, None] = {}

    def replace(text: str) -> str:
        new, unresolved = expand(text, values)
        unknown.update(dict.fromkeys(unresolved))
        return new

    expanded = _replace_placeholders(server, replace)
    return expanded, [_unresolved_finding(server, name) for name in unknown]


def expand(text: str, values: Mapping[str, str]) -> tuple[str, list[str]]:
    """Replace every `${NAME}` and `${NAME:-default}` once; names without a value stay and are
    returned."""
    unresolved: list[str] = []

    def value(match: re.Match[str]) -> str:
        variable = _VARIABLE.fullmatch(match[1])
        is_input = match[1].startswith("input:")
        replacement = values.get(match[1]) if is_input else None
        if variable is not None:
            replacement = values.get(variable[1], variable[2])
        if replacement is None:
            unresolved.append(match[1])
            return match[0]
        return replacement

    return _PLACEHOLDER.sub(value, text), unresolved


def read_table(table: ServerTable, start: McpServer) -> _ServersRead:
    """The servers of a table: each is `start` plus its entry. Invalid ones are reported and
    skipped."""
    entries = as_object(table.entries)
    if entries is None:
        return [], [table.file.finding("error", "servers must be an object", *table.keys)]
    servers: list[McpServer] = []
    findings: list[Finding] = []
    for name, entry in entries.items():
        reader = _ServerEntry(table, name, findings)
        server = reader.server(entry, start)
        if server is not None:
            servers.append(server)
    return servers, findings


def table_of(file: JsonFile) -> tuple[ServerTable, list[Finding]]:
    """The table of servers in a file: under `mcpServers` or, as in many plugins, at the top
    level."""
    if SERVERS in file.fields:
        findings = [
            file.finding("warning", f"{key} is unknown and has no effect", key)
            for key in file.fields
            if key not in _NON_SERVER_KEYS
        ]
        return ServerTable(file, (SERVERS,), file.fields[SERVERS]), findings
    bare = {key: value for key, value in file.fields.items() if key not in _NON_SERVER_KEYS}
    findings = [file.finding("note", f"there is no {SERVERS}: every key is read as a server")]
    return ServerTable(file, (), bare), findings if bare else []


def inline_servers(
    entries: Mapping[str, object], display_path: str, scope: ServerScope = "project"
) -> McpServers:
    """The servers that a file of another format defines, such as that of a subagent."""
    encoded = msgspec.json.encode({SERVERS: entries})
    servers, findings = _servers_in(decode_object(encoded, display_path), scope)
    return McpServers(tuple(servers), tuple(findings))


def _sources(
    scopes: Scopes, project: Mapping[str, bytes] | None
) -> Iterator[tuple[Iterable[McpServer], Iterable[Finding]]]:
    """In order of precedence."""
    claude = _claude_file(scopes)
    if scopes.managed is not None:
        yield _read_file(scopes, scopes.managed / "mcp.json", "managed")
    if isinstance(claude, JsonFile):
        for folder in {str(scopes.folder): None, str(scopes.folder.resolve()): None}:
            yield _of_claude(claude, "local", "projects", folder)
    yield from (_of_project(scopes, project, name) for name in PROJECT_FILES)
    if scopes.home is not None:
        yield _read_file(scopes, scopes.home / ".mainspring" / "mcp.json", "user")
    if isinstance(claude, JsonFile):
        yield _of_claude(claude, "user")
    elif claude is not None:
        yield (), (claude,)


def _of_project(scopes: Scopes, project: Mapping[str, bytes] | None, name: str) -> _ServersRead:
    if project is None:
        return _read_file(scopes, scopes.folder / name, "project")
    return _servers_in(decode_object(project[name], name) if name in project else None, "project")


def _read_file(scopes: Scopes, file: Path, scope: ServerScope) -> _ServersRead:
    within = scopes.folder if scope == "project" else None
    return _servers_in(read_object(file, scopes.display_path(file), within=within), scope)


def _servers_in(json_file: JsonFile | Finding | None, scope: ServerScope) -> _ServersRead:
    if not isinstance(json_file, JsonFile):
        return [], [] if json_file is None else [json_file]
    server_table, table_findings = table_of(json_file)
    start = McpServer(
        name="",
        transport="stdio",
        scope=scope,
        file=json_file.display_path,
        inputs=read_inputs(json_file.fields.get("inputs")),
    )
    servers, findings = read_table(server_table, start)
    return servers, [*table_findings, *findings]


def _claude_file(scopes: Scopes) -> JsonFile | Finding | None:
    if scopes.home is None:
        return None
    file = scopes.home / ".claude.json"
    return read_object(file, scopes.display_path(file), max_bytes=_MAX_CLAUDE_BYTES)


def _of_claude(file: JsonFile, scope: ServerScope, *path: str) -> _ServersRead:
    """The part of Claude Code's own file that concerns `path`; the rest is ignored."""
    fields: JsonObject | None = file.fields
    for key in path:
        fields = as_object((fields or {}).get(key))
    if fields is None or SERVERS not in fields:
        return [], []
    start = McpServer(name="", transport="stdio", scope=scope, file=file.display_path)
    return read_table(ServerTable(file, (*path, SERVERS), fields[SERVERS]), start)


class _ServerEntry(Struct, frozen=True):
    table: ServerTable
    name: str
    findings: list[Finding]

    def server(self, entry: object, start: McpServer) -> McpServer | None:
        fields = as_object(entry)
        if fields is None or not self.name.strip():
            return self.warn("error", "must have a name and be an object")
        transport = self.transport(fields)
        if transport is None:
            return None
        required_key = "command" if transport == "stdio" else "url"
        if not isinstance(fields.get(required_key), str) or not fields[required_key]:
            return self.warn("error", f"a server of type {transport} needs a {required_key}")
        name = self.name if start.plugin is None else f"{start.plugin}:{self.name}"
        values = dict(self.fields(fields))
        extra = {key: value for key, value in fields.items() if key not in _KNOWN}
        for key in extra:
            self.warn("warning", f"{key} is unknown and has no effect", key)
        return msgspec.structs.replace(
            start, name=name, transport=transport, extra=extra, **_normalized_fields(values)
        )

    def transport(self, fields: JsonObject) -> Transport | None:
        name = fields.get("type")
        if name is None and "url" in fields and "command" in fields:
            return self.warn("error", "has a url and a command: keep one, or give its type")
        if name is None:
            return "http" if "url" in fields and "command" not in fields else "stdio"
        transport = _TRANSPORTS.get(name) if isinstance(name, str) else None
        if transport is None:
            self.warn("error", f"type must be one of {', '.join(get_args(Transport))}", "type")
        return transport

    def fields(self, fields: JsonObject) -> Iterator[tuple[str, object]]:
        for key, value in fields.items():
            if key not in _READERS:
                continue
            try:
                yield key, _READERS[key](value)
            except JsonValueError as error:
                self.warn("warning", f"{key} {error}: it is ignored", key)

    def warn(self, level: Literal["error", "warning"], what: str, *keys: str) -> None:
        path = (*self.table.keys, self.name, *keys)
        self.findings.append(
            self.table.file.finding(level, f"MCP server {self.name}: {what}", *path)
        )


def _milliseconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise JsonValueError("must be a number of milliseconds")
    return value


def _networking(value: object) -> JsonObject:
    """Keep a value that is not an object, so that the server is refused instead of unlimited."""
    fields = as_object(value)
    return {"allowed_hosts": value} if fields is None else fields


_READERS: dict[str, ValueReader] = {
    "command": string,
    "args": strings,
    "env": string_table,
    "cwd": string,
    "url": string,
    "headers": string_table,
    "headersHelper": string,
    "oauth": table,
    "timeout": _milliseconds,
    "timeout_ms": _milliseconds,
    "enabled": flag,
    "disabled": flag,
    "disabledTools": strings,
    "alwaysLoad": flag,
    "sampling": flag,
    "networking": _networking,
    "description": string,
}
_KNOWN = {"type", *_READERS}


def _normalized_fields(values: dict[str, object]) -> dict[str, object]:
    """The fields under our names. If two keys mean the same, the plainer one is used."""
    names = {
        "headersHelper": "headers_helper",
        "disabledTools": "disabled_tools",
        "alwaysLoad": "always_load",
        "sampling": "allows_sampling",
    }
    enabled, disabled = values.pop("enabled", True), values.pop("disabled", False)
    timeout, timeout_ms = values.pop("timeout", None), values.pop("timeout_ms", None)
    return {
        **{names.get(key, key): value for key, value in values.items()},
        "is_enabled": enabled and not disabled,
        "timeout_ms": timeout_ms or timeout,
    }


def _replace_placeholders(server: McpServer, replace: Callable[[str], str]) -> McpServer:
    replaced = msgspec.structs.replace(
        server,
        args=tuple(replace(arg) for arg in server.args),
        env={name: replace(value) for name, value in server.env.items()},
        cwd=None if server.cwd is None else replace(server.cwd),
    )
    if server.is_portable:
        return replaced
    helper = server.headers_helper
    return msgspec.structs.replace(
        replaced,
        command=replace(server.command),
        url=replace(server.url),
        headers={name: replace(value) for name, value in server.headers.items()},
        headers_helper=None if helper is None else replace(helper),
    )


def _unresolved_finding(server: McpServer, name: str) -> Finding:
    variable = _VARIABLE.fullmatch(name)
    if name.startswith("input:"):
        return Finding(
            level="warning",
            file=server.file,
            what=f"MCP server {server.name}: ${{{name}}} has no value yet",
            fix=f"mainspring mcp auth {server.name}",
        )
    problem = "is not set" if variable else "cannot be replaced here"
    return Finding(
        level="warning",
        file=server.file,
        what=f"MCP server {server.name}: ${{{name}}} {problem} and is left unchanged",
        fix=f"set {variable[1]}, or write ${{{variable[1]}:-...}}" if variable else None,
    )


def _shadowed_finding(server: McpServer, *, by: McpServer) -> Finding:
    what = f"MCP server {server.name}: the one in {by.file} ({by.scope}) is used instead"
    return Finding(level="note", file=server.file, what=what)
