"""Finds what the program of an MCP server needs to see outside of the workspace: the root of its
package, and its interpreter. Links of the workspace are never followed, since programs of the
session can make them.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from msgspec import Struct

from mainspring.core.errors import McpFailed
from mainspring.files.openat import real_path

_SANDBOX_PATH = "/usr/local/bin:/usr/bin:/bin"
_INTERPRETERS = re.compile(
    r"(node|nodejs|bun|deno|tsx|python(\d+(\.\d+)?)?|pypy3?|ruby|perl|php|bash|sh)$"
)
_MARKERS = (
    *("package.json", "pyproject.toml", "setup.py", "requirements.txt", "deno.json"),
    *("Gemfile", "composer.json"),
)
_LIBRARIES = ("lib/node_modules", "lib/ruby", "lib/python3*", "lib/pypy3*")
"""What the folder of an interpreter has beside `bin`."""
_SYSTEM_STATE = ("/etc", "/proc", "/sys", "/dev", "/run", "/boot")
_MAX_LINKS = 40  # links followed for one path: the kernel's own limit (path_resolution(7))
_MAX_FIRST_LINE = 512
"""Bytes of a script that are read for its interpreter; the kernel reads 256."""


class ProgramPlaces(Struct, frozen=True, kw_only=True):
    home: Path
    workspace: Path
    system_folders: tuple[Path, ...]
    """Those that every sandbox shows."""
    path: str | None
    """The user's own `PATH`."""


class VisibleProgram(Struct, frozen=True, kw_only=True):
    argv: tuple[str, ...]
    folders: tuple[Path, ...] = ()
    """Folders and files outside of the workspace that it needs to see."""
    path: tuple[str, ...] = ()
    """Folders for its `PATH`."""


def visible_program(
    command: str, args: tuple[str, ...], places: ProgramPlaces
) -> VisibleProgram | None:
    """The program with what it needs to see; `None`: nothing but what every sandbox shows.

    Raises: McpFailed: it cannot be shown; the message says what to do.
    """
    search = _Search(places)
    if (program := search.locate(command)) is None:
        return None
    entry = search.reveal(program)
    script = next((arg for arg in args if not arg.startswith("-")), "")
    if script.startswith("/") and _INTERPRETERS.match(Path(command).name):
        search.reveal(Path(script), is_script=True)
    if not search.folders:
        return None
    return VisibleProgram(
        argv=(command if entry is None else str(entry), *args),
        folders=search.without_nested(),
        path=tuple(dict.fromkeys(search.path)),
    )


