"""Connections to a SQLite file, configured for durability, and translation of SQLite's errors.

- WAL: readers never wait for the writer, nor the writer for readers.
- synchronous=FULL: a commit is on disk when it returns (NORMAL would lose the last ones on power
  loss); fullfsync: the same on macOS, where a plain fsync stops at the drive's cache.
- busy_timeout: several processes share a file without errors.
- secure_delete: deleted content is overwritten.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
import sys
import threading
import time
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from mainspring import error_table
from mainspring.core.errors import (
    InvalidInput,
    StoreCorrupt,
    StoreFailed,
    StoreFull,
    StoreMismatch,
    StoreReadOnly,
    StoreUnavailable,
)
from mainspring.files.atomic_file import open_regular
from mainspring.log.migrate import Migration, SchemaStatus, pending_migrations
from mainspring.log.sqlite.schema import APPLICATION_ID, MIGRATIONS

_LOG = logging.getLogger("mainspring.store")
BUSY_SECONDS = 10.0  # for another process's transaction; then the store is unavailable
_OTHER_USERS = 0o077
"""Permission bits of everyone but the owner."""
_BUSY_RETRY_SECONDS = 0.002  # between attempts


@contextmanager
def translate_errors(path: Path) -> Generator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise _translate_error(path, error) from error
    except OSError as error:
        raise _cannot_open(path, error) from error


def _translate_error(path: Path, error: sqlite3.Error) -> StoreFailed:
    match _code(error):
        case sqlite3.SQLITE_FULL:
            return error_table.STORE_FULL.error(StoreFull, path=path, error=error)
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return _cannot_write(path, path, error)
        case sqlite3.SQLITE_CORRUPT:
            return error_table.STORE_DAMAGED.error(StoreCorrupt, path=path, error=error)
        case sqlite3.SQLITE_NOTADB:
            return StoreMismatch(f"{path}: is not a SQLite database")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            locked = error_table.STORE_LOCKED
            return locked.error(StoreUnavailable, path=path, seconds=BUSY_SECONDS)
        case sqlite3.SQLITE_CANTOPEN:
            return _cannot_open(path, error)
        case sqlite3.SQLITE_IOERR:
            return StoreUnavailable(f"{path}: the disk failed ({error}); nothing was written")
        case _:
            return StoreFailed(f"{path}: {error}")


def _cannot_open(path: Path, error: Exception) -> StoreFailed:
    """SQLite does not say why it cannot open a file; if access is denied, retries do not help."""
    existing = next(place for place in (path, *path.parents) if place.exists())
    effective = os.access in os.supports_effective_ids
    if os.access(existing, os.R_OK | os.W_OK, effective_ids=effective):
        return StoreUnavailable(f"{path}: cannot be opened ({error})")
    return _cannot_write(path, existing, error)


def _cannot_write(path: Path, existing: Path, error: Exception) -> StoreReadOnly:
    what = "it" if existing == path else existing
    entry = error_table.STORE_UNWRITABLE
    return entry.error(StoreReadOnly, path=path, what=what, error=error)


def _code(error: sqlite3.Error) -> int:
    if "decode to UTF-8" in str(error):  # raised by Python itself, without a code
        return sqlite3.SQLITE_CORRUPT
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


_SETTINGS = (
    "synchronous = full",
    "fullfsync = on",
    "checkpoint_fullfsync = on",
    "secure_delete = on",
    "foreign_keys = off",  # our queries check them, with errors that name the session
    "wal_autocheckpoint = 10000",  # the store checkpoints sooner, on another connection
    "journal_size_limit = 67108864",
)


_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
"""The last bytes of a rollback journal that names another file (SQLite's file format, 3)."""


def connect(path: Path) -> sqlite3.Connection:
    refuse_journal(path)
    address = path.absolute().as_uri()
    connection = sqlite3.connect(
        # SQLite shares memory in a file beside the log, unless nobody can change the log
        f"{address}?immutable=1" if is_on_read_only_disk(path) else address,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        uri=True,
    )
    try:
        for setting in _SETTINGS:
            connection.execute(f"pragma {setting}")
    except BaseException:  # no database, or a damaged one
        connection.close()
        raise
    return connection


def is_on_read_only_disk(path: Path) -> bool:
    """Whether an existing file can be read only, by everybody.

    Raises:
        StoreReadOnly: its newest entries are in a second file, which SQLite cannot read there.
    """
    with suppress(FileNotFoundError):
        if not os.statvfs(path).f_flag & os.ST_RDONLY:
            return False
        with suppress(FileNotFoundError):
            if Path(f"{path}-wal").stat().st_size:
                raise error_table.STORE_NOT_CLOSED.error(StoreReadOnly, path=path)
        return True
    return False


def refuse_journal(path: Path) -> None:
    """A journal that came with a store may name any file of this user: SQLite rolls it back when
    the store is opened, even to read it, and then deletes that file. Our own never name one.

    Raises: StoreCorrupt.
    """
    journal = Path(f"{os.path.realpath(path)}-journal")
    try:
        with open_regular(journal, follows_links=False) as file:
            file.seek(max(os.fstat(file.fileno()).st_size - len(_JOURNAL_MAGIC), 0))
            names_file = file.read() == _JOURNAL_MAGIC
    except FileNotFoundError:
        return
    except (OSError, InvalidInput):  # a link, a pipe or a folder
        names_file = True
    if names_file:
        error = StoreCorrupt(f"{journal} was not written by Mainspring, and could delete files")
        error.add_note("remove it, if you do not know where it comes from")
        raise error


def prepare(path: Path, migrations: tuple[Migration, ...] = MIGRATIONS) -> sqlite3.Connection:
    """Open the file, initialize it if it is new, and migrate its tables.

    Raises:
        StoreMismatch: the database belongs to another program or a newer Mainspring.
    """
    with translate_errors(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        connection = connect(path)
        try:
            if is_on_read_only_disk(path):
                _check_version(path, connection, migrations[-1].version)
                return connection
            _initialize(path, connection)
            if sys.platform != "win32":  # only now: another program's file is left as it is
                for suffix in ("", "-wal", "-shm"):
                    remove_other_users_access(Path(f"{path}{suffix}"))
            if _version(connection) != migrations[-1].version:
                _migrate(path, connection, migrations)
        except BaseException:
            connection.close()
            raise
        return connection


def remove_other_users_access(file: Path) -> None:
    """Remove other users' access, which a copy or an old version may have left.

    Do not open the file: closing it would release every lock that connections of this
    process have on it (fcntl(2)), and could corrupt the log.
    """
    try:
        state = file.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(state.st_mode) or not state.st_mode & _OTHER_USERS:
        return
    if state.st_uid != os.geteuid():
        _LOG.warning("%s can be read by other users: chmod 600 it", file)
        return
    _set_mode(file, state)
    _LOG.warning("%s could be read by other users; its mode is 0600 now", file)


def _set_mode(file: Path, state: os.stat_result) -> None:
    mode = stat.S_IMODE(state.st_mode) & ~_OTHER_USERS
    if sys.platform != "linux":
        os.chmod(file, mode, follow_symlinks=False)
        return
    opened = os.open(file, os.O_PATH | os.O_NOFOLLOW)  # a path descriptor has no locks to release
    try:
        if os.path.samestat(os.fstat(opened), state):
            os.chmod(f"/proc/self/fd/{opened}", mode)
    finally:
        os.close(opened)


def _check_version(path: Path, connection: sqlite3.Connection, newest: int) -> None:
    if not _is_ours(path, connection) or _version(connection) != newest:
        raise error_table.STORE_NOT_MIGRATED.error(StoreReadOnly, path=path)


def _initialize(path: Path, connection: sqlite3.Connection) -> None:
    deadline = time.monotonic() + BUSY_SECONDS
    while not _is_ours(path, connection):
        try:
            connection.execute("pragma journal_mode = wal")
            connection.execute(f"pragma application_id = {APPLICATION_ID}")
        except sqlite3.OperationalError as error:
            # busy_timeout does not cover this statement
            if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            threading.Event().wait(_BUSY_RETRY_SECONDS)
    # the file stores this mode, but a copy of it may not
    connection.execute("pragma journal_mode = wal")


def _is_ours(path: Path, connection: sqlite3.Connection) -> bool:
    """False for an empty file, which may be initialized."""
    [application, tables] = (
        connection.execute(  # one statement, because another process may initialize the file
            "select application_id, (select count(*) from sqlite_master) from pragma_application_id"
        ).fetchone()
    )
    if application != APPLICATION_ID and (application or tables):
        raise error_table.STORE_FOREIGN.error(StoreMismatch, path=path)
    return application == APPLICATION_ID


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("pragma user_version").fetchone()[0])


def _migrate(
    path: Path,
    connection: sqlite3.Connection,
    migrations: tuple[Migration, ...],
    target: int | None = None,
) -> None:
    connection.execute("begin exclusive")  # only one of several processes migrates
    try:
        for version, statements in pending_migrations(
            str(path), migrations, _version(connection), target
        ):
            for statement in statements:
                connection.execute(statement)
            connection.execute(f"pragma user_version = {version}")
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise


def schema_status(path: Path, migrations: tuple[Migration, ...] = MIGRATIONS) -> SchemaStatus:
    """The version of the file's schema. Changes nothing.

    Raises:
        StoreMismatch: the database belongs to another program.
    """
    with translate_errors(path), closing(connect(path)) as connection:
        _is_ours(path, connection)
        return SchemaStatus(_version(connection), migrations[-1].version)


def migrate(
    path: Path, target: int | None = None, migrations: tuple[Migration, ...] = MIGRATIONS
) -> None:
    """Migrate an existing file to a version of the schema: the newest by default, or an older one.

    Raises:
        InvalidInput: there is no such version.
        StoreMismatch: a downgrade would lose data.
    """
    with translate_errors(path), closing(connect(path)) as connection:
        _is_ours(path, connection)
        _migrate(path, connection, migrations, target)
