"""The SQL of the PostgreSQL store. `clock_timestamp()` is the server's current time."""

from __future__ import annotations

from functools import cache
from typing import Final, LiteralString

_NOW: Final = "clock_timestamp()"
_ROW: Final = "seq, id, thread_id, time, version, type, body, prev, sender"
_ITEM: Final = (
    "event_id, client_id, thread_id, time, version, type, body, sender, position, seq, mac"
)
_UNNESTED_ROWS: Final = """
    unnest(%b::bigint[], %b::text[], %b::text[], %b::bigint[], %b::integer[], %b::text[],
           %b::text[], %b::bytea[], %b::text[])
"""

CREATE: Final = f"""
    with parent as (select key from mainspring.session where id = %(parent_id)s),
    created_session as (
      insert into mainspring.session(id, thread_id, created, updated, seq, hash, parent_key,
                                     parent_seq, indexed, activity, mac, status)
      select %(id)s, %(thread_id)s, %(created)s, %(updated)s, %(seq)s, %(hash)b,
             (select key from parent), %(parent_seq)s, %(parent_seq)s, %(activity)s::text,
             %(mac)b::bytea, %(status)s::text
       where %(parent_id)s::text is null or exists (select from parent)
      on conflict (id) do nothing
      returning key
    ),
    written as (
      insert into mainspring.event(session_key, {_ROW})
      select created_session.key, row.*
        from created_session, unnest(%(seqs)b::bigint[], %(ids)b::text[], %(threads)b::text[],
                          %(times)b::bigint[], %(versions)b::integer[], %(types)b::text[],
                          %(bodies)b::text[], %(prevs)b::bytea[], %(senders)b::text[]) row
    )
    select key from created_session
"""

_SESSIONS: Final = f"""
    select s.id, s.thread_id, s.created, s.updated, s.seq, s.hash, p.id, s.parent_seq, s.epoch,
           case when s.lease_until > {_NOW} then s.owner end, s.activity, s.mac,
           s.status
      from mainspring.session s left join mainspring.session p on p.key = s.parent_key
"""
SESSION: Final = f"{_SESSIONS} where s.id = %s"
SESSIONS: Final = f"""{_SESSIONS}
     where (s.created, s.id) < (%s, %s) order by s.created desc, s.id desc limit %s
"""
# Without an index, which would make every append more expensive.
CHANGED: Final = f"{_SESSIONS} where s.updated >= %s order by s.updated, s.id limit %s"
LATEST: Final = f"{_SESSIONS} where s.updated <= %s order by s.updated desc, s.id desc limit %s"
ROWS: Final = f"{_SESSIONS} where s.id = any(%b::text[])"
PENDING_TYPES: Final = """
    select distinct s.id, i.type
      from mainspring.session s join mainspring.inbox i on i.session_key = s.key
     where i.seq is null and s.id = any(%b::text[])
"""
NOTE_ACTIVITY: Final = """
    update mainspring.session s set activity = n.activity, status = n.status
      from unnest(%b::text[], %b::bigint[], %b::text[], %b::text[]) n(id, seq, activity, status)
     where s.id = n.id and s.seq = n.seq
"""
_ITEM_OF_SESSION: Final = ", ".join([f"i.{column}" for column in _ITEM.split(", ")])
FIRST_PENDING: Final = f"""
    select s.id, {_ITEM_OF_SESSION}
      from mainspring.session s cross join lateral (
           select * from mainspring.inbox
            where session_key = s.key and seq is null and type = any(%b::text[])
            order by position limit 1) i
     where s.id = any(%b::text[])
"""
READ_MANY: Final = f"""
    select (r.n - 1)::integer, e.*
      from unnest(%b::text[], %b::bigint[], %b::bigint[]) with ordinality r(id, after, upto, n)
      join mainspring.session s using (id)
     cross join lateral (
           select {_ROW} from mainspring.event
            where session_key = s.key and seq > r.after and seq <= r.upto
              and type = any(%b::text[])
            order by seq limit %s) e
     order by r.n, e.seq
"""
_STALE: Final = f"""
    s.updated < %s and s.lease_until <= {_NOW} and not exists (
      select from mainspring.inbox i where i.session_key = s.key and i.seq is null)
"""
STALE: Final = f"""
    select id from mainspring.session s where {_STALE} order by updated limit %s
"""
# A union, because `or` would scan all sessions.
RUNNABLE: Final = f"""
    select id from mainspring.session
     where key in (
           select key from mainspring.session where owner is not null
           union select session_key from mainspring.inbox where seq is null)
       and lease_until <= {_NOW}
     order by updated limit %s
"""
# Runs after the row is locked, so that it sees all earlier writes.
EXPIRED: Final = f"""
    select key from mainspring.session s where {_STALE} and key = %s
       and not exists (select from mainspring.session f where f.parent_key = s.key)
"""
HEADS: Final = "select id, seq, inbox_head from mainspring.session where id = any(%b::text[])"

