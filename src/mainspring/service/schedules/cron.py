"""The times at which a schedule fires: cron in a time zone, with our policies. Pure.

Wall-clock times are matched literally, as the Managed Agents API defines: one that a clock change
skips does not fire, one that it repeats fires twice.
"""

from __future__ import annotations

import calendar
import hashlib
import re
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from datetime import UTC, datetime, time, timedelta
from functools import lru_cache
from itertools import islice
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from msgspec import Meta, Struct

from mainspring.core.errors import InvalidInput

_CRON_WORD = re.compile(r"\*|[0-9]{1,2}|[A-Za-z]{3}")
_CRON_NAMES = frozenset((*calendar.day_abbr, *calendar.month_abbr[1:]))
_CLOCK_CHANGE_MARGIN = timedelta(hours=4)
"""No zone sets its clock back by more."""
_QUIET_TRIES = 2000
"""After this many fire times in a row within quiet hours, the search ends: more than a day of
minutes."""
_TIME_ZONE_NAME = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,2}")


class QuietHours(Struct, frozen=True, kw_only=True):
    """Nothing runs from `start` until before `end`, in the schedule's time zone. If the end is
    before the start, they span midnight."""

    start: time
    end: time

    def covers(self, wall: time) -> bool:
        if self.start <= self.end:
            return self.start <= wall < self.end
        return wall >= self.start or wall < self.end


class SchedulePolicy(Struct, frozen=True, kw_only=True):
    """An extension; the defaults behave like the Managed Agents API."""

    missed: Literal["skip", "once", "all"] = "once"
    """How missed runs are made up for: not at all, by one run for all, or by one run for each."""
    max_missed: Annotated[int, Meta(ge=1, le=100)] = 10
    """With `all`: how many of the latest missed runs are made up for."""
    grace_seconds: Annotated[int, Meta(ge=0, le=86_400)] = 600
    """With `skip`: how long the last run counts as late, not missed."""
    overlap: Literal["allow", "skip", "queue"] = "allow"
    """What happens if the previous session still runs: start another, skip, or wait."""
    jitter_seconds: Annotated[int, Meta(ge=0, le=3600)] = 10
    """Each schedule is delayed by a fixed part of this, so that not all start at once."""
    quiet_hours: QuietHours | None = None


class CronSchedule(Struct, frozen=True, kw_only=True):
    """The times of a schedule. Check it with `check_cron`."""

    expression: str
    timezone: str
    policy: SchedulePolicy = SchedulePolicy()


def check_cron(schedule: CronSchedule, *, now: datetime) -> CronSchedule:
    """Raises: InvalidInput: it cannot be parsed, or never fires."""
    _check_expression(schedule.expression)
    _check_zone(schedule.timezone)
    quiet = schedule.policy.quiet_hours
    if quiet is not None and (quiet.start.tzinfo or quiet.end.tzinfo):
        raise InvalidInput(
            "schedule.policy.quiet_hours: must be times without a zone, such as 22:00:00"
        )
    if next_fire_time(schedule, now) is None:
        raise InvalidInput("schedule: it never fires; check expression and quiet_hours")
    return schedule


def next_fire_time(schedule: CronSchedule, after: datetime) -> datetime | None:
    """The first fire after that moment, in UTC and without jitter; `None` if there is none."""
    return next(fire_times(schedule, after), None)


def upcoming_fire_times(schedule: CronSchedule, after: datetime, n: int) -> list[datetime]:
    return list(islice(fire_times(schedule, after), n))


def latest_fire_times(
    schedule: CronSchedule, after: datetime, upto: datetime, n: int
) -> list[datetime]:
    """The last `n` fire times with `after < fire <= upto`, in order."""
    span = timedelta(hours=1)
    while True:
        start = max(after, upto - span)
        times = [*_times_until(fire_times(schedule, start), upto)]
        if len(times) >= n or start == after:
            return times[-n:]
        span *= 4


