from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from itertools import pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.row_checks import for_each

from mainspring.core.errors import InvalidInput
from mainspring.service.schedules.cron import (
    CronSchedule,
    QuietHours,
    SchedulePolicy,
    check_cron,
    fire_times,
    jitter,
    latest_fire_times,
    next_fire_time,
    select_missed,
    upcoming_fire_times,
)

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
ZONES = (
    "UTC",
    "America/New_York",
    "Europe/Paris",
    "Australia/Lord_Howe",  # half an hour
    "Antarctica/Troll",  # two hours
    "Asia/Kolkata",
    "America/Santiago",  # at midnight
)
CHANGES = (  # moments near which some of these zones set their clocks
    datetime(2026, 3, 8, 7, tzinfo=UTC),
    datetime(2026, 3, 29, 1, tzinfo=UTC),
    datetime(2026, 4, 4, 15, tzinfo=UTC),
    datetime(2026, 4, 5, 3, tzinfo=UTC),
    datetime(2026, 9, 6, 4, tzinfo=UTC),
    datetime(2026, 10, 3, 15, 30, tzinfo=UTC),
    datetime(2026, 10, 25, 1, tzinfo=UTC),
    datetime(2026, 11, 1, 6, tzinfo=UTC),
)


def cron(
    expression: str, timezone: str = "UTC", policy: SchedulePolicy | None = None
) -> CronSchedule:
    return CronSchedule(expression=expression, timezone=timezone, policy=policy or SchedulePolicy())


def fire_times_until(schedule: CronSchedule, after: datetime, upto: datetime) -> Iterator[datetime]:
    return takewhile(lambda each: each <= upto, fire_times(schedule, after))


def format_times(moments: list[datetime]) -> list[str]:
    return [moment.strftime("%m-%d %H:%M") for moment in moments]


def test_a_weekday_schedule_fires_at_the_same_local_time_all_year():
    morning = cron("0 9 * * 1-5", "America/New_York")
    assert next_fire_time(morning, datetime(2026, 3, 6, tzinfo=UTC)) == datetime(
        2026, 3, 6, 14, tzinfo=UTC
    )
    assert next_fire_time(morning, datetime(2026, 3, 6, 14, tzinfo=UTC)) == datetime(
        2026, 3, 9, 13, tzinfo=UTC
    )


def test_a_local_time_skipped_by_dst_does_not_fire():
    night = cron("30 2 * * *", "America/New_York")
    assert format_times(upcoming_fire_times(night, datetime(2026, 3, 7, tzinfo=UTC), 2)) == [
        "03-07 07:30",
        "03-09 06:30",
    ]


def test_a_local_time_repeated_by_dst_fires_twice():
    night = cron("30 1 * * *", "America/New_York")
    assert format_times(upcoming_fire_times(night, datetime(2026, 10, 31, 12, tzinfo=UTC), 3)) == [
        "11-01 05:30",
        "11-01 06:30",
        "11-02 06:30",
    ]


def test_firings_within_a_repeated_hour_come_in_order():
    often = cron("*/30 1 * * *", "America/New_York")
    assert format_times(upcoming_fire_times(often, datetime(2026, 11, 1, 4, tzinfo=UTC), 4)) == [
        "11-01 05:00",
        "11-01 05:30",
        "11-01 06:00",
        "11-01 06:30",
    ]


FIELDS = st.tuples(
    st.sampled_from(["*", "*/7", "0", "30", "0,30,59", "10-20"]),
    st.sampled_from(["*", "*/2", "0", "1", "2", "1-3", "23"]),
    st.sampled_from(["*", "1", "8", "29", "31"]),
    st.sampled_from(["*", "3", "10", "3-11"]),
    st.sampled_from(["*", "0", "7", "1-5"]),
)


@given(
    fields=FIELDS,
    zone=st.sampled_from(ZONES),
    change=st.sampled_from(CHANGES),
    minutes=st.integers(min_value=-600, max_value=600),
)
def test_fire_times_are_exactly_the_matching_local_minutes_in_order(
    fields: tuple[str, ...], zone: str, change: datetime, minutes: int
):
    after = change + timedelta(minutes=minutes)
    span = timedelta(hours=5)
    wanted = [
        moment
        for step in range(1, 301)
        if _matches(fields, (moment := after + timedelta(minutes=step)).astimezone(ZoneInfo(zone)))
    ]
    found = list(fire_times_until(cron(" ".join(fields), zone), after, after + span))
    assert found == wanted
    assert all(one < other for one, other in pairwise(found))


