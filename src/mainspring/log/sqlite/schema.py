"""Tables of the SQLite store, as steps from one version to the next."""

from __future__ import annotations

from mainspring.log.migrate import Migration

APPLICATION_ID = 0x4D535047
"""`MSPG`, in the file's header: distinguishes our files from other databases."""


def _recreate_event(options: str) -> tuple[str, ...]:
    columns = "session_key, seq, id, thread_id, time, version, type, body, prev, sender"
    return (
        f"""
        create table event_copy(
          session_key integer not null,
          seq integer not null,
          id text not null,
          thread_id text not null,
          time integer not null,
          version integer not null,
          type text not null,
          body text not null,
          prev blob not null,
          sender text,
          primary key(session_key, seq)
        ) {options}
        """,
        f"insert into event_copy({columns}) select {columns} from event order by session_key, seq",
        "drop table event",
        "alter table event_copy rename to event",
    )


_FOLLOW_STATUS = """
    update record_filter
       set value = (select status from listed_status where key = {key})
     where kind = 'session' and name = 'status'
       and id = (select id from session where key = {key})
       and value <> (select status from listed_status where key = {key})
"""
"""A list shows the status of a session from the commit on that changes it: triggers, so that no
writer can forget it."""

MIGRATIONS = (
    Migration(
        version=1,
        up=(
            """
            create table session(
              key integer primary key autoincrement,
              id text not null unique,
              thread_id text not null,
              created integer not null,
              updated integer not null,
              seq integer not null,
              hash blob not null,
              parent_key integer references session(key),
              parent_seq integer not null,
              epoch integer not null default 0,
              owner text,
              lease_until real not null default 0,
              inbox_head integer not null default 0,
              indexed integer not null default 0
            ) strict
            """,
            "create index session_by_created on session(created)",
            "create index session_by_parent on session(parent_key) where parent_key is not null",
            """
            create table event(
              session_key integer not null,
              seq integer not null,
              id text not null,
              thread_id text not null,
              time integer not null,
              version integer not null,
              type text not null,
              body text not null,
              prev blob not null,
              primary key(session_key, seq)
            ) strict, without rowid
            """,
            """
            create table inbox(
              session_key integer not null,
              position integer not null,
              client_id text not null,
              event_id text not null,
              thread_id text not null,
              time integer not null,
              version integer not null,
              type text not null,
              body text not null,
              seq integer,
              primary key(session_key, position)
            ) strict, without rowid
            """,
            "create unique index inbox_by_client on inbox(session_key, client_id)",
            "create index inbox_pending on inbox(session_key, position) where seq is null",
            "create table blob(hash text primary key, content blob not null) strict",
            """
            create table blob_use(
              session_key integer not null,
              hash text not null,
              primary key(session_key, hash)
            ) strict, without rowid
            """,
            "create index blob_use_by_hash on blob_use(hash)",
            # rowid = session_key << 32 | seq, so that a session's words are one range
            "create virtual table words using fts5"
            "(text, tokenize = 'unicode61 remove_diacritics 2')",
        ),
        down=(
            "drop table words",
            "drop table blob_use",
            "drop table blob",
            "drop table inbox",
            "drop table event",
            "drop table session",
        ),
    ),
    Migration(
        version=2,
        up=(
            """
            create table record(
              kind text not null,
              id text not null,
              tenant text not null,
              parent text not null,
              name text,
              label text not null,
              created integer not null,
              updated integer not null,
              due integer,
              is_archived integer not null,
              rev integer not null,
              body blob not null,
              primary key(kind, id)
            ) strict, without rowid
            """,
            "create index record_by_created on record(kind, tenant, created, id)",
            "create index record_by_parent on record(kind, parent, created, id) where parent <> ''",
            "create index record_by_label on record(kind, label, tenant, created, id)"
            " where label <> ''",
            "create unique index record_by_name on record(kind, tenant, parent, name)"
            " where name is not null",
            "create index record_by_due on record(kind, due, id) where due is not null",
            """
            create table record_content(
              kind text not null,
              id text not null,
              content blob not null,
              primary key(kind, id)
            ) strict
            """,
            "create table tally(name text primary key, amount integer not null)"
            " strict, without rowid",
            # Sessions with a lease holder, alive or dead. It covers no column that an append
            # changes, so an append updates no index but that of its events.
            "create index session_held on session(key) where owner is not null",
        ),
        down=None,  # agents, keys and schedules are stored nowhere else
    ),
    Migration(
        version=3,
        up=(
            "alter table event add column sender text",
            "alter table inbox add column sender text",
        ),
        down=None,  # an event's hash covers its sender
    ),
    Migration(
        version=4,
        # With rows in order of arrival and an index by (session, seq), a commit of many sessions
        # writes a few pages. Clustered by session, it would write two or three for each event.
        up=_recreate_event("strict"),
        down=_recreate_event("strict, without rowid"),
    ),
    Migration(
        version=5,
        # Filled by the next append of each session, or when somebody lists it.
        up=("alter table session add column activity text",),
        down=("alter table session drop column activity",),
    ),
    Migration(
        version=6,
        # Rows from before have no MAC: they are foreign until somebody adopts them.
        up=(
            "alter table session add column mac blob",
            "alter table inbox add column mac blob",
            "alter table record add column content_hash blob",
            "alter table record add column mac blob",
        ),
        down=(
            "alter table session drop column mac",
            "alter table inbox drop column mac",
            "alter table record drop column content_hash",
            "alter table record drop column mac",
        ),
    ),
    Migration(
        version=7,
        # What lists filter by. A service fills it for the records and sessions that exist, in
        # steps, before it answers (`service/sessions/session_filters.py`).
        up=(
            "alter table session add column status text",
            """
            create table record_filter(
              kind text not null,
              id text not null,
              name text not null,
              value text not null,
              tenant text not null,
              is_archived integer not null,
              created integer not null,
              primary key(id, kind, name, value)
            ) strict, without rowid
            """,
            "create index record_filter_by_value"
            " on record_filter(kind, tenant, name, value, is_archived, created, id)",
            "create index record_by_archived on record(kind, tenant, is_archived, created, id)",
            """
            create view listed_status as
            select s.key, s.id, case
                     when s.status <> 'idle' then s.status
                     when exists (
                       select 1 from inbox i
                        where i.session_key = s.key and i.seq is null and i.mac is not null
                          and i.type in ('user.message', 'user.tool_confirmation',
                            'user.custom_tool_result', 'user.tool_result', 'user.define_outcome'))
                     then 'running'
                     else 'idle'
                   end as status
              from session s
            """,
            *(
                f"create trigger {name} {event} begin {_FOLLOW_STATUS.format(key=key)}; end"
                for name, event, key in (
                    ("session_created", "after insert on session", "new.key"),
                    (
                        "session_status_changed",
                        "after update of status on session when new.status is not old.status",
                        "new.key",
                    ),
                    (
                        "inbox_item_submitted",
                        "after insert on inbox when new.seq is null",
                        "new.session_key",
                    ),
                    (
                        "inbox_item_folded",
                        "after update of seq, mac on inbox when old.seq is null",
                        "new.session_key",
                    ),
                )
            ),
        ),
        down=(
            "drop trigger inbox_item_folded",
            "drop trigger inbox_item_submitted",
            "drop trigger session_status_changed",
            "drop trigger session_created",
            "drop view listed_status",
            "drop index record_by_archived",
            "drop table record_filter",
            "alter table session drop column status",
        ),
    ),
)
