"""Finds workflows with their commands and scripts: in the project, in packs, and in the user's
home. A project's files are only text until somebody trusts them, by hash, as they are now."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, TypeAlias

from mainspring.core.errors import InvalidInput, NotFound
from mainspring.error_table import with_hints
from mainspring.files.atomic_file import read_bounded
from mainspring.runtime.definition_files.json_file import as_object
from mainspring.runtime.packages.trust_pins import TrustPin, TrustPins
from mainspring.runtime.workflows.format.definition import Node, Workflow, all_nodes
from mainspring.runtime.workflows.format.node_reader import is_command_name
from mainspring.runtime.workflows.format.workflow_reader import (
    MAX_FILE_BYTES,
    ReadWorkflow,
    read_workflow,
)
from mainspring.runtime.workflows.node_steps import is_inline
from mainspring.runtime.workflows.run_files import RunFiles

PINS_FILE = ".mainspring/workflows.json"
"""The path below the user's home folder, so that a project cannot trust itself."""
TESTS_FOLDER = "workflows/tests"
"""Tests of workflows: see `dry_run.py`."""
FOLDERS = ("workflows", ".archon/workflows")
COMMAND_FOLDERS = ("workflows/commands", ".archon/commands")
SCRIPT_FOLDERS = ("workflows/scripts", ".archon/scripts")
_MAX_FILES = 1000
"""Workflow files of one folder; more are not workflows that people keep."""
_MAX_DEPTH = 3  # folders of a pack
_RUNTIMES = {".ts": "bun", ".js": "bun", ".py": "uv"}
_NOT_WORKFLOWS = frozenset(("commands", "scripts", "node_modules"))
Trust: TypeAlias = Literal["user", "trusted", "changed", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowFile:
    path: Path
    scope: Literal["project", "user"]
    read: ReadWorkflow
    text: str
    pack: Path | None = None
    """The folder of the pack that it belongs to, with commands and scripts of its own."""

    @property
    def name(self) -> str:
        return self.path.stem if self.read.workflow is None else self.read.workflow.name


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowFiles:
    """All workflows that can be used in a folder. Blocks while it reads."""

    root: Path
    home: Path

    def all(self) -> list[WorkflowFile]:
        """Project first: its workflows take precedence over the user's of the same name."""
        found: list[WorkflowFile] = []
        for folder in FOLDERS:
            found += self._in(self.root / folder, "project")
        if self.home.resolve() != self.root.resolve():
            found += self._in(self.home / ".archon" / "workflows", "user")
        return found

    def find(self, name: str) -> WorkflowFile:
        """The workflow of a name or in a file.

        Raises: NotFound. InvalidInput: it is not valid.
        """
        return self._valid(self.any(name))

    def any(self, name: str) -> WorkflowFile:
        """As `find`, but it may be invalid.

        Raises: NotFound.
        """
        path = self.root / name
        if path.suffix in (".yaml", ".yml") and path.is_file():
            return self._file(path, "project")
        matches = [item for item in self.all() if name in (item.name, item.path.stem)]
        if not matches:
            hint = "`mainspring workflow ls` lists the workflows of this folder"
            raise with_hints(NotFound("workflow", name), hint)
        return matches[0]

    def collect(self, workflow: WorkflowFile) -> RunFiles:
        """Everything that a run of a workflow uses.

        Raises: InvalidInput: a command, script or workflow that it names is missing or not valid.
        """
        workflows: dict[str, str] = {}
        commands: dict[str, str] = {}
        scripts: dict[str, str] = {}
        servers: dict[str, tuple[str, ...]] = {}
        files: dict[str, str] = {}
        pending = [workflow]
        for item in pending:
            if item.name in workflows or item.read.workflow is None:
                continue
            workflows[item.name] = item.text
            files[f"workflow {item.name}"] = self._shown(item.path)
            for kind, name, path in self._parts(item):
                texts = commands if kind == "command" else scripts
                if path is None:
                    raise InvalidInput(f"{item.name}: there is no {kind} {name}")
                texts[name] = _text(path)
                files[f"{kind} {name}"] = self._shown(path)
            nodes = all_nodes(item.read.workflow.nodes)
            for name in (node.mcp for node in nodes if node.mcp is not None):
                servers[name] = self.server_names(name)
                files[f"servers {name}"] = self._shown(self.root / name)
            pending += [
                self.find(node.text) for node in nodes if node.kind in ("include", "workflow")
            ]
        return RunFiles(
            main=workflow.name,
            workflows=workflows,
            commands=commands,
            scripts=scripts,
            servers=servers,
            files=files,
        )

    def _parts(self, item: WorkflowFile) -> Iterator[tuple[str, str, Path | None]]:
        """The commands and scripts that a workflow names, and where they are."""
        for node in all_nodes(item.read.workflow.nodes if item.read.workflow else ()):
            for name in command_names(node):
                yield "command", name, self.command_file(name, item.pack)
            if (script := script_name(node)) is not None:
                yield "script", script, self.script_file(script, node.runtime or "bun", item.pack)

    def server_names(self, name: str) -> tuple[str, ...]:
        """The MCP servers in a file that a node names. Only their names count: a node gets those
        that its runner has, as they are in the runner's settings.

        Raises: InvalidInput.
        """
        path = self.root / name
        if not path.is_file() or not path.resolve().is_relative_to(self.root.resolve()):
            raise InvalidInput(f"MCP config file not found: '{name}'")
        try:
            content = as_object(json.loads(_text(path)))
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"MCP config file '{name}' contains invalid JSON") from error
        if content is None:
            raise InvalidInput(f"MCP config file '{name}' must be a JSON object")
        return tuple(as_object(content.get("mcpServers")) or content)

    def trust(self, workflow: WorkflowFile, files: RunFiles) -> Trust:
        """Whether a workflow, with everything that it uses, may run."""
        own = str(self.home / ".archon")
        if workflow.scope == "user" and all(
            str(self._located(place)).startswith(own) for place in files.files.values()
        ):
            return "user"
        pin = self._pins().of(workflow.path)
        if pin is None:
            return "unknown"
        return "trusted" if pin.hash == files.hash else "changed"

    def trusted(self, name: str) -> RunFiles:
        """A workflow that may run.

        Raises: NotFound. InvalidInput: it is not valid, or nobody trusts it as it is now.
        """
        workflow = self.find(name)
        files = self.collect(workflow)
        if self.trust(workflow, files) not in ("user", "trusted"):
            refusal = InvalidInput(f"workflow {workflow.name} is not trusted as it is now")
            raise with_hints(refusal, f"read it, then: mainspring workflow trust {workflow.name}")
        return files

    def pin(self, workflow: WorkflowFile, files: RunFiles, when: datetime) -> None:
        """Trust a workflow and everything that it uses, as it is now."""
        self._pins().pin(workflow.path, TrustPin(hash=files.hash, when=when))

    def command_file(self, name: str, pack: Path | None) -> Path | None:
        folders = [*([pack / "commands"] if pack else ())]
        folders += [self.root / folder for folder in COMMAND_FOLDERS]
        folders.append(self.home / ".archon" / "commands")
        return _find_file(folders, name, (".md",))

    def script_file(self, name: str, runtime: str, pack: Path | None) -> Path | None:
        folders = [*([pack / "scripts"] if pack else ())]
        folders += [self.root / folder for folder in SCRIPT_FOLDERS]
        folders.append(self.home / ".archon" / "scripts")
        suffixes = tuple(suffix for suffix, kind in _RUNTIMES.items() if kind == runtime)
        return _find_file(folders, name, suffixes)

    def _in(self, folder: Path, scope: Literal["project", "user"]) -> Iterator[WorkflowFile]:
        for path in _yaml_files(folder, folder, 0):
            if path.is_relative_to(self.root / TESTS_FOLDER):
                continue
            try:
                item = self._file(path, scope)
            except InvalidInput as error:
                read = ReadWorkflow(file=self._shown(path), error=str(error))
                item = WorkflowFile(path=path, scope=scope, read=read, text="")
            yield item

    def _file(self, path: Path, scope: Literal["project", "user"]) -> WorkflowFile:
        text = _text(path)
        pack = path.parent
        has_parts = (pack / "commands").is_dir() or (pack / "scripts").is_dir()
        return WorkflowFile(
            path=path,
            scope=scope,
            read=read_workflow(text, self._shown(path)),
            text=text,
            pack=pack if has_parts else None,
        )

    def _valid(self, item: WorkflowFile) -> WorkflowFile:
        if item.read.workflow is None:
            place = (
                item.read.file if item.read.line is None else f"{item.read.file}:{item.read.line}"
            )
            raise InvalidInput(f"{place}: {item.read.error}")
        return item

    def _shown(self, path: Path) -> str:
        for base, prefix in ((self.root, ""), (self.home, "~/")):
            if path.is_relative_to(base):
                return prefix + path.relative_to(base).as_posix()
        return str(path)

    def _located(self, shown: str) -> Path:
        return self.home / shown[2:] if shown.startswith("~/") else self.root / shown

    def _pins(self) -> TrustPins:
        return TrustPins(self.home / PINS_FILE)


