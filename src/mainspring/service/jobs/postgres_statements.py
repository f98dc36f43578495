"""SQL for what Procrastinate's own functions lack: rescheduling, fair order, jobs of dead workers.

Its `retry_job` fails when another job of the same name was queued meanwhile, and leaves the job in
`doing` forever; its `finish_job` also ends a job that another worker has taken since. These
statements check which worker runs a job, and let a waiting job replace one that is given back.

A tenant is a queue. A job's place (a priority, the higher the sooner) is one behind its tenant's
last, and not before the next due job: so tenants take turns, and none gets ahead for having been
idle. A job that is due later has no place until it is due.
"""

from __future__ import annotations

from typing import Final

SCHEMA: Final = "procrastinate"
LATER_PRIORITY: Final = -2_000_000_000
"""The place of a job that is not due yet."""

PREPARE: Final = f"""
    create schema if not exists {SCHEMA};
    set search_path to {SCHEMA};
"""
LOCK: Final = "select pg_advisory_xact_lock(hashtext('mainspring.fleet'))"
TABLE_EXISTS: Final = f"select to_regclass('{SCHEMA}.procrastinate_jobs')"
INDEX: Final = """
    create index if not exists mainspring_turns on procrastinate_jobs (queue_name, priority)
     where status = 'todo'
"""

_DUE_AT: Final = """
    case when %(seconds)s::float > 0 then now() + make_interval(secs => %(seconds)s::float) end
"""
_PLACE: Final = f"""
    -greatest(
        coalesce((select -max(priority) from procrastinate_jobs
                   where status = 'todo' and priority > {LATER_PRIORITY}), 0),
        coalesce((select 1 - min(priority) from procrastinate_jobs
                   where status = 'todo' and priority > {LATER_PRIORITY}
                     and queue_name = %(queue)s::varchar), 0))
"""

PUT: Final = f"""
    with put as (
        insert into procrastinate_jobs as waiting
            (queue_name, task_name, priority, lock, queueing_lock, args, scheduled_at)
        values (%(queue)s::varchar, %(task)s::varchar,
                case when %(seconds)s::float > 0 then {LATER_PRIORITY} else {_PLACE} end,
                %(name)s::text, %(name)s::text, %(args)s::jsonb, {_DUE_AT})
        on conflict (queueing_lock) where status = 'todo'
        do update set scheduled_at = excluded.scheduled_at, priority = excluded.priority
            where waiting.scheduled_at > coalesce(excluded.scheduled_at, now())
        returning xmax <> 0 as has_moved)
    select pg_notify('procrastinate_any_queue_v1', '{{"type": "job_inserted", "job_id": 0}}')
      from put where has_moved
"""
FIND_JOBS: Final = """
    select distinct queueing_lock from procrastinate_jobs
     where queueing_lock = any(%(names)s::text[]) and status in ('todo', 'doing')
"""
BACKLOG: Final = """
    select count(*) as jobs,
           coalesce(extract(epoch from now() - min(coalesce(j.scheduled_at, (
             select max(e.at) from procrastinate_events e where e.job_id = j.id)))), 0)::float
             as oldest_seconds
      from procrastinate_jobs j
     where j.status = 'todo' and (j.scheduled_at is null or j.scheduled_at <= now())
"""
REMIND: Final = f"""
    insert into procrastinate_jobs
        (queue_name, task_name, priority, lock, queueing_lock, args)
    values (%(queue)s::varchar, %(task)s::varchar, {_PLACE},
            %(name)s::text, %(name)s::text, %(args)s::jsonb)
    on conflict (queueing_lock) where status = 'todo' do nothing
"""
CANCEL: Final = (
    "delete from procrastinate_jobs where queueing_lock = %(name)s::text and status = 'todo'"
)
FINISH: Final = """
    delete from procrastinate_jobs where id = %(id)s and status = 'doing' and worker_id = %(me)s
"""
POSTPONE: Final = f"""
    with given_back as (
        delete from procrastinate_jobs
         where id = %(id)s and status = 'doing' and worker_id = %(me)s returning *)
    insert into procrastinate_jobs as waiting
        (queue_name, task_name, priority, lock, queueing_lock, args, attempts, scheduled_at)
    select queue_name, task_name,
           case when %(seconds)s::float > 0 then {LATER_PRIORITY} else {_PLACE} end,
           lock, queueing_lock, args, attempts + %(failures)s::int, {_DUE_AT}
      from given_back
    on conflict (queueing_lock) where status = 'todo'
    do update set attempts = greatest(waiting.attempts, excluded.attempts)
"""
BEAT: Final = """
    update procrastinate_workers set last_heartbeat = now() where id = %(me)s returning id
"""
PROMOTE: Final = f"""
    update procrastinate_jobs
       set priority = coalesce((select max(priority) from procrastinate_jobs
                                 where status = 'todo' and priority > {LATER_PRIORITY}), 0)
     where status = 'todo' and priority = {LATER_PRIORITY} and scheduled_at <= now()
"""
RESCUE: Final = """
    with lost as (
        select id, queueing_lock from procrastinate_jobs
         where status = 'doing'
           and (worker_id is null or worker_id = %(me)s and not id = any(%(running)s::bigint[]))
         for update skip locked),
    doubled as (
        delete from procrastinate_jobs job using lost
         where job.id = lost.id and exists (
               select 1 from procrastinate_jobs waiting
                where waiting.queueing_lock = lost.queueing_lock and waiting.status = 'todo')
         returning job.id)
    update procrastinate_jobs job
       set status = 'todo', worker_id = null, attempts = attempts + 1, scheduled_at = null
      from lost
     where job.id = lost.id and not exists (
           select 1 from procrastinate_jobs waiting
            where waiting.queueing_lock = lost.queueing_lock and waiting.status = 'todo')
    returning job.id
"""
OPEN_QUEUES: Final = """
    select array_agg(distinct queue_name) from procrastinate_jobs
     where status = 'todo' and queue_name not in (
           select queue_name from procrastinate_jobs where status = 'doing'
            group by queue_name having count(*) >= %(limit)s)
"""
