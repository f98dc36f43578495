from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.service.logs import MAIN, log_of

from mainspring import Agent, open_runtime, tool
from mainspring.core import events
from mainspring.core.content import TextBlock
from mainspring.core.envelope import Event
from mainspring.core.events import KnownPayload, StopReason, Usage
from mainspring.service.telemetry.run_observers import catch_up
from mainspring.service.telemetry.session_spans import (
    ModelRequestSpan,
    RunSpan,
    SpanFold,
    ToolCallSpan,
    TraceSpan,
)
from mainspring.testing import Scripted, calls, says
from mainspring.tools import ToolSpec

DONE = events.StatusIdle(stop_reason=StopReason(type="end_turn"), reason="completed")
ASKS = events.StatusIdle(stop_reason=StopReason(type="requires_action", event_ids=("e9",)))
RUNS = events.StatusRunning()
STARTS = events.ModelRequestStarted(model="anthropic:opus", max_tokens=100)


def ends(start: str, *, is_error: bool = False) -> events.ModelRequestEnded:
    return events.ModelRequestEnded(
        model_request_start_id=start,
        model_usage=Usage(input_tokens=5, output_tokens=2),
        model="anthropic:opus",
        stop_reason="end_turn",
        cost_usd="0.01",
        is_error=is_error,
    )


def call_started(call: str) -> events.ToolCallStarted:
    return events.ToolCallStarted(tool_use_id=call, idempotency_key="k")


def fold_spans(log: Iterable[Event], fold: SpanFold | None = None) -> list[TraceSpan]:
    fold = fold or SpanFold(agent_name="clerk")
    return [span for event in log for span in fold.apply(event)]


USE = events.AgentToolUse(name="bash", input={"command": "ls"})
RESULT = events.AgentToolResult(tool_use_id="e4", content=(TextBlock("secret words"),))


def test_a_turn_is_a_run_span_with_a_request_and_a_call():
    spans = fold_spans(log_of(RUNS, STARTS, ends("e2"), USE, call_started("e4"), RESULT, DONE))
    assert [(span.id, span.parent, span.seconds) for span in spans] == [
        ("e2", "e1", 1),
        ("e4", "e1", 1),
        ("e1", None, 6),
    ]
    assert isinstance(spans[1].details, ToolCallSpan)
    assert (
        spans[1].details.tool,
        spans[1].details.outcome,
        spans[1].details.attempts,
    ) == ("bash", "ok", 1)
    assert isinstance(spans[2].details, RunSpan)
    assert spans[2].details.reason == "completed"


def test_an_approved_call_belongs_to_the_run_that_executed_it():
    allowed = events.UserToolConfirmation(tool_use_id="e4", result="allow")
    log = log_of(
        RUNS, STARTS, ends("e2"), USE, ASKS, allowed, RUNS, call_started("e4"), RESULT, DONE
    )
    spans = {span.id: span for span in fold_spans(log)}
    assert (spans["e4"].parent, spans["e4"].seconds) == ("e7", 1)


def test_a_call_that_never_started_takes_no_time():
    denied = events.AgentToolResult(tool_use_id="e4", is_error=True, error="denied")
    [_, span] = fold_spans(log_of(RUNS, STARTS, ends("e2"), USE, ASKS, denied))[-2:]
    assert isinstance(span.details, ToolCallSpan)
    assert (span.details.outcome, span.details.attempts, span.seconds) == ("denied", 0, 0)


def test_a_run_that_was_taken_over_is_one_span_and_its_open_request_is_closed():
    woken = events.SessionWoken(owner="w2", epoch=2, attempt=1)
    abandoned = events.ModelRequestEnded(
        model_request_start_id="e2", model_usage=Usage(), is_error=True, stop_reason="abandoned"
    )
    spans = fold_spans(log_of(RUNS, STARTS, woken, abandoned, STARTS, ends("e5"), DONE))
    assert [(span.id, span.parent) for span in spans] == [("e2", "e1"), ("e5", "e1"), ("e1", None)]
    assert isinstance(spans[0].details, ModelRequestSpan)
    assert (spans[0].details.model, spans[0].details.is_error) == ("anthropic:opus", True)


def test_a_subagents_run_belongs_to_the_run_that_created_its_thread():
    made = events.ThreadCreated(session_thread_id="sthr_2", agent_name="helper")
    running = events.ThreadStatusRunning(session_thread_id="sthr_2", agent_name="helper")
    idle = events.ThreadStatusIdle(
        session_thread_id="sthr_2", agent_name="helper", stop_reason=StopReason(type="end_turn")
    )
    log = log_of(RUNS, made, running, ("sthr_2", STARTS), ("sthr_2", ends("e4")), idle, DONE)
    spans = {span.id: span for span in fold_spans(log)}
    assert (spans["e3"].parent, spans["e3"].agent_name) == ("e1", "helper")
    assert (spans["e4"].parent, spans["e4"].thread_id) == ("e3", "sthr_2")


def test_a_fork_does_not_repeat_spans_of_its_parent():
    forked = events.SessionForked(parent_session_id="sesn_0", parent_seq=5)
    log = log_of(RUNS, STARTS, ends("e2"), USE, call_started("e4"), forked, RESULT, DONE)
    spans = fold_spans(log)[1:]
    assert [(s.id, s.parent, s.seconds) for s in spans] == [("e4", None, 0), ("e6", None, 2)]