def _matches(fields: tuple[str, ...], wall: datetime) -> bool:
    minute, hour, day, month, weekday = fields
    dow = wall.isoweekday() % 7
    day_fits = _fits(day, wall.day, 1)
    dow_fits = _fits(weekday, dow, 0) or (dow == 0 and _fits(weekday, 7, 0))
    is_either = day != "*" and weekday != "*"
    return (
        _fits(minute, wall.minute, 0)
        and _fits(hour, wall.hour, 0)
        and _fits(month, wall.month, 1)
        and (day_fits or dow_fits if is_either else day_fits and dow_fits)
    )


def _fits(field: str, value: int, first: int) -> bool:
    if field == "*":
        return True
    if field.startswith("*/"):
        return (value - first) % int(field[2:]) == 0
    if "-" in field:
        low, high = field.split("-")
        return int(low) <= value <= int(high)
    return str(value) in field.split(",")


@given(
    fields=FIELDS,
    zone=st.sampled_from(ZONES),
    change=st.sampled_from(CHANGES),
    n=st.integers(min_value=1, max_value=20),
    hours=st.integers(min_value=1, max_value=60),
)
def test_the_latest_fire_times_are_the_last_ones(
    fields: tuple[str, ...], zone: str, change: datetime, n: int, hours: int
):
    schedule = cron(" ".join(fields), zone)
    upto = change + timedelta(hours=hours)
    assert (
        latest_fire_times(schedule, change, upto, n)
        == list(fire_times_until(schedule, change, upto))[-n:]
    )


@for_each(
    "expression",
    [
        "* * * *",
        "* * * * * *",
        "@daily",
        "0 0 L * *",
        "0 0 * * 5#2",
        "0 0 1W * *",
        "0 0 ? * *",
        "60 * * * *",
        "0 0 30 2 *",
        "0 0 * * 8",
        "a b c d e",
        "0 0 * * ABC",
        "*/0 * * * *",
        "",
        "0  9 * * *",
        "٠ 9 * * *",
    ],
)
def test_an_invalid_cron_expression_is_refused(expression: str):
    with pytest.raises(InvalidInput, match="expression"):
        check_cron(cron(expression), now=NOW)


@pytest.mark.parametrize("zone", ["Mars/Base", "", "../../etc/passwd", "/etc/passwd", "a" * 300])
def test_an_invalid_time_zone_is_refused(zone: str):
    with pytest.raises(InvalidInput, match="timezone"):
        check_cron(cron("0 9 * * *", zone), now=NOW)


@pytest.mark.parametrize(
    "expression", ["0 9 * * MON-FRI", "*/5 0-6,20-23 1,15 JAN *", "0 0 29 2 *"]
)
def test_names_lists_and_leap_days_are_accepted(expression: str):
    assert check_cron(cron(expression), now=NOW)


def test_nothing_fires_in_quiet_hours():
    policy = SchedulePolicy(quiet_hours=QuietHours(start=time(22), end=time(7)))
    hourly = cron("0 * * * *", "Europe/Paris", policy)
    found = upcoming_fire_times(hourly, NOW, 48)
    assert {item.astimezone(ZoneInfo("Europe/Paris")).hour for item in found} == set(range(7, 22))


def test_a_schedule_that_never_fires_is_refused():
    policy = SchedulePolicy(quiet_hours=QuietHours(start=time(8), end=time(10)))
    with pytest.raises(InvalidInput, match="never fires"):
        check_cron(cron("0 9 * * *", policy=policy), now=NOW)


@pytest.mark.parametrize(
    ("policy", "minutes_ago", "left"),
    [
        (SchedulePolicy(missed="skip"), [180, 120, 5], [5]),
        (SchedulePolicy(missed="skip"), [180, 120], []),
        (SchedulePolicy(missed="once"), [180, 120], [120]),
        (SchedulePolicy(missed="once"), [180, 120, 5], [5]),
        (SchedulePolicy(missed="all"), [180, 120, 5], [180, 120, 5]),
        (SchedulePolicy(missed="all", max_missed=2), [180, 120, 5], [120, 5]),
        (SchedulePolicy(missed="skip", grace_seconds=0), [1], []),
    ],
)
def test_missed_firings_are_selected_by_policy(
    policy: SchedulePolicy, minutes_ago: list[int], left: list[int]
):
    due = [NOW - timedelta(minutes=item) for item in minutes_ago]
    assert select_missed(policy, due, now=NOW) == [NOW - timedelta(minutes=item) for item in left]


@given(st.text(min_size=1, max_size=40), st.integers(min_value=0, max_value=3600))
def test_jitter_is_deterministic_and_bounded(id_: str, seconds: int):
    schedule = cron("* * * * *", policy=SchedulePolicy(jitter_seconds=seconds))
    assert jitter(schedule, id_) == jitter(schedule, id_)
    assert timedelta() <= jitter(schedule, id_) <= timedelta(seconds=seconds)
