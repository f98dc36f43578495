"""Bring a database's tables to the version that this Mainspring works with, or back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mainspring.core.errors import StoreMismatch
from mainspring.log.migrate import Migration, Standing, pending
from mainspring.log.postgres.connect import Address, Connection, connect, translated
from mainspring.log.postgres.schema import MIGRATIONS

_LOCK: Final = 0x4D535047
"""Key of the advisory lock: of several processes that open a database, one migrates."""

_LOOK: Final = """
    select current_setting('server_encoding'),
           to_regclass('mainspring.schema_version') is not null,
           exists (select from pg_catalog.pg_class c join pg_catalog.pg_namespace n
                     on n.oid = c.relnamespace where n.nspname = 'mainspring')
"""


async def prepare(address: Address, migrations: Sequence[Migration] = MIGRATIONS) -> Connection:
    """Connect, making the schema if there is none, and bring its tables up to date.

    Raises:
        StoreMismatch: the schema is somebody else's, or a newer Mainspring's.
    """
    with translated(address):
        connection = await connect(address)
        try:
            if await _version(address, connection) != migrations[-1].version:
                await _migrate(address, connection, migrations)
        except BaseException:
            await connection.close()
            raise
        return connection


async def standing(url: str, migrations: Sequence[Migration] = MIGRATIONS) -> Standing:
    """Which version's tables the database has (0: none yet); it is left as it is.

    Raises:
        StoreMismatch: the schema is somebody else's.
    """
    address = Address.of(url)
    with translated(address):
        async with await connect(address) as connection:
            return Standing(await _version(address, connection), migrations[-1].version)


async def migrate(
    url: str, target: int | None = None, migrations: Sequence[Migration] = MIGRATIONS
) -> None:
    """Bring the database to a version's tables, the newest by default, or back to an older's.

    Raises:
        InvalidInput: there is no such version.
        StoreMismatch: a step in between cannot be undone without losing something.
    """
    address = Address.of(url)
    with translated(address):
        async with await connect(address) as connection:
            await _migrate(address, connection, migrations, target)


async def _migrate(
    address: Address,
    connection: Connection,
    migrations: Sequence[Migration],
    target: int | None = None,
) -> None:
    async with connection.transaction():
        await connection.execute("select pg_advisory_xact_lock(%s)", [_LOCK])
        current = await _version(address, connection)
        steps = pending(str(address), migrations, current, target)
        await connection.execute("create schema if not exists mainspring")
        await connection.execute(
            "create table if not exists mainspring.schema_version(version integer not null)"
        )
        for _, statements in steps:
            for statement in statements:
                await connection.execute(statement.encode())
        if steps:
            await connection.execute("delete from mainspring.schema_version")
            await connection.execute(
                "insert into mainspring.schema_version values (%s)", [steps[-1][0]]
            )


async def _version(address: Address, connection: Connection) -> int:
    found = await (await connection.execute(_LOOK)).fetchone()
    assert found is not None
    encoding, ours, anything = found
    if encoding != "UTF8":
        raise StoreMismatch(f"{address}: keeps text as {encoding}; Mainspring needs UTF8")
    if not ours:
        if anything:
            raise StoreMismatch(f"{address}: has a schema 'mainspring' that is not Mainspring's")
        return 0
    versions = await connection.execute("select max(version) from mainspring.schema_version")
    row = await versions.fetchone()
    return 0 if row is None or row[0] is None else int(row[0])
