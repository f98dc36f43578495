"""Which user the service's processes run as: never root, unless the operator says so.

A process started as root binds its ports, becomes another user, and opens everything else as that
user. What `mainspring run` and `chat` do on a laptop is not restricted here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mainspring import error_table
from mainspring.config import Settings, is_postgres, settings_of_user
from mainspring.core.errors import InvalidInput

if sys.platform != "win32":
    import pwd

_LARGEST_UID = 2**32 - 2
_PRIVATE, _PASSABLE = 0o700, 0o711


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUser:
    name: str
    uid: int
    gid: int
    groups: Sequence[int]
    home: str


def service_user(settings: Settings, *, user: str | None, allow_root: bool) -> ProcessUser | None:
    """Whom to become; `None`: this process stays who it is. To be asked before anything is opened.

    Raises:
        InvalidInput: it would run as root and nobody said so, or the user cannot be had.
    """
    if sys.platform == "win32":
        return None
    wanted = user or settings.service_user
    is_root = 0 in _process_uids()
    if wanted is None:
        if is_root and not (allow_root or settings.allow_root):
            raise error_table.ROOT_REFUSED.error(InvalidInput)
        return None
    found = _lookup_user(wanted, home=settings.folder)
    if found.uid == 0:
        raise InvalidInput(f"--user {wanted}: that is root; say --allow-root if you mean it")
    if not is_root and found.uid != os.geteuid():
        raise InvalidInput(f"--user {wanted}: only root can become another user: start it as them")
    return found if is_root else None


def drop_privileges(process_user: ProcessUser, settings: Settings) -> Settings:
    """Give up root for good, and every group of root's. Folders of the store that are not there yet
    are made first, for that user.

    Raises:
        InvalidInput: the store belongs to somebody else; it says what to do.
    """
    if not is_postgres(settings.store):
        _make_folder(Path(settings.store).parent, process_user, _PRIVATE)
    _make_folder(Path(settings.workspaces), process_user, _PASSABLE)
    try:
        os.setgroups(process_user.groups)
        os.setresgid(process_user.gid, process_user.gid, process_user.gid)
        os.setresuid(process_user.uid, process_user.uid, process_user.uid)
    except OSError as error:  # a container may have taken from root what this needs
        raise InvalidInput(
            f"--user {process_user.name}: cannot be done here: {error.strerror}"
        ) from error
    _require_no_root(process_user)
    own = settings_of_user(settings, process_user.name, process_user.home)
    _require_usable(own, process_user)
    for program in (os.__file__, __file__):
        if not os.access(program, os.R_OK):
            raise _unusable(
                program, process_user, "install Python and Mainspring where all can read them"
            )
    return own


def _process_uids() -> tuple[int, ...]:
    return os.getresuid() if hasattr(os, "getresuid") else (os.getuid(), os.geteuid())


def _lookup_user(wanted: str, *, home: str) -> ProcessUser:
    """By name, or by number: a container need not have an entry for it."""
    try:
        known = pwd.getpwuid(int(wanted)) if wanted.isdecimal() else pwd.getpwnam(wanted)
    except (KeyError, OverflowError) as error:
        if not wanted.isdecimal() or int(wanted) > _LARGEST_UID:
            raise InvalidInput(f"--user {wanted}: there is no such user") from error
        uid = int(wanted)
        return ProcessUser(name=wanted, uid=uid, gid=uid, groups=(uid,), home=home)
    return ProcessUser(
        name=known.pw_name,
        uid=known.pw_uid,
        gid=known.pw_gid,
        groups=os.getgrouplist(known.pw_name, known.pw_gid),
        home=known.pw_dir,
    )


def _make_folder(folder: Path, process_user: ProcessUser, mode: int) -> None:
    """Only what is made here is given away: what was there may be anybody's."""
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    for item in reversed(missing):
        item.mkdir(mode=mode)
        descriptor = os.open(item, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            os.fchown(descriptor, process_user.uid, process_user.gid)
        finally:
            os.close(descriptor)


def _require_no_root(process_user: ProcessUser) -> None:
    """
    Raises:
        InvalidInput: something of root is left.
    """
    is_other = (
        os.getresuid() == (process_user.uid,) * 3 and os.getresgid() == (process_user.gid,) * 3
    )
    try:
        os.setuid(0)
    except PermissionError:
        if is_other and set(os.getgroups()) <= {*process_user.groups, process_user.gid}:
            return
    raise InvalidInput(
        f"--user {process_user.name}: this process could become root again; it does not run"
    )


def _require_usable(settings: Settings, process_user: ProcessUser) -> None:
    if is_postgres(settings.store):
        return
    store = Path(settings.store)
    for path in (store.parent, store, Path(f"{store}-wal"), Path(settings.workspaces)):
        if os.path.lexists(path) and not os.access(path, os.R_OK | os.W_OK):
            raise _unusable(
                str(path), process_user, f"chown -R {process_user.uid}:{process_user.gid} {path}"
            )


def _unusable(path: str, process_user: ProcessUser, fix: str) -> InvalidInput:
    refused = InvalidInput(f"{path} cannot be used by {process_user.name}, whom the service became")
    refused.add_note(fix)
    return refused
