"""A session credits what it used with the outcome of its work, once; the table follows the logs."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.core import events
from mainspring.core.envelope import event_types
from mainspring.core.events import KnownPayload, UtilityCredited
from mainspring.core.sender import Origin, Sender
from mainspring.harness.state.utility import RELEVANT_TYPES, fold_utility
from mainspring.log.session_lease import hold_session
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite
from mainspring.runtime.session.session_updates import record_updates
from mainspring.runtime.utility.ranking import (
    Reliability,
    Utility,
    choose,
    reliability,
    with_reward,
)
from mainspring.runtime.utility.utility_table import UtilityTable, update_utility

ANNA = Sender(kind="person", id="anna")
IDLE = events.StatusIdle(stop_reason=events.StopReason(type="end_turn"), reason="completed")


def memory_recalled(path: str) -> events.MemoryRecalled:
    return events.MemoryRecalled(
        store_id="agent", path=path, version="v1", rank=1, score_parts={}, tokens=1
    )


def outcome_ended(outcome_id: str, result: str) -> events.OutcomeEvaluationEnded:
    return events.OutcomeEvaluationEnded(
        outcome_evaluation_start_id="sevt_0",
        outcome_id=outcome_id,
        iteration=0,
        result=result,  # pyright: ignore[reportArgumentType]
        explanation="",
        usage=events.Usage(),
    )


async def session_of(log: SessionLog, *payloads: KnownPayload, origin: str = "user") -> str:
    created = events.SessionCreated(origin=Origin(type=origin))  # pyright: ignore[reportArgumentType]
    row = await log.create(created, sender=ANNA)
    async with hold_session(log, row.id) as writer:
        for payload in payloads:
            (event,) = await writer.append(payload)
            if isinstance(payload, events.AgentToolUse):
                result = events.AgentToolResult(
                    tool_use_id=event.id, is_error="fails" in str(payload.input)
                )
                await writer.append(result)
    return row.id


async def test_used_memories_are_credited_once_with_the_outcome(tmp_path: Path):
    table = UtilityTable(tmp_path / "utility.db")
    async with open_sqlite(tmp_path / "log.db") as store:
        log = SessionLog(store)
        tests = events.AgentToolUse(name="bash", input={"command": "uv run pytest -q  # fails"})
        good = await session_of(
            log, memory_recalled("a.md"), outcome_ended("outc_1", "satisfied"), IDLE
        )
        bad = await session_of(log, memory_recalled("b.md"), tests, IDLE)
        await session_of(
            log, memory_recalled("c.md"), outcome_ended("outc_2", "satisfied"), IDLE, origin="eval"
        )
        await session_of(
            log, memory_recalled("d.md"), outcome_ended("outc_3", "needs_revision"), IDLE
        )
        assert await update_utility(log, table) == 4
        assert await update_utility(log, table) == 0
        values = {row.id: (row.value, row.credits) for row in table.rows()}
        assert values == {
            "agent/a.md": (0.65, 1),
            "agent/b.md": (0.35, 1),
            "bash": (0.35, 1),
            "agent/c.md": (0.5, 0),
            "agent/d.md": (0.5, 0),
        }
        for session_id in (good, bad):
            read = await log.read(session_id, types=event_types(UtilityCredited))
            subjects = [
                event.payload.subject.id
                for event in read
                if isinstance(event.payload, UtilityCredited)
            ]
            assert subjects == sorted(set(subjects))
        message = events.RatedSubject(type="message", id="sevt_1")
        praise = events.FeedbackGiven(subject=message, rating="good")
        await log.submit(good, praise, sender=Sender(kind="agent", id="itself"))
        await log.submit(good, praise, sender=ANNA)
        await record_updates(log, good)
        await update_utility(log, table)
        assert table.values("memory")["agent/a.md"].credits == 2
        again = UtilityTable(tmp_path / "rebuilt.db")
        await update_utility(log, again)
        assert again.rows() == table.rows()


@pytest.mark.parametrize(
    ("command", "counts"),
    [
        ("pytest -x", True),
        ("cd app && npm test", True),
        ("python -m unittest", True),
        ("make check test", True),
        ("cargo test --all", True),
        ("pytest --version", False),
        ("pytest --collect-only", False),
        ("cat pytest.ini", False),
        ("ls tests", False),
        ("echo latest", False),
    ],
)
async def test_only_test_commands_count_as_evidence(tmp_path: Path, command: str, counts: bool):
    async with open_sqlite(tmp_path / "log.db") as store:
        log = SessionLog(store)
        call = events.AgentToolUse(name="bash", input={"command": command})
        session_id = await session_of(log, memory_recalled("a.md"), call, IDLE)
        due = fold_utility(await log.read(session_id, types=RELEVANT_TYPES)).due()
        assert bool(due) is counts


@given(st.lists(st.floats(0, 1), max_size=50))
def test_a_value_stays_between_the_lowest_and_highest_reward(rewards: list[float]):
    utility = Utility()
    for reward in rewards:
        utility = with_reward(utility, reward)
    assert min([0.5, *rewards]) <= utility.value <= max([0.5, *rewards])


def test_without_evidence_the_two_most_similar_candidates_are_chosen():
    candidates = [(name, 1 - at / 10, Utility(at / 10, 1)) for at, name in enumerate("abcdefg")]
    assert [name for name, _ in choose(candidates, Reliability())] == ["a", "b"]
    assert [name for name, _ in choose(candidates, Reliability(1.0))] == ["e", "d"]
    assert reliability([Utility(0.9, 5, 5.0)] * 3) == Reliability(0.0, 3)


def test_a_lucky_streak_counts_among_few_and_not_among_many_that_are_rewarded_at_random():
    lucky = Utility(0.92, 6, 6.0)
    candidates = [("plain", 1.0, Utility()), ("other", 0.9, Utility()), ("lucky", 0.8, lucky)]
    few = reliability([lucky, Utility(0.5, 4, 2.0)])
    assert choose(candidates, few)[0][0] == "lucky"
    many = reliability([lucky, *[Utility(0.5, 4, 2.0)] * 60])
    assert [name for name, _ in choose(candidates, many)] == ["plain", "other"]


def test_what_failed_again_and_again_comes_after_what_was_never_tried():
    failed, untried, lucky = Utility(0.02, 9, 0.0), Utility(), Utility(0.65, 1, 1.0)
    tried = [("old", 1.0, failed), ("older", 0.9, failed), ("new", 0.5, untried)]
    assert next(name for name, _ in choose(tried, Reliability())) == "new"
    proven = Utility(0.98, 10, 10.0)
    assert [
        name for name, _ in choose([("lucky", 0.9, lucky), ("proven", 0.9, proven)], Reliability())
    ] == [
        "proven",
        "lucky",
    ]
