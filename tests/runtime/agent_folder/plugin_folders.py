"""Plugins, written as tests need them."""

import json
from pathlib import Path

from tests.written_files import write_file

from mainspring.runtime.agent_folder.plugin import Plugin
from mainspring.runtime.agent_folder.plugins import read_plugin

SCHEMA = "https://agent-plugins.org/schemas/1.0.0/plugin.schema.json"
MCP_SCHEMA = "https://agent-plugins.org/schemas/1.0.0/mcp.schema.json"


def skill(folder: Path) -> Path:
    write_file(folder / "SKILL.md", f"---\nname: {folder.name}\ndescription: It helps.\n---\nDo.\n")
    return folder


def manifest(root: Path, place: str, **fields: object) -> None:
    file = root / place
    write_file(file, json.dumps(fields))


def claude(root: Path, **fields: object) -> Plugin:
    manifest(root, ".claude-plugin/plugin.json", name="kit", **fields)
    return read_plugin(root, "user")


def portable(root: Path, **fields: object) -> Plugin:
    manifest(root, "plugin.json", **{"$schema": SCHEMA, "name": "kit", **fields})
    return read_plugin(root, "user")


def said(plugin: Plugin, *levels: str) -> str:
    return "\n".join(str(f) for f in plugin.findings if f.level in (levels or ("error", "warning")))


def names(paths: tuple[Path, ...]) -> list[str]:
    return [path.name for path in paths]