def base_branch(folder: Path) -> str | None:
    """The main branch of a repository, or the one that is checked out. Blocks."""
    for file, start in (
        (".git/refs/remotes/origin/HEAD", "ref: refs/remotes/origin/"),
        (".git/HEAD", "ref: refs/heads/"),
    ):
        try:
            text = (read_bounded(folder / file) or b"").decode("utf-8", "replace").strip()
        except InvalidInput:  # it is no plain file
            continue
        if text.startswith(start):
            return text.removeprefix(start)
    return None


def command_names(node: Node) -> list[str]:
    names = [node.text] if node.kind == "command" else []
    if node.loop is not None and node.loop.command is not None:
        names.append(node.loop.command)
    return names


def script_name(node: Node) -> str | None:
    """The file that a script node runs, if it does not contain its code."""
    return node.text if node.kind == "script" and not is_inline(node.text) else None


def programs(workflow: Workflow) -> list[tuple[str, str]]:
    """The programs of a workflow, for a person who decides whether to trust it."""
    found: list[tuple[str, str]] = []
    for node in all_nodes(workflow.nodes):
        if node.kind in ("bash", "script"):
            found.append((node.id, node.text))
        if node.loop is not None and node.loop.until_bash is not None:
            found.append((f"{node.id} (until_bash)", node.loop.until_bash))
    return found


