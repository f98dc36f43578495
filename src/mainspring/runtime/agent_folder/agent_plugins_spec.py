"""Agent Plugins 1.0.0 (agent-plugins.org): checks its `plugin.json` and `mcp.json`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from mainspring.runtime.agent_folder.mcp_file import SERVERS, ServerTable, read_table
from mainspring.runtime.definition_files.finding import Finding
from mainspring.runtime.definition_files.json_file import (
    JsonFile,
    JsonObject,
    JsonValueError,
    ValueReader,
    as_list,
    as_object,
    is_inside,
    string,
)
from mainspring.runtime.mcp_server import McpServer

_SCHEMAS = "https://agent-plugins.org/schemas/"
_PLUGIN = f"{_SCHEMAS}1.0.0/plugin.schema.json"
_MCP = f"{_SCHEMAS}1.0.0/mcp.schema.json"
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,62}[a-z0-9])?")
_OWN_VARIABLES = ("PLUGIN_ROOT", "PLUGIN_DATA")
_VARIANTS = {
    "stdio": {"type", "command", "args", "env", "cwd"},
    "streamable-http": {"type", "url", "headers"},
    "sse": {"type", "url", "headers"},
}
_BARE_COMMAND = re.compile(r"[^\s/\\$]{1,255}")


def is_portable(manifest: JsonFile) -> bool:
    """Whether a `plugin.json` at the root claims to follow the specification; other formats use
    that file name too."""
    schema = manifest.fields.get("$schema")
    return isinstance(schema, str) and schema.startswith(_SCHEMAS)


def is_plugin_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None and "--" not in name and ".." not in name


def check_manifest(manifest: JsonFile) -> list[Finding]:
    """Findings about a manifest. An error means that nothing in the plugin may be used. An unknown
    key is ignored, and so is an `extensions` that is not an object."""
    findings: list[Finding] = []
    if manifest.fields["$schema"] != _PLUGIN:
        what = f"this version of Agent Plugins is not supported, only {_PLUGIN}"
        findings.append(manifest.finding("error", what, "$schema"))
    if "name" not in manifest.fields:
        findings.append(manifest.finding("error", "name is missing"))
    for key, value in manifest.fields.items():
        if key not in _FIELDS:
            fix = "keys of a single client belong under extensions"
            what = f"{key} does not belong in an Agent Plugins manifest and is ignored"
            findings.append(manifest.finding("warning", what, key, fix=fix))
            continue
        try:
            _FIELDS[key](value)
        except JsonValueError as error:
            level = "warning" if key == "extensions" else "error"
            findings.append(manifest.finding(level, f"{key} {error}", key))
    return findings


def read_servers(
    file: JsonFile, root: Path, start: McpServer
) -> tuple[list[McpServer], list[Finding]]:
    """The servers in a package's `mcp.json`. Invalid ones are reported and skipped."""
    if file.fields.get("$schema") != _MCP:
        return [], [file.finding("error", f"$schema must be {_MCP}", "$schema")]
    if unknown := [key for key in file.fields if key not in ("$schema", SERVERS)]:
        return [], [file.finding("error", f"{unknown[0]} does not belong here", unknown[0])]
    entries = as_object(file.fields.get(SERVERS))
    if entries is None:
        return [], [file.finding("error", f"{SERVERS} must be an object", SERVERS)]
    findings: list[Finding] = []
    valid: JsonObject = {}
    for name, entry in entries.items():
        if fault := next(_faults(as_object(entry), root), None):
            findings.append(file.finding("error", f"MCP server {name}: {fault}", SERVERS, name))
        else:
            valid[name] = entry
    servers, table_findings = read_table(ServerTable(file, (SERVERS,), valid), start)
    return servers, [*findings, *table_findings]


def _faults(entry: JsonObject | None, root: Path) -> Iterator[str]:
    kind = None if entry is None else entry.get("type")
    allowed = _VARIANTS.get(kind) if isinstance(kind, str) else None
    if entry is None or allowed is None:
        yield f"must be an object whose type is one of {', '.join(_VARIANTS)}"
        return
    yield from (f"{key} does not belong here" for key in entry if key not in allowed)
    yield from _stdio_faults(entry, root) if kind == "stdio" else _remote_faults(entry)


def _stdio_faults(entry: JsonObject, root: Path) -> Iterator[str]:
    command, cwd = entry.get("command"), entry.get("cwd", "./")
    is_bare = isinstance(command, str) and _BARE_COMMAND.fullmatch(command)
    if not is_bare and not _is_inside_root(command, root):
        yield "command must be one name, or a path from ./ that stays in the plugin"
    if not _is_texts(entry.get("args", [])):
        yield "args must be a list of texts"
    env = entry.get("env", {})
    if not _is_text_table(env):
        yield "env must be an object of texts"
    elif any(name.upper() in _OWN_VARIABLES for name in as_object(env) or ()):
        yield f"env may not have {' or '.join(_OWN_VARIABLES)}"
    if not _is_folder(cwd, root):
        yield "cwd must begin with ./, ${PLUGIN_ROOT} or ${PLUGIN_DATA}, and stay there"


def _remote_faults(entry: JsonObject) -> Iterator[str]:
    if not _is_address(entry.get("url")):
        yield "url must be https, or http to this machine, without user or fragment"
    headers = entry.get("headers", {})
    if not _is_text_table(headers):
        yield "headers must be an object of texts"
        return
    names = [name.lower() for name in as_object(headers) or ()]
    if len(set(names)) < len(names):
        yield "headers has a name twice"


def _is_folder(cwd: object, root: Path) -> bool:
    if isinstance(cwd, str):
        for variable in ("${PLUGIN_ROOT}", "${PLUGIN_DATA}"):
            if cwd == variable or cwd.startswith(f"{variable}/"):
                return _is_inside_root(f".{cwd.removeprefix(variable)}", root)
    return _is_inside_root(cwd, root)


def _is_inside_root(path: object, root: Path) -> bool:
    if not isinstance(path, str) or not (path == "." or path.startswith("./")):
        return False
    is_plain = ".." not in PurePosixPath(path).parts and "\\" not in path
    return is_plain and is_inside(root / path, root)


def _is_address(url: object) -> bool:
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        host = parts.hostname or ""
        has_login = parts.username is not None or parts.password is not None
    except ValueError:
        return False
    if not host or has_login or parts.fragment:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host))


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _is_texts(value: object) -> bool:
    values = as_list(value)
    return values is not None and all(isinstance(item, str) for item in values)


def _is_text_table(value: object) -> bool:
    fields = as_object(value)
    return fields is not None and all(isinstance(field, str) for field in fields.values())


def _name(value: object) -> str:
    if not is_plugin_name(string(value)):
        raise JsonValueError(
            "must be 1-64 of a-z, 0-9, - and ., with no -- or .. and neither at an end"
        )
    return string(value)


def _author(value: object) -> object:
    fields = as_object(value)
    if not _is_text_table(value) or not {"name", "email", "url"}.issuperset(fields or ()):
        raise JsonValueError("must be an object of name, email and url")
    return value


def _keywords(value: object) -> object:
    if not _is_texts(value):
        raise JsonValueError("must be a list of texts")
    return value


def _extensions(value: object) -> object:
    if as_object(value) is None:
        raise JsonValueError("must be an object, and is ignored")
    return value


_FIELDS: dict[str, ValueReader] = {
    "$schema": string,
    "name": _name,
    "version": string,
    "description": string,
    "author": _author,
    "homepage": string,
    "repository": string,
    "license": string,
    "keywords": _keywords,
    "extensions": _extensions,
}