LOCK_SESSION: Final = "select key from mainspring.session where id = %s for update"
SESSION_KEY: Final = "select key from mainspring.session where id = %s"
FORKS: Final = "select id from mainspring.session where parent_key = %s order by key"
DELETE_BLOBS: Final = """
    delete from mainspring.blob b where b.hash = any(%b::text[])
       and not exists (select from mainspring.blob_use u where u.hash = b.hash)
"""
DELETE_USES: Final = "delete from mainspring.blob_use where session_key = %s returning hash"
DELETES: Final = (
    "delete from mainspring.words where session_key = %s",
    "delete from mainspring.inbox where session_key = %s",
    "delete from mainspring.event where session_key = %s",
    "delete from mainspring.session where key = %s",
)

# The remaining text of a redacted event is indexed again.
REDACT: Final = (
    "update mainspring.event set body = %(body)s where seq = %(seq)s and session_key ="
    " (select key from mainspring.session where id = %(session_id)s)",
    "update mainspring.inbox set body = %(body)s where seq = %(seq)s and session_key ="
    " (select key from mainspring.session where id = %(session_id)s)",
    "delete from mainspring.words where seq = %(seq)s and session_key ="
    " (select key from mainspring.session where id = %(session_id)s)",
    "update mainspring.session set indexed = least(indexed, %(seq)s - 1) where id = %(session_id)s",
)
REMOVE_BLOB_USES: Final = "delete from mainspring.blob_use where hash = any(%s)"
REMOVE_BLOBS: Final = "delete from mainspring.blob where hash = any(%s)"

# The update decides: of several concurrent appends, the first locks the row; for the others, the
# conditions are then false. All other parts depend on the row that it returns.
_MOVED: Final = f"""
    with moved as (
      update mainspring.session
         set seq = %s, hash = %b, updated = %s, activity = %s, mac = %b::bytea,
             status = coalesce(%s, status),
             lease_until = {_NOW} + make_interval(secs => %s)
       where id = %s and seq = %s and hash = %b and epoch = %s
      returning key
    ),
"""
MAX_FEW_ROWS, MAX_FEW_ITEMS = 6, 1  # a turn has fewer; each number of both is a prepared statement
_ROW_VALUE: Final = "(%s::bigint, %s, %s, %s::bigint, %s::integer, %s, %s, %b::bytea, %s::text)"


@cache
def append_few(rows: int, items: int) -> LiteralString:
    """An append of so many rows and folded items. The driver takes a tenth of a turn's processor
    time to write arrays, so it gets single values."""
    row_values: LiteralString = ", ".join([_ROW_VALUE for _ in range(rows)])
    folded: LiteralString = ""
    if items:
        item_values: LiteralString = ", ".join(["(%s::bigint, %s::bigint)" for _ in range(items)])
        folded = f"""
    ,
    folded as (
      update mainspring.inbox i set seq = f.seq
        from moved, (values {item_values}) f(position, seq)
       where i.session_key = moved.key and i.position = f.position
    )"""
    return f"""
    {_MOVED}
    written as (
      insert into mainspring.event(session_key, {_ROW})
      select moved.key, row.* from moved, (values {row_values}) row
    ){folded}
    select from moved
"""


