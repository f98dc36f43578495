"""Turns, for any arrivals: nobody waits while another is served twice, and nothing is lost."""

from collections import Counter
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from mainspring.service.jobs.embedded_dispatcher import FairQueue

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TENANTS = st.sampled_from(["ada", "bob", "cyd", "dan"])
STEPS = st.lists(st.one_of(TENANTS.map(lambda tenant: ("put", tenant)), st.just(("take", ""))))


@given(STEPS)
def test_no_tenant_is_served_twice_while_another_waits(steps: list[tuple[str, str]]):
    turns = FairQueue()
    waiting: Counter[str] = Counter()
    served: dict[str, Counter[str]] = {}
    for number, (step, tenant) in enumerate([*steps, *[("take", "")] * len(steps)]):
        if step == "put":
            turns.put(f"{tenant} {number}", tenant, NOW)
            waiting[tenant] += 1
            served.setdefault(tenant, Counter())
            continue
        taken = turns.take(NOW)
        if taken is None:
            assert not waiting.total()
            continue
        lucky = taken.split()[0]
        waiting[lucky] -= 1
        for other, seen in served.items():
            if other != lucky and waiting[other]:
                seen[lucky] += 1
                assert seen[lucky] <= 1
        served[lucky] = Counter()
    assert not waiting.total()


@given(st.lists(st.tuples(TENANTS, st.integers(-5, 5)), min_size=1))
def test_jobs_of_a_tenant_are_taken_in_order_of_their_time(jobs: list[tuple[str, int]]):
    turns = FairQueue()
    for number, (tenant, seconds) in enumerate(jobs):
        turns.put(f"{tenant} {seconds} {number}", tenant, NOW + timedelta(seconds=seconds))
    taken: dict[str, list[int]] = {}
    while (name := turns.take(NOW)) is not None:
        tenant, seconds, _ = name.split()
        taken.setdefault(tenant, []).append(int(seconds))
    assert all(times == sorted(times) and times[-1] <= 0 for times in taken.values())
    left = [seconds for _, seconds in jobs if seconds > 0]
    assert len(turns) == len(left)
    assert turns.next_at() == (NOW + timedelta(seconds=min(left)) if left else None)


def test_putting_a_waiting_job_again_changes_its_time():
    turns = FairQueue()
    turns.put("a", "ada", NOW + timedelta(hours=1))
    turns.put("a", "ada", NOW)
    assert [turns.take(NOW), turns.take(NOW + timedelta(hours=2))] == ["a", None]


def test_a_discarded_job_is_not_taken():
    turns = FairQueue()
    turns.put("a", "ada", NOW)
    turns.discard("a")
    turns.discard("never was")
    assert turns.take(NOW) is None
    assert turns.next_at() is None


def test_a_tenant_at_its_limit_is_skipped():
    turns = FairQueue()
    turns.put("a", "ada", NOW)
    turns.put("b", "bob", NOW)
    assert turns.take(NOW, is_full="ada".__eq__) == "b"
    assert turns.take(NOW, is_full="ada".__eq__) is None
    assert turns.next_at(is_full="ada".__eq__) is None
    assert turns.take(NOW) == "a"
