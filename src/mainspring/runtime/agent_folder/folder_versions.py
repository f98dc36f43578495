"""Versions of an agent's folder, one for each state in which a session began: to compare and to
restore.

They are stored in the folder itself: contents and listings under their hashes, and an index that is
written last. If the process is killed, the existing versions stay intact."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from mainspring.core.clock import Clock, to_micros
from mainspring.core.errors import InvalidInput
from mainspring.files.beneath import (
    blocked_path_error,
    ensure_folder,
    open_folder,
    read_file,
    remove_file,
    write_file,
)
from mainspring.runtime.agent_folder.agent_files import (
    content_hash,
    encode_listing,
    files_of,
    is_part,
    listing_hash,
    passes_through_link,
)
from mainspring.runtime.versions import NO_VERSION, Version, render_diff

FOLDER = ".mainspring/versions"
_INDEX_FILE = f"{FOLDER}/index.json"
_STAMPS_FILE = f"{FOLDER}/seen.json"
_MAX_VERSIONS = 1000
"""The most versions in the index; older ones are dropped."""
_FRESH_NANOSECONDS = 2_000_000_000
"""A file newer than this may be written again without a change of its modification time."""
_HEX = frozenset("0123456789abcdef")

Listing = dict[str, str]
"""Hashes by path."""


class FileDiff(Struct, frozen=True, kw_only=True):
    path: str
    text: str
    """In the format of `diff -u`."""


class _Index(Struct, frozen=True):
    versions: tuple[Version, ...] = ()


class _FileStamp(Struct, frozen=True, array_like=True):
    """The status of a file when it was hashed."""

    modified: int
    changed: int
    size: int
    hash: str


def list_versions(folder: Path) -> tuple[Version, ...]:
    """The oldest first.

    Raises:
        InvalidInput: the index is damaged.
    """
    with open_folder(folder) as root:
        return _versions(root)


def _versions(root: int) -> tuple[Version, ...]:
    content = read_file(root, _INDEX_FILE)
    try:
        return () if content is None else msgspec.json.decode(content, type=_Index).versions
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidInput(f"{_INDEX_FILE}: {error}; remove {FOLDER} to start over") from error


def record_version(folder: Path, clock: Clock) -> Version:
    """The version of the current folder: a new one if anything has changed.

    Raises:
        InvalidInput: a file cannot be read, or the versions are damaged.
    """
    now = clock()
    if passes_through_link(folder, FOLDER):  # nothing is written through a link
        return Version(number=0, hash=content_hash(folder), time=now)
    with open_folder(folder) as root:
        listing = _current_listing(root, folder, now)
        unrecorded = Version(number=0, hash=listing_hash(listing), time=now)
        if not listing:
            return unrecorded
        versions = _versions(root)
        if versions and versions[-1].hash == unrecorded.hash:
            return versions[-1]
        try:
            with _locked(root):
                return _record(root, folder, now)
        except OSError:  # the folder of an agent may be read-only
            return unrecorded


def diff_versions(folder: Path, before: int | None, after: int | None = None) -> list[FileDiff]:
    """The differences between two versions; `None`: the current folder.

    Raises:
        InvalidInput: there is no such version, or it is damaged.
    """
    with open_folder(folder) as root:
        old, new = _DiffSide.of(root, folder, before), _DiffSide.of(root, folder, after)
        paths = sorted(old.listing.keys() | new.listing.keys())
        return [
            FileDiff(path=path, text=_diff(path, old, new))
            for path in paths
            if old.listing.get(path) != new.listing.get(path)
        ]


def rollback(folder: Path, number: int, clock: Clock) -> Version:
    """Restore a version. The current state is recorded as a version first; files that did not exist
    then are removed.

    Raises:
        InvalidInput: there is no such version, it is damaged, or a link is in the way.
    """
    try:
        with open_folder(folder) as root:
            target = _DiffSide.of(root, folder, number)
            target.check(folder)
            with _locked(root):
                _record(root, folder, clock())
                current = _current_listing(root, folder, clock())
                for path in current.keys() - target.listing.keys():
                    remove_file(root, path)
                for path, name in target.listing.items():
                    if current.get(path) != name:
                        write_file(root, path, target.content(path))
                return _record(root, folder, clock())
    except OSError as error:
        raise InvalidInput(f"{error.filename or folder}: {error.strerror or error}") from error


def _record(root: int, folder: Path, now: datetime) -> Version:
    """Write the contents first, then the listing, and the index last. The caller holds the lock."""
    listing: Listing = {}
    for path, name in _current_listing(root, folder, now).items():
        is_stored = read_file(root, _object_path(name)) is not None
        listing[path] = name if is_stored else _store_content(root, read_file(root, path) or b"")
    versions = _versions(root)
    if versions and versions[-1].hash == listing_hash(listing):
        return versions[-1]
    last = versions[-1] if versions else NO_VERSION
    version = last.next(_store_content(root, encode_listing(listing)), now)
    write_file(
        root, _INDEX_FILE, msgspec.json.encode(_Index((*versions, version)[-_MAX_VERSIONS:]))
    )
    return version


def _current_listing(root: int, folder: Path, now: datetime) -> Listing:
    """The current files. Files whose status is unchanged are not read again."""
    cached = _read_stamps(root)
    stamps: dict[str, _FileStamp] = {}
    for path, state in files_of(folder).items():
        stamp = cached.get(path)
        status = (state.st_mtime_ns, state.st_ctime_ns, state.st_size)
        if stamp is not None and (stamp.modified, stamp.changed, stamp.size) == status:
            stamps[path] = stamp
        else:
            stamps[path] = _FileStamp(*status, _hash(read_file(root, path) or b""))
    # a file this new may still change without a new time
    oldest_fresh = to_micros(now) * 1000 - _FRESH_NANOSECONDS
    cacheable = {path: stamp for path, stamp in stamps.items() if stamp.changed < oldest_fresh}
    if cacheable != cached and (folder / FOLDER).is_dir():
        with suppress(InvalidInput, OSError):  # only a cache
            write_file(root, _STAMPS_FILE, msgspec.json.encode(cacheable))
    return {path: stamp.hash for path, stamp in stamps.items()}


def _read_stamps(root: int) -> dict[str, _FileStamp]:
    with suppress(InvalidInput, msgspec.MsgspecError, RecursionError):
        content = read_file(root, _STAMPS_FILE)
        return {} if content is None else msgspec.json.decode(content, type=dict[str, _FileStamp])
    return {}


class _DiffSide(Struct, frozen=True, kw_only=True):
    """One side of a comparison: a version, or the current folder."""

    name: str
    root: int
    listing: Mapping[str, str]
    is_kept: bool

    @classmethod
    def of(cls, root: int, folder: Path, number: int | None) -> _DiffSide:
        if number is None:
            listing = {path: _hash(read_file(root, path) or b"") for path in files_of(folder)}
            return cls(name="now", root=root, listing=listing, is_kept=False)
        versions = {version.number: version for version in _versions(root)}
        if number not in versions:
            available = f"{min(versions)} to {max(versions)}" if versions else "none yet"
            raise InvalidInput(f"there is no version {number}; there are {available}")
        content = _content(root, versions[number].hash)
        try:
            listing = msgspec.json.decode(content, type=Listing)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise InvalidInput(f"{FOLDER} is damaged: version {number}: {error}") from error
        return cls(name=f"version {number}", root=root, listing=listing, is_kept=True)

    def content(self, path: str) -> bytes:
        name = self.listing.get(path)
        if name is None:
            return b""
        return _content(self.root, name) if self.is_kept else read_file(self.root, path) or b""

    def check(self, folder: Path) -> None:
        """Check before writing that all contents exist and no link is in the way."""
        for path, name in self.listing.items():
            if not is_part(path):
                raise InvalidInput(f"{self.name} has {path}, which is not a file of an agent")
            if passes_through_link(folder, path):
                raise InvalidInput(f"{path}: a link is in the way")
            _content(self.root, name)


def _diff(path: str, old: _DiffSide, new: _DiffSide) -> str:
    before, after = (side.content(path) if path in side.listing else None for side in (old, new))
    return render_diff(before, after, [f"{path} ({side.name})" for side in (old, new)])


def _object_path(name: str) -> str:
    """The file with the contents of this hash."""
    if len(name) != 64 or not _HEX.issuperset(name):
        raise InvalidInput(f"{FOLDER} is damaged: {name!r} is not a hash")
    return f"{FOLDER}/objects/{name[:2]}/{name[2:]}"


def _content(root: int, name: str) -> bytes:
    content = read_file(root, _object_path(name))
    if content is None:
        raise InvalidInput(f"{FOLDER} has lost {name}")
    if _hash(content) != name:
        raise InvalidInput(f"{FOLDER} is damaged: {name} has changed")
    return content


def _store_content(root: int, content: bytes) -> str:
    name = _hash(content)
    if read_file(root, _object_path(name)) is None:
        write_file(root, _object_path(name), content)
    return name


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@contextmanager
def _locked(root: int) -> Generator[None, None, None]:
    """One process at a time; the lock ends with its process."""
    with ensure_folder(root, FOLDER) as store:
        _write_gitignore(store)
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open("lock", flags, 0o600, dir_fd=store)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise blocked_path_error(f"{FOLDER}/lock", error) from error
            raise
        with os.fdopen(descriptor, "ab") as lock:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise InvalidInput(f"{FOLDER}/lock: not a file")
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _write_gitignore(store: int) -> None:
    """Versions belong to this machine; an existing `.gitignore` is not changed."""
    with suppress(FileExistsError), os.fdopen(_create_file(store, ".gitignore"), "w") as file:
        file.write("*\n")


def _create_file(store: int, name: str) -> int:
    """Raises: FileExistsError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    return os.open(name, flags, 0o600, dir_fd=store)
