"""An index of the paths in a workspace, for `@` completion. It is filled in the background, and
finds names by their beginning without a scan of all paths."""

from __future__ import annotations

import os
import subprocess
import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

from mainspring.capabilities.tools.file_search import find_ripgreps

MAX_PATHS = 1_000_000  # paths in memory; larger trees are completed by typing the folder first
_KEY_CHARS = 2  # of a name that find its candidates
_CHUNK_BYTES = 1 << 16  # of git's output read at once
_CHUNK_PATHS = 10_000  # joined into one text to search


class FileIndex:
    """Add paths in any order. A search sees those added so far, and is fastest after `finish`. One
    thread may add while another searches."""

    def __init__(self) -> None:
        self._count = 0
        self._by_name: dict[str, list[tuple[str, str]]] = {}
        """Names in lower case with their paths, by the first characters of the name."""
        self._in_folder: dict[str, list[str]] = {}
        """The paths directly in a folder; those of folders end with `/`."""
        self._loose: list[str] = []
        self._chunks: list[tuple[str, str]] = []
        """Many paths joined to one text, in lower case and unchanged, to search them at once."""
        self._is_sorted = False

    def __len__(self) -> int:
        return self._count

    def add(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._add_folders(path.rpartition("/")[0])
            self._put(path)

    def finish(self) -> None:
        """Sort the lists, so that a search can bisect them."""
        self._join_loose()
        for names in self._by_name.values():
            names.sort()
        self._is_sorted = True

    def _add_folders(self, folder: str) -> None:
        while folder and folder not in self._in_folder:
            self._in_folder[folder] = []
            self._put(f"{folder}/")
            folder = folder.rpartition("/")[0]

    def _put(self, path: str) -> None:
        self._count += 1
        name = _name(path)
        self._by_name.setdefault(name[:_KEY_CHARS].lower(), []).append((name.lower(), path))
        self._in_folder.setdefault(path.rstrip("/").rpartition("/")[0], []).append(path)
        self._loose.append(path)
        if len(self._loose) >= _CHUNK_PATHS:
            self._join_loose()

    def _join_loose(self) -> None:
        text = "\n".join(["", *self._loose, ""])
        lower = text.lower()
        self._chunks.append((lower if len(lower) == len(text) else text, text))
        self._loose = []

    def search(self, typed: str) -> Iterator[str]:
        """The paths for the text after `@`: first those whose name begins with it, then those that
        contain it. Lazy: each path is searched when the caller asks for it."""
        query, yielded = typed.lower(), set[str]()
        folder, slash, name = query.rpartition("/")
        first = self._in_named_folder(typed, folder, name) if slash else self._named(name)
        for path in chain(first, self._containing(query)):
            if path not in yielded:
                yielded.add(path)
                yield path

    def _named(self, name: str) -> Iterator[str]:
        if not name:
            yield from self._in_folder.get("", [])
        for key in self._keys(name):
            names = self._by_name[key]
            begin = bisect_left(names, (name,)) if self._is_sorted else 0
            for candidate, path in islice(names, begin, len(names)):
                if candidate.startswith(name):
                    yield path
                elif self._is_sorted:
                    break

    def _in_named_folder(self, typed: str, folder: str, name: str) -> Iterator[str]:
        """Paths in the folder that was typed, or in folders whose path ends with it."""
        exact = typed.rpartition("/")[0]
        folders = [exact] if exact in self._in_folder else []
        last = folder.rpartition("/")[2]
        ending = f"/{folder}/"
        matching_folders = (
            path.rstrip("/")
            for path in self._named(last)
            if path.endswith("/") and f"/{path.lower()}".endswith(ending)
        )
        for parent in chain(folders, matching_folders):
            for path in self._in_folder.get(parent, []):
                if _name(path).lower().startswith(name):
                    yield path

    def _keys(self, name: str) -> list[str]:
        key = name[:_KEY_CHARS]
        if len(key) == _KEY_CHARS:
            return [key] if key in self._by_name else []
        return sorted(name_key for name_key in [*self._by_name] if name_key.startswith(key))

    def _containing(self, query: str) -> Iterator[str]:
        for lower, text in [*self._chunks]:
            at = lower.find(query)
            while at >= 0:
                begin, end = text.rfind("\n", 0, at + 1) + 1, text.find("\n", at)
                if end > begin:
                    yield text[begin:end]
                at = lower.find(query, max(end, at + 1))
        yield from (path for path in [*self._loose] if query in path.lower())


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def index_in_background(folder: Path) -> FileIndex:
    """An index that a thread fills with all files that git does not ignore."""
    index = FileIndex()
    threading.Thread(target=_list_files, args=(folder, index), daemon=True).start()
    return index


def _list_files(folder: Path, index: FileIndex) -> None:
    ripgrep = next(iter(find_ripgreps()), None)
    if ripgrep is None or Path(ripgrep).resolve().is_relative_to(folder.resolve()):
        return  # completion must not run a program of the workspace
    command = [ripgrep, "--files", "--null", "--no-config", "--hidden", "--glob", "!.git"]
    try:
        with subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            assert process.stdout is not None
            handle, partial = process.stdout.fileno(), b""
            while (chunk := os.read(handle, _CHUNK_BYTES)) and len(index) < MAX_PATHS:
                *complete, partial = (partial + chunk).split(b"\0")
                index.add(path.decode("utf-8", "replace") for path in complete)
            process.kill()
        index.finish()
    except OSError:
        return  # without an index there is no completion
