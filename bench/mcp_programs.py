"""Stdio MCP servers of others, installed as their pages say: whether each starts and answers in
its sandbox, and what that shows it. `python bench/mcp_programs.py FOLDER [NAME]...`; a second run
uses what the first one installed.

It needs npm, and the package indexes that npm and pip are configured for. To try a kind of machine,
install first, then run it again under `tools/confined.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from report import note

_SYSTEM = ("/proc", "/dev", "/etc", "/usr", "/bin", "/sbin", "/lib")
"""What every sandbox shows."""
_POLL_SECONDS = 0.02
_INSTALL_SECONDS = 900
_CALL_SECONDS = 120
_PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")


@dataclass(frozen=True, slots=True)
class Place:
    """The home of a user who installs servers."""

    home: Path

    @property
    def project(self) -> Path:
        return self.home / "project"

    @property
    def environ(self) -> dict[str, str]:
        path = f"{self.home}/.local/bin:{self.home}/tools/bin:{os.environ['PATH']}"
        kept = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
        return {**kept, "HOME": str(self.home), "PATH": path}

    def run(self, *command: str, seconds: int = _INSTALL_SECONDS) -> str:
        ran = subprocess.run(
            command,
            cwd=self.project,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        if ran.returncode != 0:
            raise RuntimeError(f"{command[0]}: {ran.stderr.strip()[-300:]}")
        return ran.stdout


@dataclass(frozen=True, slots=True)
class Server:
    name: str
    way: str
    package: str
    command: tuple[str, ...]
    """`{home}` and `{project}` stand for these folders."""
    tool: str
    tool_input: dict[str, object]
    answer: str
    """What the answer has in it."""


_NODE = "{home}/servers/node_modules"
SERVERS = (
    Server(
        "everything", "npm in HOME", "@modelcontextprotocol/server-everything",
        ("node", f"{_NODE}/@modelcontextprotocol/server-everything/dist/index.js"),
        "echo", {"message": "hi"}, "hi",
    ),
    Server(
        "filesystem", "npm in HOME", "@modelcontextprotocol/server-filesystem",
        ("node", f"{_NODE}/@modelcontextprotocol/server-filesystem/dist/index.js", "{project}"),
        "read_text_file", {"path": "{project}/notes.txt"}, "a note",
    ),
    Server(
        "commands", "npm in HOME", "mcp-server-commands", (f"{_NODE}/.bin/mcp-server-commands",),
        "run_command", {"command": "cat notes.txt"}, "a note",
    ),
    Server(
        "thinking", "npm in HOME", "@modelcontextprotocol/server-sequential-thinking",
        (f"{_NODE}/.bin/mcp-server-sequential-thinking",), "sequentialthinking",
        {"thought": "x", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1},
        "thoughtNumber",
    ),
    Server(
        "time", "venv in HOME", "mcp-server-time", ("{home}/venvs/time/bin/mcp-server-time",),
        "get_current_time", {"timezone": "UTC"}, "UTC",
    ),
    Server(
        "sqlite", "venv in HOME", "mcp-server-sqlite mcp<2",
        ("{home}/venvs/sqlite/bin/mcp-server-sqlite", "--db-path", "{project}/x.db"),
        "read_query", {"query": "select 6 * 7 as n"}, "42",
    ),
    Server(
        "calculator", "venv in HOME", "mcp-server-calculator mcp<2",
        ("{home}/venvs/calculator/bin/python", "-m", "mcp_server_calculator"),
        "calculate", {"expression": "6 * 7"}, "42",
    ),
    Server(
        "shell", "venv in HOME", "mcp-shell-server mcp<2",
        ("{home}/venvs/shell/bin/mcp-shell-server",),
        "shell_execute", {"command": ["cat", "notes.txt"], "directory": "{project}"}, "a note",
    ),
    Server(
        "editor", "pipx", "mcp-text-editor mcp<2", ("mcp-text-editor",), "get_text_file_contents",
        {"files": [{"file_path": "{project}/notes.txt", "ranges": [{"start": 1}]}]}, "a note",
    ),
    Server(
        "excel", "pipx", "excel-mcp-server", ("excel-mcp-server", "stdio"),
        "create_workbook", {"path": "{project}/x.xlsx", "overwrite": True}, "x.xlsx",
    ),
    Server(
        "word", "uv tool", "office-word-mcp-server", ("word_mcp_server",),
        "create_document", {"filename": "{project}/x.docx"}, "x.docx",
    ),
    Server(
        "memory", "npx", "", ("npx", "-y", "@modelcontextprotocol/server-memory"),
        "search_nodes", {"query": "x"}, "entities",
    ),
    Server(
        "everything-npx", "npx", "", ("npx", "-y", "@modelcontextprotocol/server-everything"),
        "get-sum", {"a": 20, "b": 22}, "42",
    ),
    Server(
        "git", "uvx", "mcp-server-git", ("uvx", "mcp-server-git"),
        "git_status", {"repo_path": "{project}"}, "branch",
    ),
    Server(
        "time-uvx", "uvx", "mcp-server-time", ("uvx", "mcp-server-time"),
        "get_current_time", {"timezone": "UTC"}, "UTC",
    ),
)  # fmt: skip


def install(server: Server, place: Place) -> None:
    """Install a server as its user would, unless it is there already."""
    done = place.home / f".installed-{server.name}"
    if done.exists():
        return
    _INSTALLERS[server.way](server, place)
    done.touch()


def _npm(server: Server, place: Place) -> None:
    place.run("npm", "install", "--silent", "--prefix", f"{place.home}/servers", server.package)


def _venv(server: Server, place: Place) -> None:
    folder = place.home / "venvs" / server.name
    place.run(sys.executable, "-m", "venv", str(folder))
    place.run(str(folder / "bin/python"), *_PIP, *server.package.split())


def _pipx(server: Server, place: Place) -> None:
    package, *more = server.package.split()
    place.run("pipx", "install", "--quiet", package)
    if more:
        place.run("pipx", "inject", "--quiet", "--force", package, *more)


def _uv_tool(server: Server, place: Place) -> None:
    place.run("uv", "tool", "install", "--quiet", server.package)


def _nothing(server: Server, place: Place) -> None:
    """npx installs when the server starts."""


def _index(server: Server, place: Place) -> None:
    """An index on loopback, with what the index of pip has: the one for uvx may be anywhere."""
    files = place.home / "index/files"
    place.run(
        sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(files), server.package
    )
    for wheel in files.glob("*.whl"):
        page = (
            place.home
            / "index/simple"
            / wheel.name.split("-")[0].replace("_", "-").lower()
            / "index.html"
        )
        page.parent.mkdir(parents=True, exist_ok=True)
        link = f'<a href="/files/{wheel.name}">{wheel.name}</a>'
        page.write_text((page.read_text() if page.exists() else "") + link)


_INSTALLERS: dict[str, Callable[[Server, Place], None]] = {
    "npm in HOME": _npm,
    "venv in HOME": _venv,
    "pipx": _pipx,
    "uv tool": _uv_tool,
    "npx": _nothing,
    "uvx": _index,
}


def _filled(text: str, place: Place) -> str:
    return text.replace("{home}", str(place.home)).replace("{project}", str(place.project))


def call(server: Server, place: Place, variables: dict[str, str]) -> tuple[str, set[str]]:
    """What a call of the server's tool answers, and the folders that its sandbox shows."""
    entry = {
        "command": _filled(server.command[0], place),
        "args": [_filled(item, place) for item in server.command[1:]],
        "env": {"ALLOW_COMMANDS": "cat"},
    }
    servers = place.home / ".mainspring/mcp.json"
    servers.parent.mkdir(mode=0o700, exist_ok=True)
    servers.write_text(json.dumps({"mcpServers": {server.name: entry}}))
    words = _filled(json.dumps(server.tool_input), place)
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "mainspring",
            "mcp",
            "inspect",
            server.name,
            server.tool,
            "--input",
            words,
        ],
        cwd=place.project,
        env=place.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as program:
        spaces: dict[str, list[str]] = {}
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(_POLL_SECONDS):
                spaces.update(_mounts_of_sandboxes(place))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            output, _ = program.communicate(timeout=_CALL_SECONDS)
        finally:
            ended.set()
            watcher.join()
    return " ".join(output.split()), {mount for mounts in spaces.values() for mount in mounts}