def fire_times(schedule: CronSchedule, after: datetime) -> Generator[datetime, None, None]:
    """All fire times after that moment; ends after fifty years without one, or if too many in a row
    are in quiet hours."""
    zone, quiet, quiet_count = ZoneInfo(schedule.timezone), schedule.policy.quiet_hours, 0
    for moment in _matching_times(schedule.expression, zone, after.astimezone(UTC)):
        if quiet is None or not quiet.covers(moment.astimezone(zone).time()):
            quiet_count = 0
            yield moment
            continue
        quiet_count += 1
        if quiet_count == _QUIET_TRIES:
            return


def jitter(schedule: CronSchedule, id_: str) -> timedelta:
    """The delay of the schedule with this id; always the same."""
    digest = hashlib.sha256(id_.encode()).digest()
    part = int.from_bytes(digest[:8]) / 2**64
    return timedelta(milliseconds=int(part * schedule.policy.jitter_seconds * 1000))


def select_missed(
    schedule_policy: SchedulePolicy, due: Sequence[datetime], *, now: datetime
) -> list[datetime]:
    """The due fires that actually happen: usually there is one."""
    match schedule_policy.missed:
        case "skip":
            grace = timedelta(seconds=schedule_policy.grace_seconds)
            return [item for item in due[-1:] if now - item <= grace]
        case "once":
            return list(due[-1:])
        case "all":
            return list(due[-schedule_policy.max_missed :])


def _matching_times(
    expression: str, zone: ZoneInfo, after: datetime
) -> Generator[datetime, None, None]:
    """The times, in order, at which the zone's clock shows a matching time."""
    begin = after.astimezone(zone).replace(tzinfo=None, fold=0)
    if _offset(after - _CLOCK_CHANGE_MARGIN, zone) != _offset(after + _CLOCK_CHANGE_MARGIN, zone):
        begin -= _CLOCK_CHANGE_MARGIN  # the clock may repeat times
    again = deque[datetime]()
    for wall in CronSim(expression, begin):
        for is_repeated, moment in enumerate(_times_of_wall_clock(wall, zone)):
            if is_repeated:  # other first times may precede it
                again.append(moment)
                continue
            while again and again[0] < moment:
                yield from _times_after((again.popleft(),), after)
            yield from _times_after((moment,), after)
    yield from _times_after(again, after)


def _times_after(moments: Iterable[datetime], after: datetime) -> list[datetime]:
    return [moment for moment in moments if moment > after]


def _offset(moment: datetime, zone: ZoneInfo) -> timedelta | None:
    return moment.astimezone(zone).utcoffset()


def _times_of_wall_clock(wall: datetime, zone: ZoneInfo) -> list[datetime]:
    """The times at which the clock shows this: one, none, or two."""
    times: list[datetime] = []
    for fold in (0, 1):
        moment = wall.replace(tzinfo=zone, fold=fold).astimezone(UTC)
        is_shown = moment.astimezone(zone).replace(tzinfo=None) == wall
        if is_shown and moment not in times:
            times.append(moment)
    return times


def _times_until(
    moments: Generator[datetime, None, None], upto: datetime
) -> Generator[datetime, None, None]:
    for moment in moments:
        if moment > upto:
            return
        yield moment


def _check_expression(expression: str) -> None:
    fields = expression.split(" ")
    if len(fields) != 5 or not all(_is_valid_field(field) for field in fields):
        raise InvalidInput(
            "schedule.expression: five fields with one space between them (minute hour"
            " day-of-month month day-of-week) of numbers, * , - and /"
        )
    try:
        CronSim(expression, datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        raise InvalidInput(f"schedule.expression: {error}") from error


def _is_valid_field(field: str) -> bool:
    return 0 < len(field) <= 200 and all(
        _CRON_WORD.fullmatch(word) and (not word.isalpha() or word.capitalize() in _CRON_NAMES)
        for word in re.split(r"[,/-]", field)
    )


@lru_cache(maxsize=1000)
def _check_zone(name: str) -> None:
    try:
        if not _TIME_ZONE_NAME.fullmatch(name):  # used as a path
            raise ValueError
        ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise InvalidInput(
            f"schedule.timezone: {name[:64]!r} is not an IANA time zone such as Europe/Paris"
        ) from error