def _yaml_files(folder: Path, root: Path, depth: int) -> Iterator[Path]:
    try:
        entries = sorted(folder.iterdir())[:_MAX_FILES]
    except OSError:
        return
    for entry in entries:
        if entry.is_symlink() and not entry.resolve().is_relative_to(root.resolve()):
            continue  # a link out of the folder is not a part of it
        if entry.is_dir() and depth < _MAX_DEPTH and entry.name not in _NOT_WORKFLOWS:
            yield from _yaml_files(entry, root, depth + 1)
        elif entry.suffix in (".yaml", ".yml") and entry.is_file():
            yield entry


def _find_file(folders: Sequence[Path], name: str, suffixes: Sequence[str]) -> Path | None:
    """A file in one of the folders, or in a folder below it; never through a link out of it."""
    if not is_command_name(name):
        return None
    for folder in folders:
        for place in (folder, *_subfolders(folder)):
            for suffix in suffixes:
                path = place / f"{name}{suffix}"
                if path.is_file() and path.resolve().is_relative_to(folder.resolve()):
                    return path
    return None


def _subfolders(folder: Path) -> list[Path]:
    try:
        return sorted(entry for entry in folder.iterdir() if entry.is_dir())
    except OSError:
        return []


def _text(path: Path) -> str:
    content = read_bounded(path)
    if content is None:
        raise InvalidInput(f"{path} does not exist")
    if len(content) > MAX_FILE_BYTES:
        raise InvalidInput(f"{path} is over {MAX_FILE_BYTES} bytes")
    return content.decode("utf-8", "replace")