APPEND_MANY: Final = f"""
    {_MOVED}
    written as (
      insert into mainspring.event(session_key, {_ROW})
      select moved.key, row.* from moved, {_UNNESTED_ROWS} row
    ),
    folded as (
      update mainspring.inbox i set seq = f.seq
        from moved, unnest(%b::bigint[], %b::bigint[]) f(position, seq)
       where i.session_key = moved.key and i.position = f.position
    )
    select from moved
"""
SEQ_AND_EPOCH: Final = "select seq, epoch from mainspring.session where id = %s"

_READ: Final = f"""
    select {_ROW} from mainspring.event
     where session_key = (select key from mainspring.session where id = %(session_id)s)
       and seq > %(after)s and seq <= %(upto)s
"""
_FILTERED: Final = """
       and (%(types)b::text[] is null or type = any(%(types)b::text[]))
       and (%(threads)b::text[] is null or thread_id = any(%(threads)b::text[]))
"""
READ: Final = f"{_READ} order by seq limit %(limit)s"
READ_FILTERED: Final = f"{_READ} {_FILTERED} order by seq limit %(limit)s"
READ_BACKWARDS: Final = f"{_READ} order by seq desc limit %(limit)s"
READ_FILTERED_BACKWARDS: Final = f"{_READ} {_FILTERED} order by seq desc limit %(limit)s"

# The position is counted under the session's row lock, so positions become visible in order.
# If a client_id is submitted twice at once, the second violates `unique` and is retried.
SUBMIT: Final = f"""
    with existing as (
      select i.* from mainspring.inbox i join mainspring.session s on s.key = i.session_key
       where s.id = %(session_id)s and i.client_id = %(client_id)s
    ),
    moved as (
      update mainspring.session
         set inbox_head = inbox_head + 1, updated = greatest(updated, %(time)s::bigint)
       where id = %(session_id)s and not exists (select from existing)
      returning key, inbox_head
    ),
    inserted as (
      insert into mainspring.inbox(session_key, {_ITEM})
      select key, %(event_id)s, %(client_id)s, %(thread_id)s, %(time)s::bigint,
             %(version)s::integer, %(type)s, %(body)s, %(sender)s::text, inbox_head,
             %(seq)s::bigint, %(mac)b::bytea
        from moved
      returning *
    )
    select {_ITEM} from existing union all select {_ITEM} from inserted
"""
PENDING: Final = f"""
    select {_ITEM} from mainspring.inbox
     where session_key = %(key)s and position > %(after)s and seq is null
       and (%(types)b::text[] is null or type = any(%(types)b::text[]))
     order by position limit %(limit)s
"""
INBOX: Final = f"""
    select {_ITEM} from mainspring.inbox where session_key = %s and position > %s
     order by position limit %s
"""

ADOPT: Final = (
    "update mainspring.session set mac = %(mac)b where key = %(key)s and seq = %(seq)s and"
    " hash = %(hash)b returning key"
)
ADOPT_ITEMS: Final = """
    update mainspring.inbox i set mac = a.mac
      from unnest(%(positions)b::bigint[], %(macs)b::bytea[]) a(position, mac)
     where i.session_key = %(key)s and i.position = a.position
"""
DISCARD_ITEMS: Final = """
    delete from mainspring.inbox
     where session_key = %(key)s and seq is null and mac is null
"""

ACQUIRE: Final = f"""
    update mainspring.session
       set epoch = epoch + 1, owner = %(owner)s,
           lease_until = {_NOW} + make_interval(secs => %(seconds)s)
     where id = %(session_id)s
       and (owner is null or lease_until <= {_NOW}
            or (owner = %(holder)s::text and epoch = %(epoch)s::bigint))
    returning epoch
"""
HOLDER: Final = f"""
    select owner, epoch, extract(epoch from greatest(lease_until, {_NOW}) - {_NOW})::float8
      from mainspring.session where id = %s
"""
RENEW: Final = f"""
    update mainspring.session set lease_until = {_NOW} + make_interval(secs => %s)
     where id = %s and epoch = %s
    returning key
"""
RELEASE: Final = """
    update mainspring.session set epoch = epoch + 1, owner = null, lease_until = '-infinity'
     where id = %s and epoch = %s
"""

