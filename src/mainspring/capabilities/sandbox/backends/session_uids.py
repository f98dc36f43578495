"""A separate uid for the programs of each session, if the harness is root.

A claim is a symbolic link in a private folder of this machine: its name is the uid, its target the
session's hash. All processes on the machine share the folder, whichever store they use.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from mainspring.core.errors import SandboxFailed
from mainspring.files.openat import OpenDescriptor
from mainspring.files.session_owner import (
    FEWEST_UIDS,
    SUBUID,
    SUBUID_NAME,
    available_uids,
    gives_uids,
)

if sys.platform != "win32":
    import fcntl

_CLAIMS = (Path("/var/lib/mainspring/uids"), Path("/run/mainspring/uids"))
_ATTEMPTS = 32
"""Uids tried from the session's first choice on; if all are taken, the range is nearly full."""


class SessionUids(Struct, frozen=True, kw_only=True):
    uids: range
    claims: Path

    def uid(self, session_id: str) -> int:
        """The uid of a session, claimed if it has none: the same each time until it is released.

        Raises:
            SandboxFailed: there is no uid left, or no place to write claims to.
        """
        key = _key(session_id)
        try:
            _make_private(self.claims)
            with self._locked():
                holders = {uid: self._holder(uid) for uid in self._candidates(key)}
                uid = next((uid for uid, holder in holders.items() if holder == key), None)
                if uid is None:
                    uid = self._free(holders)
                    os.symlink(key, self.claims / str(uid))
                return uid
        except OSError as error:
            raise SandboxFailed(f"no uid could be claimed in {self.claims}: {error}") from error

    def release(self, session_id: str) -> None:
        """Release the uid of a deleted session, whose programs' files must also be deleted."""
        key = _key(session_id)
        with self._locked():
            for uid in self._candidates(key):
                if self._holder(uid) == key:
                    (self.claims / str(uid)).unlink()

    @contextmanager
    def _locked(self) -> Generator[None]:
        """Lock the claims: a uid that is free stays free until it is claimed."""
        with OpenDescriptor(
            os.open(self.claims, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        ) as folder:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield

    def _free(self, holders: Mapping[int, str | None]) -> int:
        for uid, holder in holders.items():
            if holder is None:
                return uid
        raise SandboxFailed(
            f"no uid is left for this session between {self.uids[0]} and {self.uids[-1]}:"
            f" widen the range of {SUBUID_NAME!r} in {SUBUID}"
        )

    def _candidates(self, key: str) -> Iterator[int]:
        """Derived from the hash, so that machines with a shared disk use the same uids."""
        start = int(key[:16], 16)
        for step in range(min(_ATTEMPTS, len(self.uids))):
            yield self.uids[(start + step) % len(self.uids)]

    def _holder(self, uid: int) -> str | None:
        try:
            return os.readlink(self.claims / str(uid))
        except FileNotFoundError:
            return None


def session_uids() -> SessionUids:
    """The uids of this machine.

    Raises:
        SandboxFailed: there are too few uids, or no place to write claims to.
    """
    uids = available_uids()
    if not uids:
        raise SandboxFailed(
            f"there are too few uids to give each session its own: at least {FEWEST_UIDS} are"
            f" needed for {SUBUID_NAME!r} in {SUBUID}, or in the user namespace of this container"
        )
    return SessionUids(uids=uids, claims=claims_folder())


def session_uid(session_id: str) -> int:
    """See `SessionUids.uid`."""
    return session_uids().uid(session_id)


def release_session_uid(session_id: str) -> None:
    """See `SessionUids.release`. No effect where sessions have no uids of their own."""
    if gives_uids():
        for claims in _CLAIMS:
            if claims.is_dir():
                SessionUids(uids=available_uids(), claims=claims).release(session_id)


def claims_folder() -> Path:
    """The folder of the claims, made if it is missing.

    Raises:
        SandboxFailed: it can be written nowhere.
    """
    for folder in _CLAIMS:
        try:
            _make_private(folder)
        except OSError:
            continue
        return folder
    tried_folders = " nor ".join(map(str, _CLAIMS))
    raise SandboxFailed(f"neither {tried_folders} is writable: mount one of them writable")


def _make_private(folder: Path) -> None:
    """Create the folder, or check that it is ours or root's and close it to other users.

    Raises:
        OSError: it cannot be made, or another user's folder is in its place.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    state = folder.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid not in (0, os.geteuid()):
        raise OSError(f"{folder} is not a folder of this user")
    if state.st_mode & 0o077:
        folder.chmod(0o700)


def _key(session_id: str) -> str:
    return hashlib.sha256(session_id.encode("utf-8", "surrogateescape")).hexdigest()
