"""The projection: any split of a log gives the same, and a session is only ever read on."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.core.samples import SAMPLES

from mainspring.core import events
from mainspring.core.content import TextBlock
from mainspring.core.envelope import GENESIS, Event, encode_payload, payload_type
from mainspring.core.events import KnownPayload
from mainspring.harness.state.projection_cache import Projections
from mainspring.harness.state.session_projection import (
    PROJECTION_TYPES,
    SessionProjection,
    is_projected,
    project,
)
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite

START = datetime(2026, 11, 16, 12, tzinfo=UTC)
USAGE = events.Usage(input_tokens=10, output_tokens=3)


def event(seq: int, payload: KnownPayload, thread_id: str = "sthr_1") -> Event:
    return Event(
        id=f"sevt_{seq}",
        session_id="sesn_1",
        seq=seq,
        thread_id=thread_id,
        time=START + timedelta(seconds=seq),
        payload=payload,
        body=encode_payload(payload),
        version=1,
        prev=GENESIS,
    )


def fold_events(*payloads: KnownPayload) -> SessionProjection:
    log = [event(seq, payload) for seq, payload in enumerate(payloads, 1)]
    return project(log)


PAYLOADS = st.one_of(
    st.sampled_from(sorted(SAMPLES.values(), key=repr)),
    st.sampled_from(
        [
            events.StatusRunning(),
            events.StatusIdle(stop_reason=events.StopReason(type="end_turn")),
            events.UserToolConfirmation(tool_use_id="sevt_2", result="allow"),
            events.ToolCallAuthorized(tool_use_id="sevt_2", decision="ask", gate="rule"),
            events.AgentToolUse(name="bash", input={}),
            events.ModelRequestStarted(),
        ]
    ),
)
LOGS = st.lists(st.tuples(PAYLOADS, st.sampled_from(["sthr_1", "sthr_2"])), min_size=1, max_size=30)


def log_of(drawn: Sequence[tuple[KnownPayload, str]]) -> list[Event]:
    return [event(seq, payload, thread) for seq, (payload, thread) in enumerate(drawn, 1)]


@given(LOGS, st.data())
def test_any_split_of_a_log_gives_the_same_projection(
    drawn: list[tuple[KnownPayload, str]], data: st.DataObject
):
    log = log_of(drawn)
    cut = data.draw(st.integers(0, len(log)))
    whole = project(log)
    begun = project(log[:cut])
    overlap = data.draw(st.integers(0, cut))  # what is read twice counts once
    assert project(log[overlap:], begun) == whole


@given(LOGS)
def test_other_event_types_change_only_the_position(drawn: list[tuple[KnownPayload, str]]):
    log = log_of(drawn)
    whole = project(log)
    part = project([item for item in log if item.type in PROJECTION_TYPES])
    assert (part.status, part.usage, part.outcomes) == (whole.status, whole.usage, whole.outcomes)
    assert (part.threads, part.spent.cost_usd) == (whole.threads, whole.spent.cost_usd)


def test_every_event_is_projected_or_listed_as_one_that_is_not():
    for payload in SAMPLES.values():
        assert is_projected(payload) == (payload_type(payload) in PROJECTION_TYPES)


def test_open_calls_are_the_unanswered_ones():
    asked = events.ToolCallAuthorized(tool_use_id="sevt_2", decision="ask", gate="rule")
    begun = (events.SessionCreated(), events.AgentToolUse(name="bash", input={}), asked)
    waiting = fold_events(*begun).call("sevt_2")
    assert waiting is not None
    assert waiting.is_asked
    confirmed = events.UserToolConfirmation(tool_use_id="sevt_2", result="allow")
    answered = fold_events(*begun, confirmed).call("sevt_2")
    assert answered is not None
    assert not answered.is_asked
    assert fold_events(*begun, events.ModelRequestStarted()).call("sevt_2") is None
    done = events.StatusIdle(stop_reason=events.StopReason(type="end_turn"))
    assert fold_events(*begun, done).call("sevt_2") is None
    stop = events.StopReason(type="requires_action", event_ids=("sevt_2",))
    idle = fold_events(*begun, events.StatusIdle(stop_reason=stop)).call("sevt_2")
    assert idle is not None
    assert idle.is_asked


def test_a_fork_is_idle_and_inherits_its_parents_usage():
    ended = events.ModelRequestEnded(model_request_start_id="x", model_usage=USAGE)
    projection = fold_events(
        events.SessionCreated(agent_name="a"),
        events.StatusRunning(),
        ended,
        events.SessionForked(parent_session_id="sesn_0", parent_seq=3),
    )
    assert (projection.status, projection.usage) == ("idle", USAGE)
    assert projection.threads["sthr_1"].active_seconds(START + timedelta(hours=1)) == 2.0


def test_an_outcome_goes_from_pending_to_its_verdict():
    defined = events.UserDefineOutcome(description="d", rubric=events.TextRubric(content="r"))
    log: list[KnownPayload] = [events.SessionCreated(), defined]
    assert fold_events(*log).outcomes[0].result == "pending"
    log.append(events.StatusRunning())
    assert fold_events(*log).outcomes[0].result == "running"
    log.append(events.OutcomeEvaluationStarted(outcome_id="outc_2", iteration=0))
    assert fold_events(*log).outcomes[0].result == "evaluating"
    log.append(
        events.OutcomeEvaluationEnded(
            outcome_evaluation_start_id="x",
            outcome_id="outc_2",
            iteration=0,
            result="satisfied",
            explanation="all there",
            usage=USAGE,
        )
    )
    verdict = fold_events(*log).outcomes[0]
    assert (verdict.result, verdict.explanation) == ("satisfied", "all there")
    assert verdict.completed_at is not None


async def test_a_projection_continues_from_its_position_and_the_cache_is_bounded(tmp_path: Path):
    async with open_sqlite(tmp_path / "log.db") as store:
        log = SessionLog(store)
        projections = Projections(log, max_bytes=4000)
        one, other = await log.create(), await log.create()
        writer = await log.hold(one.id, owner="w")
        await writer.append(events.StatusRunning())
        assert (await projections.of(await log.session(one.id))).status == "running"
        await writer.append(events.AgentMessage(content=(TextBlock("hi"),)))
        await writer.append(events.StatusIdle(stop_reason=events.StopReason(type="end_turn")))
        row = await log.session(one.id)
        read_on = await projections.of(row)
        assert (read_on.status, read_on.seq) == ("idle", row.head.seq)
        await projections.of(other)
        assert await projections.of(row) == read_on
        projections.forget(one.id)