def test_spans_contain_content_only_if_enabled():
    said = events.AgentMessage(content=(TextBlock("secret words"),))
    asked = events.UserMessage(content=(TextBlock("secret words"),))
    use = events.AgentToolUse(name="bash", input={"command": "secret words"})
    log = log_of(asked, RUNS, STARTS, use, said, ends("e3"), call_started("e4"), RESULT, DONE)
    assert "secret" not in repr(fold_spans(log))
    spans = {span.id: span.details for span in fold_spans(log, SpanFold(captures=True))}
    assert "secret" in repr(spans["e2"])
    assert "secret" in repr(spans["e3"])
    assert repr(spans["e4"]).count("secret") == 2


IDS = [f"e{number}" for number in range(1, 13)]
CALL_IDS = st.sampled_from(IDS)
PAYLOADS: st.SearchStrategy[KnownPayload] = st.one_of(
    st.sampled_from(
        [
            RUNS,
            STARTS,
            USE,
            DONE,
            ASKS,
            events.AgentCustomToolUse(name="mine", input={}),
            events.AgentMcpToolUse(mcp_server_name="s", name="mcp__s__t", input={}),
            events.StatusTerminated(),
            events.SessionForked(parent_session_id="sesn_0", parent_seq=1),
            events.SessionWoken(owner="w", epoch=1, attempt=1),
            events.UserMessage(content=(TextBlock("hello"),)),
            events.ThreadCreated(session_thread_id="sthr_2", agent_name="helper"),
            events.ThreadStatusRunning(session_thread_id="sthr_2", agent_name="helper"),
            events.ThreadStatusIdle(
                session_thread_id="sthr_2",
                agent_name="helper",
                stop_reason=StopReason(type="end_turn"),
            ),
        ]
    ),
    CALL_IDS.map(ends),
    CALL_IDS.map(call_started),
    CALL_IDS.map(lambda id_: events.AgentToolResult(tool_use_id=id_)),
    CALL_IDS.map(lambda id_: events.AgentMcpToolResult(mcp_tool_use_id=id_, is_error=True)),
    CALL_IDS.map(lambda id_: events.UserCustomToolResult(custom_tool_use_id=id_)),
)
LOGS = st.lists(st.tuples(st.sampled_from([MAIN, "sthr_2"]), PAYLOADS), max_size=12).map(
    lambda payloads: log_of(*payloads)
)


@given(LOGS, st.integers(0, 12))
def test_after_a_crash_open_spans_are_finished_once(log: list[Event], at: int):
    whole = fold_spans(log)
    heir = SpanFold(agent_name="clerk")
    assert fold_spans(log[:at], heir) + fold_spans(log[at:], heir) == whole
    ids = [(span.id, type(span.details)) for span in whole]
    assert len(ids) == len(set(ids))


@given(LOGS)
def test_a_span_ends_after_its_start_and_its_parent_run_starts_before_it(log: list[Event]):
    begins = ("session.status_running", "session.thread_status_running", "session.forked")
    runs = {event.id: event.seq for event in log if event.type in begins}
    seqs = {event.id: event.seq for event in log}
    for span in fold_spans(log):
        assert span.begun <= span.ended
        if span.parent is not None:
            assert runs[span.parent] <= seqs[span.id] or isinstance(span.details, ToolCallSpan)


@dataclass
class RecordedLog:
    """A log that ends at some point."""

    events: list[Event]

    async def read(
        self, session_id: str, *, after: int = 0, types: Iterable[str] | None = None
    ) -> list[Event]:
        wanted = None if types is None else frozenset(types)
        return [e for e in self.events if e.seq > after and (wanted is None or e.type in wanted)]


@tool
def look() -> str:
    """Look."""
    return "seen"


async def record_session(folder: Path) -> list[Event]:
    """A session that ran three times: with a call, with one that the client did, and after it."""
    mine = ToolSpec(name="mine", description="Mine.", input_schema={"type": "object"})
    agent = Agent(name="clerk", tools=[look], client_tools=[mine])
    script = Scripted(calls("look"), says("seen"), calls("mine"), says("done"))
    async with open_runtime(store=str(folder / "log.db")) as runtime:
        runtime.models.put(agent.model, script)
        session = await runtime.start(agent, "look")
        await session.run()
        await session.send("and now yours")
        waiting = await session.run()
        assert waiting is not None
        await session.settle(waiting.waiting_for[0], "done")
        await session.run()
        return await session.events()


async def test_catching_up_on_a_log_equals_having_observed_it(tmp_path: Path):
    log = await record_session(tmp_path)
    whole = fold_spans(log)
    assert [type(span.details) for span in whole].count(RunSpan) == 3
    assert [type(span.details) for span in whole].count(ToolCallSpan) == 2
    for at in range(len(log) + 1):
        watched, heir = SpanFold(), SpanFold()
        fold_spans(log[:at], watched)
        await catch_up(RecordedLog(log[:at]), "sesn_1", heir)
        assert fold_spans(log[at:], heir) == fold_spans(log[at:], watched), at


async def test_a_cached_fold_reads_only_new_events(tmp_path: Path):
    log = await record_session(tmp_path)
    for at in range(len(log) + 1):
        kept = SpanFold()
        fold_spans(log[:at], kept)
        await catch_up(RecordedLog(log), "sesn_1", kept)
        assert (kept.requests, kept.calls, kept.threads[log[0].thread_id].run) == ({}, {}, None)