class _Search:
    def __init__(self, places: ProgramPlaces) -> None:
        self._places = places
        self._workspace = Path(os.path.realpath(places.workspace))
        self._home = Path(os.path.realpath(places.home))
        self.folders: list[Path] = []
        self.path: list[str] = []

    def locate(self, command: str) -> Path | None:
        """The path of a command outside of the workspace."""
        if "/" in command:
            return Path(command) if command.startswith("/") else None
        name = shutil.which(command, path=_SANDBOX_PATH)
        name = name or shutil.which(command, path=self._places.path)
        if name is None or not name.startswith("/"):
            return None
        return self._behind_shim(Path(name))

    def _behind_shim(self, program: Path) -> Path:
        """The program that a version manager would start. Its shims are scripts that need all of
        it."""
        if program.parent.name != "shims":
            return program
        manager = program.parent.parent
        try:
            versions = (manager / "version").read_text().split()
        except OSError:
            versions = []
        for version in versions:
            if (actual := manager / "versions" / version / "bin" / program.name).exists():
                return actual
        raise McpFailed(
            f"{program} is a shim, and the program behind it was not found: give the path of the"
            f" program itself (`pyenv which {program.name}`, `mise which`, `asdf which`)"
        )

    def reveal(self, program: Path, *, is_script: bool = False) -> Path | None:
        """Add what a program needs. The path to start it by; `None`: it is shown as it is."""
        entry = self._entry(program)
        if entry is None or self._is_shown(entry):
            return None if self._is_shown(program) else entry
        root = entry.parent.parent
        if (root / "pyvenv.cfg").is_file():
            self._add(root, entry)
            self._reveal_interpreter(Path(os.path.realpath(entry.parent / "python")))
        elif _INTERPRETERS.match(entry.name) and not is_script:
            self._reveal_interpreter(entry)
        else:
            self._add(self._package_root(entry, is_script=is_script), entry)
            self._reveal_first_line(entry)
        return entry

    def _entry(self, program: Path) -> Path | None:
        """The program without links, but not the link to its interpreter in a virtual environment.
        `None`: there is none, or a link of the workspace is in the way."""
        for _ in range(_MAX_LINKS):
            try:
                folder = Path(real_path(str(program.parent), distrusted=[str(self._workspace)]))
                program = folder / program.name
                if program.is_relative_to(self._workspace) or not program.exists():
                    return None
                if (folder.parent / "pyvenv.cfg").is_file() or not program.is_symlink():
                    return program
                program = folder / os.readlink(program)
            except OSError:
                return None
        return None

    def _is_shown(self, path: Path) -> bool:
        return any(path.is_relative_to(folder) for folder in self._places.system_folders)

    def _reveal_interpreter(self, program: Path) -> None:
        if not self._is_shown(program) and program.exists():
            home = program.parent.parent
            has_library = any(any(home.glob(pattern)) for pattern in _LIBRARIES)
            self._add(home if has_library else program, program)
            self.path.append(str(program.parent))

    def _reveal_first_line(self, script: Path) -> None:
        try:
            with script.open("rb") as file:
                first = file.read(_MAX_FIRST_LINE).partition(b"\n")[0]
        except OSError:
            return
        if not first.startswith(b"#!"):
            return
        words = first[2:].decode("utf-8", "replace").split()
        if words and Path(words[0]).name == "env":
            names = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
            interpreter = self.locate(names[0]) if names else None
        else:
            interpreter = Path(words[0]) if words and words[0].startswith("/") else None
        if interpreter is not None and interpreter.exists() and interpreter != script:
            entry = self.reveal(interpreter)
            self.path += [] if entry is None or self._is_shown(entry) else [str(entry.parent)]

    def _package_root(self, program: Path, *, is_script: bool) -> Path:
        """The nearest folder that a package manager would call a project; else the folder of a
        script; else the program alone."""
        modules = [folder for folder in program.parents if folder.name == "node_modules"]
        if modules:
            above = modules[-1].parent
            has_manifest = (above / "package.json").is_file() and self._may_show(above)
            return above if has_manifest else modules[-1]
        for folder in filter(self._may_show, program.parents):
            if any((folder / name).is_file() for name in _MARKERS):
                return folder
        return program.parent if is_script and self._may_show(program.parent) else program

    def _add(self, root: Path, program: Path) -> None:
        if root != program and not self._may_show(root):
            raise McpFailed(
                f"{program} is outside of the workspace, and {root} is too wide to be shown to it:"
                " install it in a folder of its own, or name what it needs under"
                " `sandbox.readOnly`"
            )
        self.folders.append(root)

    def _may_show(self, folder: Path) -> bool:
        """Whether a folder is narrow enough: never a home folder or what is above one, settings of
        programs, or another agent's folder."""
        is_above = any(
            place.is_relative_to(folder) for place in (self._home, self._workspace, Path("/root"))
        )
        is_hidden = folder.parent == self._home and folder.name.startswith(".")
        is_state = any(folder.is_relative_to(place) for place in _SYSTEM_STATE)
        is_agent = (folder / ".mainspring").exists()
        return not (is_above or is_hidden or is_state or is_agent or len(folder.parts) < 3)

    def without_nested(self) -> tuple[Path, ...]:
        every = dict.fromkeys(self.folders)
        return tuple(
            folder for folder in every if not any(other in folder.parents for other in every)
        )
