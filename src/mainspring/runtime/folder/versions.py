"""Versions of an agent's folder: what it was whenever a session began, to compare and go back to.

They are kept in the folder itself: contents and listings of them by their hash, and an index that
is written last. Whoever is killed meanwhile leaves the versions as they were.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from difflib import unified_diff
from pathlib import Path

import msgspec
from msgspec import Struct

from mainspring.core.clock import Clock, to_micros
from mainspring.core.errors import InvalidInput
from mainspring.runtime.folder.contents import (
    MAX_BYTES,
    UNFINISHED,
    content_hash,
    encode_listing,
    file_hash,
    files_of,
    is_part,
    leads_through_link,
    listing_hash,
)
from mainspring.runtime.folder.whole_file import read_bounded, write_whole

FOLDER = ".mainspring/versions"
_MOST = 1000
"""Versions in the index; older ones are forgotten."""
_FRESH = 2_000_000_000
"""Nanoseconds: a file as new as that may be written again without looking any different."""
_LONGEST_DIFF = 200_000
_HEX = frozenset("0123456789abcdef")

Listing = dict[str, str]
"""Paths, and the hashes of what is there."""


class Version(Struct, frozen=True, kw_only=True):
    number: int
    """0: it is not kept, because there is nothing to keep or no place to keep it."""
    hash: str
    time: datetime

    @property
    def label(self) -> str:
        """Short, and enough to tell one from another."""
        return f"{self.number}-{self.hash[:12]}" if self.number else self.hash[:12]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDiff:
    path: str
    text: str
    """As `diff -u` has it."""


class _Index(Struct, frozen=True):
    versions: tuple[Version, ...] = ()


class _Seen(Struct, frozen=True, array_like=True):
    """How a file stood when its content had a hash."""

    modified: int
    changed: int
    size: int
    hash: str


def versions(folder: Path) -> tuple[Version, ...]:
    """The oldest first.

    Raises:
        InvalidInput: the index is damaged.
    """
    file = _store(folder) / "index.json"
    content = read_bounded(file)
    try:
        return () if content is None else msgspec.json.decode(content, type=_Index).versions
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"{file}: {error}; remove {FOLDER} to begin anew") from error


def record(folder: Path, clock: Clock) -> Version:
    """The version that the folder is now: a new one if it is not as it was.

    Raises:
        InvalidInput: a file cannot be read, or the versions are damaged.
    """
    now = clock()
    if leads_through_link(folder, FOLDER):  # nothing is written where it may lead
        return Version(number=0, hash=content_hash(folder), time=now)
    listing = _listed(folder, now)
    unkept = Version(number=0, hash=listing_hash(listing), time=now)
    if not listing:
        return unkept
    known = versions(folder)
    if known and known[-1].hash == unkept.hash:
        return known[-1]
    try:
        with _locked(folder):
            return _recorded(folder, now)
    except OSError:  # an agent may well stand where nobody can write
        return unkept


def diff(folder: Path, before: int | None, after: int | None = None) -> list[FileDiff]:
    """What is different from one version to another; `None`: the folder as it is.

    Raises:
        InvalidInput: there is no such version, or it is damaged.
    """
    old, new = _Side.of(folder, before), _Side.of(folder, after)
    paths = sorted(old.listing.keys() | new.listing.keys())
    return [
        FileDiff(path=path, text=_diff(path, old, new))
        for path in paths
        if old.listing.get(path) != new.listing.get(path)
    ]


def rollback(folder: Path, number: int, clock: Clock) -> Version:
    """Make the folder what it was. What it is now is kept as a version first; files that were not
    there then are removed.

    Raises:
        InvalidInput: there is no such version, it is damaged, or a link is in the way.
    """
    wanted = _Side.of(folder, number)
    wanted.check()
    try:
        with _locked(folder):
            _recorded(folder, clock())
            now = _listed(folder, clock())
            for path in now.keys() - wanted.listing.keys():
                _remove(folder, path)
            for path, name in wanted.listing.items():
                if now.get(path) != name:
                    _write(folder / path, wanted.content(path))
            return _recorded(folder, clock())
    except OSError as error:
        raise InvalidInput(f"{error.filename or folder}: {error.strerror or error}") from error


def _recorded(folder: Path, now: datetime) -> Version:
    """With the lock: contents first, then the listing of them, the index last."""
    listing: Listing = {}
    for path, name in _listed(folder, now).items():
        kept = _object(folder, name)
        listing[path] = name if kept.exists() else _keep(folder, (folder / path).read_bytes())
    known = versions(folder)
    if known and known[-1].hash == listing_hash(listing):
        return known[-1]
    number = known[-1].number + 1 if known else 1
    version = Version(number=number, hash=_keep(folder, encode_listing(listing)), time=now)
    index = _Index((*known, version)[-_MOST:])
    write_whole(_store(folder) / "index.json", msgspec.json.encode(index))
    return version


def _listed(folder: Path, now: datetime) -> Listing:
    """What there is now. Files that look as they did are not read again."""
    cache = _store(folder) / "seen.json"
    seen = _read_seen(cache)
    found: dict[str, _Seen] = {}
    for path, stat in files_of(folder).items():
        known = seen.get(path)
        stands = (stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size)
        if known is not None and (known.modified, known.changed, known.size) == stands:
            found[path] = known
        else:
            found[path] = _Seen(*stands, file_hash(folder / path))
    # what a file with this time has now may not be what it has in a moment
    oldest_fresh = to_micros(now) * 1000 - _FRESH
    lasting = {path: each for path, each in found.items() if each.changed < oldest_fresh}
    if lasting != seen and cache.parent.is_dir():
        with suppress(InvalidInput):  # it only saves time
            write_whole(cache, msgspec.json.encode(lasting))
    return {path: each.hash for path, each in found.items()}


def _read_seen(cache: Path) -> dict[str, _Seen]:
    with suppress(InvalidInput, msgspec.MsgspecError):
        content = read_bounded(cache)
        return {} if content is None else msgspec.json.decode(content, type=dict[str, _Seen])
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """One of two states that are compared: a version, or the folder as it is."""

    name: str
    folder: Path
    listing: Mapping[str, str]
    is_kept: bool

    @classmethod
    def of(cls, folder: Path, number: int | None) -> _Side:
        if number is None:
            listing = {path: file_hash(folder / path) for path in files_of(folder)}
            return cls(name="now", folder=folder, listing=listing, is_kept=False)
        known = {version.number: version for version in versions(folder)}
        if number not in known:
            have = f"{min(known)} to {max(known)}" if known else "none yet"
            raise InvalidInput(f"there is no version {number}; there are {have}")
        content = _content(folder, known[number].hash)
        try:
            listing = msgspec.json.decode(content, type=Listing)
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise InvalidInput(f"{FOLDER} is damaged: version {number}: {error}") from error
        return cls(name=f"version {number}", folder=folder, listing=listing, is_kept=True)

    def content(self, path: str) -> bytes:
        name = self.listing.get(path)
        if name is None:
            return b""
        return _content(self.folder, name) if self.is_kept else (self.folder / path).read_bytes()

    def check(self) -> None:
        """Before anything is written: all of it is there, and leads nowhere else."""
        for path, name in self.listing.items():
            if not is_part(path):
                raise InvalidInput(f"{self.name} has {path}, which is no file of an agent")
            if leads_through_link(self.folder, path):
                raise InvalidInput(f"{path}: a link is in the way")
            _content(self.folder, name)


def _diff(path: str, old: _Side, new: _Side) -> str:
    before, after = old.content(path), new.content(path)
    names = (
        "/dev/null" if path not in old.listing else f"{path} ({old.name})",
        "/dev/null" if path not in new.listing else f"{path} ({new.name})",
    )
    if len(before) + len(after) > _LONGEST_DIFF or b"\0" in before + after:
        return f"--- {names[0]}\n+++ {names[1]}\n{len(before)} bytes -> {len(after)} bytes\n"
    return "".join(_lines(_texts(before), _texts(after), names))


def _texts(content: bytes) -> list[str]:
    return content.decode(errors="replace").splitlines(keepends=True)


def _lines(before: list[str], after: list[str], names: tuple[str, str]) -> Iterator[str]:
    for line in unified_diff(before, after, *names):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _store(folder: Path) -> Path:
    if leads_through_link(folder, FOLDER):
        raise InvalidInput(f"{folder / FOLDER}: a link is in the way")
    return folder / FOLDER


def _object(folder: Path, name: str) -> Path:
    if len(name) != 64 or not _HEX.issuperset(name):
        raise InvalidInput(f"{FOLDER} is damaged: {name!r} is no hash")
    place = f"{FOLDER}/objects/{name[:2]}/{name[2:]}"
    if leads_through_link(folder, place):
        raise InvalidInput(f"{folder / place}: a link is in the way")
    return folder / place


def _content(folder: Path, name: str) -> bytes:
    content = read_bounded(_object(folder, name), max_bytes=MAX_BYTES)
    if content is None:
        raise InvalidInput(f"{FOLDER} has lost {name}")
    if hashlib.sha256(content).hexdigest() != name:
        raise InvalidInput(f"{FOLDER} is damaged: {name} is not what it was")
    return content


def _keep(folder: Path, content: bytes) -> str:
    name = hashlib.sha256(content).hexdigest()
    file = _object(folder, name)
    if not file.exists():
        _write(file, content)
    return name


def _write(file: Path, content: bytes) -> None:
    """The old content or the new one, whatever happens meanwhile."""
    file.parent.mkdir(parents=True, exist_ok=True)
    is_program = content.startswith(b"#!")
    mode = file.stat().st_mode & 0o777 if file.exists() else 0o755 if is_program else 0o644
    descriptor, new = tempfile.mkstemp(dir=file.parent, prefix=UNFINISHED)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(content)
        os.chmod(new, mode)
        os.replace(new, file)
    except BaseException:
        with suppress(OSError):
            os.unlink(new)
        raise


def _remove(folder: Path, path: str) -> None:
    file = folder / path
    file.unlink(missing_ok=True)
    for parent in file.parents:  # folders that are left with nothing in them
        if parent == folder or any(parent.iterdir()):
            return
        parent.rmdir()


@contextmanager
def _locked(folder: Path) -> Generator[None, None, None]:
    """One at a time; the lock goes with the process that has it."""
    store = _store(folder)
    store.mkdir(parents=True, exist_ok=True)
    file = store / "lock"
    if file.is_symlink():  # opening it would make a file wherever it leads
        raise InvalidInput(f"{file}: a link is in the way")
    if file.exists() and not file.is_file():  # a pipe would hold us forever
        raise InvalidInput(f"{file}: not a file")
    with file.open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