PUT_BLOB: Final = """
    with owner as (select key from mainspring.session where id = %(session_id)s for key share),
    inserted as (
      insert into mainspring.blob(hash, content)
      select %(hash)s, %(content)b::bytea from owner
      on conflict (hash) do nothing
    ),
    inserted_use as (
      insert into mainspring.blob_use(session_key, hash) select key, %(hash)s from owner
      on conflict do nothing
    )
    select key from owner
"""
BLOB: Final = "select content from mainspring.blob where hash = %s"
BLOBS: Final = "select hash from mainspring.blob_use where session_key = %s order by hash"

_UNINDEXED: Final = """
    select s.id, e.seq, e.id, e.thread_id, e.time, e.version, e.type, e.body, e.prev, e.sender
      from mainspring.session s
      join mainspring.event e on e.session_key = s.key and e.seq > s.indexed
     where s.indexed < s.seq
"""
UNINDEXED: Final = f"{_UNINDEXED} order by s.key, e.seq limit %s"
UNINDEXED_IN: Final = f"{_UNINDEXED} and s.id = %s order by s.key, e.seq limit %s"
# If a session was deleted in the meantime, nothing is updated or stored. If another process indexed
# it in the meantime, the same texts replace its texts.
INDEX: Final = """
    with updated_session as (
      update mainspring.session s set indexed = greatest(s.indexed, u.seq)
        from unnest(%(sessions)b::text[], %(uptos)b::bigint[]) u(id, seq)
       where s.id = u.id
      returning s.key, s.id
    )
    insert into mainspring.words(session_key, seq, text, words)
    select updated_session.key, t.seq, t.text, to_tsvector('simple', t.folded)
      from updated_session
      join unnest(%(ids)b::text[], %(seqs)b::bigint[], %(texts)b::text[], %(folded)b::text[])
        t(id, seq, text, folded) using (id)
    on conflict (session_key, seq) do update set text = excluded.text, words = excluded.words
"""
_SEARCH: Final = """
    select s.id, w.seq, w.text
      from to_tsquery('simple', %(query)s) query, mainspring.words w
      join mainspring.session s on s.key = w.session_key
     where w.words @@ query
       and (%(everywhere)s or exists (
             select from unnest(%(ids)b::text[], %(afters)b::bigint[], %(uptos)b::bigint[])
                         span(id, after, upto)
              where span.id = s.id and w.seq > span.after and w.seq <= span.upto))
"""
_BEST_FIRST: Final = """
     order by ts_rank(w.words, query) desc, w.session_key desc, w.seq desc
     limit %(limit)s
"""
SEARCH: Final = f"{_SEARCH} {_BEST_FIRST}"
_FIRST_EVENT: Final = """
    (%(agent)s::text is null or (e.body::json -> 'agent_name')::text = %(agent)s)
    and (%(user)s::text is null or (e.sender::json -> 'id')::text = %(user)s)
    and coalesce((e.body::json -> 'origin' -> 'type')::text, '')
        <> all(%(without_origins)b::text[])
"""
_SCOPED_SESSION: Final = """
    s.id <> all(%(without_sessions)b::text[])
    and (%(any_tenant)s or %(tenant)s::text is not distinct from
         (select r.tenant from mainspring.record r where r.kind = 'session' and r.id = s.id))
"""
SEARCH_IN_SCOPE: Final = f"""
    with recursive allowed(key) as (
      select s.key from mainspring.session s
        join mainspring.event e on e.session_key = s.key and e.seq = 1
       where s.parent_key is null and {_FIRST_EVENT}
      union all
      select s.key from mainspring.session s join allowed on s.parent_key = allowed.key
    )
    {_SEARCH}
       and s.key in (select key from allowed)
       and {_SCOPED_SESSION}
    {_BEST_FIRST}
"""
IN_SCOPE: Final = f"""
    with recursive line(id, key, parent_key) as (
      select s.id, s.key, s.parent_key from mainspring.session s
       where s.id = any(%(ids)b::text[])
      union all
      select line.id, p.key, p.parent_key
        from line join mainspring.session p on p.key = line.parent_key
    )
    select s.id from line s join mainspring.event e on e.session_key = s.key and e.seq = 1
     where s.parent_key is null and {_FIRST_EVENT} and {_SCOPED_SESSION}
"""
