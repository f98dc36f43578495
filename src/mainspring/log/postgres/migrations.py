"""Schema migrations of the PostgreSQL store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mainspring.core.errors import StoreMismatch
from mainspring.log.migrate import Migration, SchemaStatus, pending_migrations
from mainspring.log.postgres.connect import Address, Connection, connect, translate_errors

MIGRATIONS = (
    Migration(
        version=1,
        up=(
            # With free space in each page and no index on columns that an append changes, its
            # update stays on the page and touches no index.
            """
            create table mainspring.session(
              key bigint generated always as identity primary key,
              id text collate "C" not null unique,
              thread_id text not null,
              created bigint not null,
              updated bigint not null,
              seq bigint not null,
              hash bytea not null,
              parent_key bigint references mainspring.session(key),
              parent_seq bigint not null,
              epoch bigint not null default 0,
              owner text,
              lease_until timestamptz not null default '-infinity',
              inbox_head bigint not null default 0,
              indexed bigint not null default 0
            ) with (fillfactor = 50)
            """,
            "create index session_by_created on mainspring.session(created, key)",
            "create index session_by_parent on mainspring.session(parent_key)"
            " where parent_key is not null",
            # no foreign key to the session: its check would cost every append a second lookup
            """
            create table mainspring.event(
              session_key bigint not null,
              seq bigint not null,
              id text not null,
              thread_id text not null,
              time bigint not null,
              version integer not null,
              type text not null,
              body text not null,
              prev bytea not null,
              primary key(session_key, seq)
            )
            """,
            """
            create table mainspring.inbox(
              session_key bigint not null,
              position bigint not null,
              client_id text collate "C" not null,
              event_id text not null,
              thread_id text not null,
              time bigint not null,
              version integer not null,
              type text not null,
              body text not null,
              seq bigint,
              primary key(session_key, position),
              unique(session_key, client_id)
            )
            """,
            "create index inbox_pending on mainspring.inbox(session_key, position)"
            " where seq is null",
            """
            create table mainspring.blob(
              hash text collate "C" primary key,
              content bytea not null
            )
            """,
            # the foreign key prevents deletion of a blob while a session adds a reference to it
            """
            create table mainspring.blob_use(
              session_key bigint not null,
              hash text collate "C" not null references mainspring.blob(hash),
              primary key(session_key, hash)
            )
            """,
            "create index blob_use_by_hash on mainspring.blob_use(hash)",
            """
            create table mainspring.words(
              session_key bigint not null,
              seq bigint not null,
              text text not null,
              words tsvector not null,
              primary key(session_key, seq)
            )
            """,
            "create index words_by_word on mainspring.words using gin(words)",
        ),
        down=(
            "drop table mainspring.words",
            "drop table mainspring.blob_use",
            "drop table mainspring.blob",
            "drop table mainspring.inbox",
            "drop table mainspring.event",
            "drop table mainspring.session",
        ),
    ),
    Migration(
        version=2,
        up=(
            # names and ids are compared by bytes: the order does not depend on the server's locale
            """
            create table mainspring.record(
              kind text collate "C" not null,
              id text collate "C" not null,
              tenant text collate "C" not null,
              parent text collate "C" not null,
              name text collate "C",
              label text collate "C" not null,
              created bigint not null,
              updated bigint not null,
              due bigint,
              is_archived boolean not null,
              rev bigint not null,
              body bytea not null,
              primary key(kind, id)
            )
            """,
            "create index record_by_created on mainspring.record(kind, tenant, created, id)",
            "create index record_by_parent on mainspring.record(kind, parent, created, id)"
            " where parent <> ''",
            "create index record_by_label on mainspring.record(kind, label, tenant, created, id)"
            " where label <> ''",
            "create unique index record_by_name on mainspring.record(kind, tenant, parent, name)"
            " where name is not null",
            "create index record_by_due on mainspring.record(kind, due, id) where due is not null",
            """
            create table mainspring.record_content(
              kind text collate "C" not null,
              id text collate "C" not null,
              content bytea not null,
              primary key(kind, id)
            )
            """,
            # a counter changes often and has one index: leave space for the change on the same page
            """
            create table mainspring.tally(
              name text collate "C" primary key,
              amount bigint not null
            ) with (fillfactor = 50)
            """,
            # Sessions with a lease holder, alive or dead. An append does not change the holder, so
            # its update still touches no index.
            "create index session_held on mainspring.session(key) where owner is not null",
        ),
        down=None,  # agents, keys and schedules are stored nowhere else
    ),
    Migration(
        version=3,
        up=(
            "alter table mainspring.event add column sender text",
            "alter table mainspring.inbox add column sender text",
        ),
        down=None,  # an event's hash covers its sender
    ),
    Migration(
        version=4,
        # Filled by the next append of each session, or when somebody lists it.
        up=("alter table mainspring.session add column activity text",),
        down=("alter table mainspring.session drop column activity",),
    ),
    Migration(
        version=5,
        # Rows from before have no MAC: they are foreign until somebody adopts them.
        up=(
            "alter table mainspring.session add column mac bytea",
            "alter table mainspring.inbox add column mac bytea",
            "alter table mainspring.record add column content_hash bytea, add column mac bytea",
        ),
        down=(
            "alter table mainspring.session drop column mac",
            "alter table mainspring.inbox drop column mac",
            "alter table mainspring.record drop column content_hash, drop column mac",
        ),
    ),
    Migration(
        version=6,
        # What lists filter by. A service fills it for the records and sessions that exist, in
        # steps, before it answers (`service/sessions/session_filters.py`). Triggers, so that no
        # writer can forget that a status has changed. The session's own column has no index. The
        # key begins with the id: without statistics, lists would be read by a key that begins with
        # the kind.
        up=(
            "alter table mainspring.session add column status text",
            """
            create table mainspring.record_filter(
              kind text collate "C" not null,
              id text collate "C" not null,
              name text collate "C" not null,
              value text collate "C" not null,
              tenant text collate "C" not null,
              is_archived boolean not null,
              created bigint not null,
              primary key(id, kind, name, value)
            )
            """,
            "create index record_filter_by_value on mainspring.record_filter"
            "(kind, tenant, name, value, is_archived, created, id)",
            "create index record_by_archived"
            " on mainspring.record(kind, tenant, is_archived, created, id)",
            """
            create view mainspring.listed_status as
            select s.key, s.id, case
                     when s.status <> 'idle' then s.status
                     when exists (
                       select from mainspring.inbox i
                        where i.session_key = s.key and i.seq is null and i.mac is not null
                          and i.type in ('user.message', 'user.tool_confirmation',
                            'user.custom_tool_result', 'user.tool_result', 'user.define_outcome'))
                     then 'running'
                     else 'idle'
                   end as status
              from mainspring.session s
            """,
            """
            create function mainspring.follow_status(changed bigint) returns void
            language plpgsql as $$
            declare session_id text; current text;
            begin
              select id, status into session_id, current
                from mainspring.listed_status where key = changed;
              update mainspring.record_filter set value = current
               where kind = 'session' and id = session_id and name = 'status' and value <> current;
            end $$
            """,
            """
            create function mainspring.session_changed() returns trigger language plpgsql as $$
            begin perform mainspring.follow_status(new.key); return null; end $$
            """,
            """
            create function mainspring.inbox_changed() returns trigger language plpgsql as $$
            begin perform mainspring.follow_status(new.session_key); return null; end $$
            """,
            "create trigger session_created after insert on mainspring.session"
            " for each row execute function mainspring.session_changed()",
            "create trigger session_status_changed after update of status on mainspring.session"
            " for each row when (new.status is distinct from old.status)"
            " execute function mainspring.session_changed()",
            "create trigger inbox_item_submitted after insert on mainspring.inbox"
            " for each row when (new.seq is null) execute function mainspring.inbox_changed()",
            "create trigger inbox_item_folded after update of seq, mac on mainspring.inbox"
            " for each row when (old.seq is null) execute function mainspring.inbox_changed()",
        ),
        down=(
            "drop trigger inbox_item_folded on mainspring.inbox",
            "drop trigger inbox_item_submitted on mainspring.inbox",
            "drop trigger session_status_changed on mainspring.session",
            "drop trigger session_created on mainspring.session",
            "drop function mainspring.inbox_changed()",
            "drop function mainspring.session_changed()",
            "drop function mainspring.follow_status(bigint)",
            "drop view mainspring.listed_status",
            "drop index mainspring.record_by_archived",
            "drop table mainspring.record_filter",
            "alter table mainspring.session drop column status",
        ),
    ),
)


_LOCK: Final = 0x4D535047
"""Key of the advisory lock: when several processes open a database, only one migrates it."""

_STATUS: Final = """
    select current_setting('server_encoding'),
           to_regclass('mainspring.schema_version') is not null,
           exists (select from pg_catalog.pg_class c join pg_catalog.pg_namespace n
                     on n.oid = c.relnamespace where n.nspname = 'mainspring')
