"""The files that commands of hooks run: found by the words of the command, pinned by hash, run from
a copy.

Exactly the hashed bytes run: files whose content matches its trusted hash are written to a private
folder, and the paths in the command are replaced by theirs.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct

from mainspring.core.errors import InvalidInput

MAX_FILES = 500  # files that hooks mention; each is read and hashed at each start
MAX_BYTES = 16_000_000  # of all these files together, which are read and hashed at each start

_VARIABLE = (
    r"\$(?:(?:CLAUDE|MAINSPRING)_PROJECT_DIR\b|\{(?:CLAUDE|MAINSPRING)_PROJECT_DIR(?::-[^}]*)?\})"
)
_OTHER_VARIABLE = re.compile(r"\$(?:\w+|\{\w+[^}]*\})")
_HERE = "\N{WORD JOINER}"
"""A placeholder for the project's folder, whose path may contain spaces."""
_WORD = re.compile(r"[^\s'\"`;&|<>(){}=,$!]+")
_QUOTED = re.compile(r"\"([^\"]*)\"|'([^']*)'")
_MENTIONED = re.compile(rb"[\w.-]{2,}")
_PATHS = re.compile(rb"[\w./-]+")
_IMPORT = re.compile(
    rb"(?:\bfrom[ \t]{1,20}\.{0,20}([\w.]{0,200})[ \t]{1,20})?\bimport\b[ \t]{0,20}"
)
_LINE_END = re.compile(rb"[\n;]")
_NO_NAMES = frozenset(("", ".", ".."))
_MAX_NAME = 200
"""Bytes of the name of a module."""
_MAX_PATH = 4_096  # bytes: the kernel's PATH_MAX
_MAX_BASES = 32
"""Folders above a script in which what it mentions is looked up."""
_MAX_MENTIONS = 200_000
"""Of all scripts together."""
_WHOLE_FOLDER = "hooks"
_SKIPPED = frozenset(("__pycache__", "node_modules", ".git"))
_REDIRECTION = re.compile(r">[>|&]?\s*(?:\"[^\"]*\"|'[^']*'|[^\s;&|'\"])+")
_DATA = (
    *(".txt", ".log", ".json", ".jsonl", ".md", ".csv", ".yaml", ".yml", ".toml", ".lock", ".xml"),
    *(".html", ".ini", ".cfg", ".env"),
)
_RUNNABLE = (".sh", ".bash", ".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".php")
_ENDINGS = ("", *_RUNNABLE, "/__init__.py", "/__main__.py", "/index.js", "/index.mjs", "/index.ts")
"""Endings that interpreters add to the name of a module."""


class Scripts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which files hooks may run from folders that an agent may write to."""

    roots: tuple[str, ...] = ()
    """The project first, then other folders with hooks; absolute."""
    files: dict[str, str] = {}
    """By absolute path: the SHA-256 of the content that a person trusted."""


class UntrustedScript(Exception):
    """A file that a hook runs is not trusted; the message says which, and what to do."""


@dataclass(frozen=True, slots=True)
class _ReferencedFiles:
    files: tuple[str, ...]
    """Relative to the root. They need not exist."""
    folders: tuple[str, ...]


def read_scripts(commands: Iterable[str], root: Path, *, project: Path) -> dict[str, bytes]:
    """The files in a folder that commands name, and the files that those mention, by relative path.
    For a script in a folder `hooks`, that whole folder.

    Raises:
        InvalidInput: too many to review, or one cannot be read.
    """
    names = [name for text in commands for name in _referenced_files(text, root, project).files]
    return _read([name for name in names if os.path.isfile(root / name)], root)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@contextmanager
def copied_scripts(
    words: Sequence[str], scripts: Scripts | None
) -> Generator[tuple[str, ...], None, None]:
    """The words of a command with paths of copies for the files that it runs; the copies exist
    until the end of the block.

    Raises:
        UntrustedScript: the content of one is not trusted.
    """
    rewritten = tuple(words)
    if scripts is None or not scripts.roots:
        yield rewritten
        return
    project = Path(scripts.roots[0])
    with TemporaryDirectory(prefix="mainspring-hook-") as copies:
        for index, root in enumerate(scripts.roots):
            copy = _Copy(root=Path(root), project=project, place=Path(copies, str(index)))
            rewritten = copy.redirect(rewritten, scripts.files)
        yield rewritten


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copy:
    """Copies of the files that a command runs from one folder."""

    root: Path
    project: Path
    place: Path

    def redirect(self, words: tuple[str, ...], pinned: Mapping[str, str]) -> tuple[str, ...]:
        pinned_names = {name for path in pinned for name in _paths_inside([path], self.root)}
        refs = _referenced_files("\n".join(words), self.root, self.project, pinned_names)
        if not refs.files:
            return words
        contents = self._read_trusted(refs.files, pinned)
        _write(contents, self.root, self.place)
        folders = (name for name in refs.folders if any(_is_in(file, name) for file in contents))
        names = sorted((*refs.files, *folders), key=len, reverse=True)
        rewritten = tuple(self._redirect_word(word, names) for word in words)
        unchanged = re.sub(re.escape(str(self.place)) + r"[^\s'\"]*", "", "\n".join(rewritten))
        for name in refs.files:
            if os.path.basename(name) in unchanged and not _is_in_copied_folder(
                name, "\n".join(rewritten), self.place
            ):
                raise UntrustedScript(
                    f"runs {self.root / name} in a way that cannot be redirected to a copy: write"
                    " $CLAUDE_PROJECT_DIR/ and its path"
                )
        return rewritten

    def _read_trusted(self, names: Iterable[str], pinned: Mapping[str, str]) -> dict[str, bytes]:
        paths = {name: self.root / name for name in names}
        existing = [
            name for name, path in paths.items() if f"{path}" in pinned or os.path.lexists(path)
        ]
        try:
            contents = _read(existing, self.root)
        except InvalidInput as error:
            raise UntrustedScript(f"cannot be checked: {error}") from error
        for name, content in contents.items():
            pin = pinned.get(str(self.root / name))
            if pin != digest(content):
                what = "has changed since it was trusted" if pin else "nobody has vouched for"
                raise UntrustedScript(
                    f"runs {self.root / name}, which {what}; look at it, and if it is as it should"
                    " be: `mainspring policy trust`"
                )
        return contents

    def _redirect_word(self, word: str, names: Iterable[str]) -> str:
        """A word of a command, or all of it, with paths of copies for the files that it names."""
        starts = [re.escape(str(self.root))]
        if self.root == self.project:
            starts.append(_VARIABLE)
        for name in names:
            relative = rf"(?:\./)*{re.escape(name)}(?![\w.-])"
            target = f"{self.place}/{name}"
            for start in starts:
                word = re.sub(rf"{start}([\"']?)/+{relative}", _after_quote(target), word)
            if self.root == self.project:
                word = re.sub(rf"(?<![\w./$}}-]){relative}", _after_quote(target), word)
        return word


def _after_quote(target: str) -> Callable[[re.Match[str]], str]:
    """The path of a copy, after the closing quote that the match contained, if any."""
    return lambda match: f"{match[1] if match.re.groups else ''}{target}"


def _is_in_copied_folder(name: str, text: str, place: Path) -> bool:
    """Whether a command enters the copy of the file's folder first."""
    return any(f"{place}/{parent}" in text for parent in Path(name).parents if parent != Path())


def _read(names: Iterable[str], root: Path) -> dict[str, bytes]:
    """The content of files, and of the files that they need."""
    contents: dict[str, bytes] = {}
    pending = [*names]
    dependencies = _Dependencies(root)
    size = 0
    for name in pending:  # grows during the loop
        if name in contents:
            continue
        try:
            contents[name] = content = _content(root / name)
        except OSError as error:
            raise InvalidInput(f"{root / name}: {error.strerror}") from error
        size += len(content)
        if len(contents) > MAX_FILES or size > MAX_BYTES:
            raise InvalidInput(
                f"{root / name}: hooks run over {MAX_FILES} files or {MAX_BYTES:,} bytes with it"
            )
        pending += dependencies.of(name, content)
    return contents


def _referenced_files(
    text: str, root: Path, project: Path, pinned: Collection[str] = ()
) -> _ReferencedFiles:
    """Files and folders of `root` that a command names, except output redirections and plain
    data."""
    marked = re.sub(_VARIABLE, _HERE, text).replace(str(project), _HERE)
    marked = _OTHER_VARIABLE.sub(" ", _REDIRECTION.sub(" ", marked))
    quoted = (double or other for double, other in _QUOTED.findall(marked))
    joined = _WORD.findall(re.sub(f"{_HERE}[\"']", _HERE, marked))
    every = dict.fromkeys((*_WORD.findall(marked), *joined, *quoted))
    words = [word for word in every if word and not word.startswith("~")]
    folders = [path for word in words if os.path.isdir(path := _path(word, project))]
    bases = (project, *map(Path, folders))
    paths = (_path(w if base == project else w.lstrip("/"), base) for base in bases for w in words)
    run = (path for word in words for path in _main_scripts(word, marked, project))
    own = dict.fromkeys(_paths_inside(filter(_is_run, (*paths, *run)), root))
    own |= dict.fromkeys(name for name in pinned if os.path.basename(name) in text)
    base_names = {os.path.basename(name) for name in own}
    own |= dict.fromkeys(
        name
        for name in _paths_inside(
            (_path(word, project) for word in words if _looks_like_script(word)), root
        )
        if os.path.basename(name) not in base_names
    )
    return _ReferencedFiles(tuple(own), tuple(_paths_inside(folders, root)))


def _main_scripts(word: str, text: str, project: Path) -> Iterator[str]:
    """The script that runs if an interpreter is given a folder."""
    if re.search(rf"\b(?:python[\d.]*|node|bun)(?:\s+-\S+)*\s+[\"']?{re.escape(word)}", text):
        for name in ("__main__.py", "index.js"):
            yield f"{_path(word, project)}/{name}"


def _looks_like_script(word: str) -> bool:
    """Whether this is the path of a script, even if none exists yet."""
    return "/" in word and " " not in word and word.endswith(_RUNNABLE)


def _is_run(path: str) -> bool:
    is_data = path.endswith(_DATA) and not os.access(path, os.X_OK)
    return os.path.isfile(path) and not is_data


def _path(word: str, base: Path) -> str:
    whole = f"{base}{word.removeprefix(_HERE)}" if word.startswith(_HERE) else base / word
    return os.path.normpath(whole)


def _paths_inside(paths: Iterable[str], root: Path) -> Iterator[str]:
    start = f"{root}/"
    return (path.removeprefix(start) for path in paths if path.startswith(start))


class _Dependencies:
    """Finds the files that scripts need: the folder `hooks` that one is in, and files that it
    mentions. Folders are listed once; a mention costs no system call unless there is such a file.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._whole: set[Path] = set()
        """Folders that were found as a whole."""
        self._entries: dict[str, tuple[frozenset[str], frozenset[str]]] = {}
        """By folder: the names in it, also without what follows a dot."""
        self._runnable: dict[str, list[tuple[str, frozenset[bytes]]]] = {}
        self._runs: dict[str, bool] = {}
        self._mentions = 0

    def of(self, name: str, content: bytes) -> Iterator[str]:
        """Raises: InvalidInput: it mentions too much to be looked up."""
        above = Path(name).parent.parts
        if _WHOLE_FOLDER in above:
            top = Path(*above[: above.index(_WHOLE_FOLDER) + 1])
            if top not in self._whole:
                self._whole.add(top)
                yield from (path.as_posix() for path in _walk(self._root, top))
        if self._is_run(name):
            yield from self._mentioned_files(name, content)

    def _is_run(self, path: str) -> bool:
        if path not in self._runs:
            self._runs[path] = _is_run(f"{self._root}/{path}")
        return self._runs[path]

    def _mentioned_files(self, name: str, content: bytes) -> Iterator[str]:
        words = set(_MENTIONED.findall(content))
        words |= {word.rpartition(b".")[0] for word in words}
        for path, own_names in self._runnable_files(os.path.dirname(name)):
            if not own_names.isdisjoint(words):
                yield path
        bases = [str(folder) for folder in Path(name).parents][:_MAX_BASES]
        for mention in self._paths_mentioned(name, content):
            parts = os.fsdecode(mention).strip("/").split("/")
            for base in bases:
                yield from self._files_at(base, parts)

    def _paths_mentioned(self, name: str, content: bytes) -> set[bytes]:
        paths = {word for word in _PATHS.findall(content) if b"/" in word and len(word) < _MAX_PATH}
        for package, module in _imported_modules(content):
            paths.update(_module_paths(package, module))
            if len(paths) + self._mentions > _MAX_MENTIONS:
                break
        self._mentions += len(paths)
        if self._mentions > _MAX_MENTIONS:
            raise InvalidInput(
                f"{self._root / name}: with it, hooks mention over {_MAX_MENTIONS:,} paths and"
                " modules"
            )
        return paths

    def _files_at(self, base: str, parts: Sequence[str]) -> Iterator[str]:
        """The files that a path names, with any ending."""
        folder, names = base, parts
        if not _NO_NAMES.isdisjoint(parts):
            folder, names = ".", os.path.normpath("/".join((base, *parts))).split("/")
        for name in names[:-1]:
            if name not in self._names(folder)[0]:
                return
            folder = f"{folder}/{name}"
        if names[-1].partition(".")[0] not in self._names(folder)[1]:
            return
        start = os.path.normpath(f"{folder}/{names[-1]}")
        for path in (f"{start}{ending}" for ending in _ENDINGS):
            if self._is_run(path):
                yield path

    def _names(self, folder: str) -> tuple[frozenset[str], frozenset[str]]:
        if folder not in self._entries:
            try:
                names = os.listdir(f"{self._root}/{folder}")
            except OSError:
                names = []
            stems = frozenset(name.partition(".")[0] for name in names)
            self._entries[folder] = frozenset(names), stems
        return self._entries[folder]

    def _runnable_files(self, folder: str) -> list[tuple[str, frozenset[bytes]]]:
        """The files in a folder that may run, with the names by which others mention them."""
        if folder not in self._runnable:
            self._runnable[folder] = [
                (path.as_posix(), frozenset((os.fsencode(path.name), os.fsencode(path.stem))))
                for path in _walk(self._root, Path(folder), is_deep=False)
                if self._is_run(path.as_posix())
            ]
        return self._runnable[folder]


def _imported_modules(content: bytes) -> set[tuple[bytes, bytes]]:
    """The packages and modules of the import statements of a script, as they are written."""
    end, last_closing = 0, content.rfind(b")")
    modules: set[tuple[bytes, bytes]] = set()
    for match in _IMPORT.finditer(content):
        if match.start() < end:
            continue  # in the list of an earlier one
        package, stop = match[1] or b"", match.end()
        is_list = content[stop : stop + 1] == b"(" and stop < last_closing
        closing = content.find(b")", stop) if is_list else -1
        line_end = _LINE_END.search(content, stop)
        end = max(closing, line_end.start() if line_end else len(content))
        names = re.findall(rb"[\w.]+", content[stop:end])
        modules.update((package, name) for name in (package, *names) if len(name) <= _MAX_NAME)
    return modules


def _module_paths(package: bytes, module: bytes) -> Iterator[bytes]:
    """The paths of a module, alone and in its package, and of the packages that contain it."""
    start, parts = package.replace(b".", b"/"), module.split(b".")
    for length in range(1, len(parts) + 1):
        yield b"/".join(parts[:length])
        yield b"/".join((start, *parts[:length]))


def _walk(root: Path, folder: Path, *, is_deep: bool = True) -> Iterator[Path]:
    for at, folders, files in os.walk(root / folder):
        folders[:] = sorted(item for item in folders if is_deep and item not in _SKIPPED)
        for file in sorted(files):
            yield Path(at, file).relative_to(root)


def _content(path: Path) -> bytes:
    """Read a file without blocking on a pipe or a device in its place."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(MAX_BYTES + 1)


def _write(contents: Mapping[str, bytes], root: Path, copy: Path) -> None:
    """Write the files as they were read, with links to the other entries of their folders; next to
    a copied file only to data."""
    folders = {parent for name in contents for parent in Path(name).parents}
    for folder in sorted(folders):
        (copy / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, content in contents.items():
        (copy / name).write_bytes(content)
        (copy / name).chmod(0o700 if os.access(root / name, os.X_OK) else 0o600)
    copied_folders = {Path(name).parent for name in contents}
    for folder in folders:
        for entry in os.scandir(root / folder):
            link = copy / folder / entry.name
            is_fit = folder not in copied_folders or (entry.is_file() and not _is_run(entry.path))
            if is_fit and not os.path.lexists(link):
                link.symlink_to(entry.path)


def _is_in(name: str, folder: str) -> bool:
    return name.startswith(f"{folder}/")
