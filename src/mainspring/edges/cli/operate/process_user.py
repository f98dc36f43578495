"""Which user the processes of the service run as: never root, unless the operator allows it. A
process started as root binds its ports, becomes another user, and opens everything else as that
user. `mainspring run` and `chat` are not affected.
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
from mainspring.error_table import with_hints

if sys.platform != "win32":
    import pwd

_LARGEST_UID = 2**32 - 2  # the one above it means "no user" (chown(2))
PRIVATE, PASSABLE = 0o700, 0o711  # modes: for the owner alone; and passable by others


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUser:
    name: str
    uid: int
    gid: int
    groups: Sequence[int]
    home: str


def service_user(settings: Settings, *, user: str | None, allow_root: bool) -> ProcessUser | None:
    """The user to become; `None`: the current one. Call it before anything is opened.

    Raises:
        InvalidInput: it would run as root without permission, or cannot become this user.
    """
    if sys.platform == "win32":
        return None
    name = user or settings.service_user
    is_root = 0 in _process_uids()
    if name is None:
        if is_root and not (allow_root or settings.allow_root):
            raise error_table.ROOT_REFUSED.error(InvalidInput)
        return None
    process_user = find_user(name, home=settings.folder)
    if process_user.uid == 0:
        raise InvalidInput(f"--user {name}: that is root; add --allow-root if you mean it")
    if not is_root and process_user.uid != os.geteuid():
        raise InvalidInput(
            f"--user {name}: only root can become another user; start it as that user"
        )
    return process_user if is_root else None


def drop_privileges(user: ProcessUser, settings: Settings) -> Settings:
    """Give up root and its groups permanently. Missing folders of the store are created first, for
    that user.

    Raises:
        InvalidInput: the user cannot use the store; the message says what to do.
    """
    if not is_postgres(settings.store):
        make_folder(Path(settings.store).parent, user, PRIVATE)
    make_folder(Path(settings.workspaces), user, PASSABLE)
    try:
        os.setgroups(user.groups)
        os.setresgid(user.gid, user.gid, user.gid)
        os.setresuid(user.uid, user.uid, user.uid)
    except OSError as error:  # a container may have dropped the capabilities that this needs
        raise InvalidInput(
            f"--user {user.name}: this process cannot become another user: {error.strerror}"
        ) from error
    _require_no_root(user)
    user_settings = settings_of_user(settings, user.name, user.home)
    _require_usable(user_settings, user)
    _require_vault_key(user_settings, user)
    for program in (os.__file__, __file__):
        if not os.access(program, os.R_OK):
            raise _unusable(program, user, "install Python and Mainspring where all can read them")
    return user_settings


def _process_uids() -> tuple[int, ...]:
    return os.getresuid() if hasattr(os, "getresuid") else (os.getuid(), os.geteuid())


def find_user(name: str, *, home: str) -> ProcessUser:
    """Find a user by name or number; a container may have no entry for the number.

    Raises:
        InvalidInput: there is none.
    """
    try:
        entry = pwd.getpwuid(int(name)) if name.isdecimal() else pwd.getpwnam(name)
    except (KeyError, OverflowError) as error:
        if not name.isdecimal() or int(name) > _LARGEST_UID:
            raise InvalidInput(f"--user {name}: there is no such user") from error
        uid = int(name)
        return ProcessUser(name=name, uid=uid, gid=uid, groups=(uid,), home=home)
    return ProcessUser(
        name=entry.pw_name,
        uid=entry.pw_uid,
        gid=entry.pw_gid,
        groups=os.getgrouplist(entry.pw_name, entry.pw_gid),
        home=entry.pw_dir,
    )


def make_folder(folder: Path, user: ProcessUser, mode: int) -> None:
    """Create missing folders for the user. Existing ones keep their owner."""
    new_folders = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    for item in reversed(new_folders):
        item.mkdir(mode=mode)
        descriptor = os.open(item, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            os.fchown(descriptor, user.uid, user.gid)
        finally:
            os.close(descriptor)


def _require_no_root(user: ProcessUser) -> None:
    """
    Raises:
        InvalidInput: the process still has a right of root.
    """
    is_other = os.getresuid() == (user.uid,) * 3 and os.getresgid() == (user.gid,) * 3
    try:
        os.setuid(0)
    except PermissionError:
        if is_other and set(os.getgroups()) <= {*user.groups, user.gid}:
            return
    raise InvalidInput(f"--user {user.name}: this process could become root again, so it stops")


def _require_usable(settings: Settings, user: ProcessUser) -> None:
    if is_postgres(settings.store):
        return
    store = Path(settings.store)
    for path in (store.parent, store, Path(f"{store}-wal"), Path(settings.workspaces)):
        if os.path.lexists(path) and not os.access(path, os.R_OK | os.W_OK):
            raise _unusable(str(path), user, f"chown -R {user.uid}:{user.gid} {path}")


def _require_vault_key(settings: Settings, user: ProcessUser) -> None:
    """
    Raises:
        InvalidInput: the key is in a file that the user can neither read nor create.
    """
    if settings.vault_key is not None or settings.vault_in_keyring:
        return
    key = Path(settings.vault).with_suffix(".key")
    existing = next(path for path in (key, *key.parents) if os.path.lexists(path))
    if not os.access(existing, os.R_OK if existing == key else os.W_OK):
        fix = "give that user a home folder, or set MAINSPRING_VAULT_KEY"
        raise _unusable(f"{key}, the key of its vault and store", user, fix)


def _unusable(path: str, user: ProcessUser, fix: str) -> InvalidInput:
    refusal = f"the service would run as the user {user.name}, who cannot use {path}"
    return with_hints(InvalidInput(refusal), fix)