"""


async def prepare(address: Address, migrations: Sequence[Migration] = MIGRATIONS) -> Connection:
    """Connect, create the schema if it does not exist, and migrate its tables.

    Raises:
        StoreMismatch: the schema belongs to another program or a newer Mainspring.
    """
    with translate_errors(address):
        connection = await connect(address)
        try:
            if await _version(address, connection) != migrations[-1].version:
                await _migrate(address, connection, migrations)
        except BaseException:
            await connection.close()
            raise
        return connection


async def schema_status(url: str, migrations: Sequence[Migration] = MIGRATIONS) -> SchemaStatus:
    """The version of the database's schema (0: no tables yet). Changes nothing.

    Raises:
        StoreMismatch: the schema belongs to another program.
    """
    address = Address.of(url)
    with translate_errors(address):
        async with await connect(address) as connection:
            return SchemaStatus(await _version(address, connection), migrations[-1].version)


async def migrate(
    url: str, target: int | None = None, migrations: Sequence[Migration] = MIGRATIONS
) -> None:
    """Migrate the database to a version of the schema: the newest by default, or an older one.

    Raises:
        InvalidInput: there is no such version.
        StoreMismatch: a downgrade would lose data.
    """
    address = Address.of(url)
    with translate_errors(address):
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
        steps = pending_migrations(str(address), migrations, current, target)
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
    result_row = await (await connection.execute(_STATUS)).fetchone()
    assert result_row is not None
    encoding, has_version_table, has_any_table = result_row
    if encoding != "UTF8":
        raise StoreMismatch(f"{address}: stores text as {encoding}; Mainspring needs UTF8")
    if not has_version_table:
        if has_any_table:
            raise StoreMismatch(f"{address}: has a schema 'mainspring' that is not Mainspring's")
        return 0
    versions = await connection.execute("select max(version) from mainspring.schema_version")
    row = await versions.fetchone()
    return 0 if row is None or row[0] is None else int(row[0])