def _mounts_of_sandboxes(place: Place) -> dict[str, list[str]]:
    """What is mounted in each mount namespace with our project."""
    own = os.readlink("/proc/self/ns/mnt")
    spaces: dict[str, list[str]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            space = os.readlink(process / "ns/mnt")
            if space == own or space in spaces:
                continue
            lines = (process / "mountinfo").read_text().splitlines()
        except OSError:
            continue
        mounts = [line.split()[4] for line in lines]
        if str(place.project) in mounts:
            spaces[space] = mounts
    return spaces


def _shown(seen: set[str], place: Place) -> str:
    """Without the system's, and without the parts of a folder that is shown itself."""
    folders = sorted(seen - {"/", "/tmp", *(item for item in seen if item.startswith(_SYSTEM))})
    tops = [item for item in folders if not any(item.startswith(f"{top}/") for top in folders)]
    return ", ".join(item.replace(str(place.home), "~") for item in tops) or "no mounts of its own"


def main() -> None:
    folder, *names = sys.argv[1:]
    place = Place(Path(folder).resolve())
    place.project.mkdir(parents=True, exist_ok=True)
    (place.project / "notes.txt").write_text("a note\n")
    if not (place.home / "tools").exists():
        place.run("git", "init", "--quiet")
        place.run(sys.executable, "-m", "venv", f"{place.home}/tools")
        place.run(f"{place.home}/tools/bin/python", *_PIP, "pipx", "uv")
    index = place.home / "index"
    index.mkdir(exist_ok=True)
    handler = partial(_Quiet, directory=str(index))
    failed: list[str] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        variables = {
            "UV_DEFAULT_INDEX": f"http://localhost:{served.server_address[1]}/simple",
            "npm_config_registry": place.run("npm", "config", "get", "registry").strip(),
        }
        for server in SERVERS:
            if names and server.name not in names:
                continue
            install(server, place)
            output, seen = call(server, place, variables)
            is_right = server.answer in output
            failed += [] if is_right else [server.name]
            verdict = "ok" if is_right else "FAILED"
            print(f"{server.name:<16} {server.way:<13} {verdict:<7} {output[:160]}", flush=True)
            print(f"{'':<16} sees: {_shown(seen, place)}", flush=True)
        served.shutdown()
    note(
        f"{len(failed)} of {len(SERVERS)} failed: {', '.join(failed)}" if failed else "all answered"
    )
    sys.exit(1 if failed else 0)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


if __name__ == "__main__":
    main()
