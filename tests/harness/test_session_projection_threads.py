"""The projection of a session with subagents: each thread for itself, and all together."""

from tests.service.logs import MAIN, log_of

from mainspring.core import events
from mainspring.core.events import KnownPayload
from mainspring.harness.state.session_projection import SessionProjection, project
from mainspring.service.webhooks.webhook_events import webhook_events_of

CHILD = "sthr_child"
BORN = events.ThreadCreated(session_thread_id=CHILD, agent_name="scout", parent_thread_id=MAIN)
RUNS = events.StatusRunning()
ENDED = events.StatusIdle(stop_reason=events.StopReason(type="end_turn"))


def waits(*ids: str) -> events.StatusIdle:
    return events.StatusIdle(stop_reason=events.StopReason(type="requires_action", event_ids=ids))


def fold_events(*payloads: KnownPayload | tuple[str, KnownPayload]) -> SessionProjection:
    return project(log_of(events.SessionCreated(agent_name="lead"), *payloads))


def test_a_session_is_running_while_any_of_its_threads_is():
    assert fold_events(RUNS, BORN, (CHILD, RUNS), (CHILD, ENDED)).status == "running"
    assert fold_events(RUNS, BORN, (CHILD, RUNS), ENDED).status == "running"
    assert fold_events(RUNS, BORN, (CHILD, RUNS), ENDED, (CHILD, ENDED)).status == "idle"
    ended = events.StatusTerminated()
    assert fold_events(RUNS, BORN, (CHILD, RUNS), (CHILD, ended), ENDED).status == "idle"
    assert fold_events(RUNS, BORN, (CHILD, RUNS), ended).status == "terminated"


def test_a_waiting_call_belongs_to_the_thread_that_asked():
    # e1: created, then as they stand here
    projection = fold_events(
        RUNS,
        events.AgentToolUse(name="agent", input={}),
        BORN,
        (CHILD, RUNS),
        (CHILD, events.AgentToolUse(name="write", input={})),
        (CHILD, events.ToolCallAuthorized(tool_use_id="e6", decision="ask", gate="rule")),
        (CHILD, waits("e6")),
        waits("e6"),
    )
    found = projection.call("e6")
    assert found is not None
    assert (found.thread_id, found.asked) == (CHILD, 7)
    assert dict(projection.threads[MAIN].calls) == {}
    assert projection.status == "idle"


def test_each_thread_has_its_own_usage_and_the_session_the_sum():
    spent = events.ModelRequestEnded(
        model_request_start_id="e2", model_usage=events.Usage(input_tokens=5), cost_usd="0.5"
    )
    projection = fold_events(BORN, spent, (CHILD, spent), (CHILD, spent))
    assert projection.usage.input_tokens == 15
    assert projection.threads[MAIN].usage.input_tokens == 5
    assert projection.threads[CHILD].usage.input_tokens == 10
    assert projection.threads[CHILD].cost_usd == 1


def test_webhooks_report_threads_as_threads():
    [*_, child, main] = log_of(BORN, (CHILD, waits("e9")), ENDED)
    told = webhook_events_of(child, tenant="acme", main_thread_id=MAIN)
    assert [(item.data.type, item.data.session_thread_id) for item in told] == [
        ("session.thread_idled", CHILD)
    ]
    told = webhook_events_of(main, tenant="acme", main_thread_id=MAIN)
    assert [item.data.type for item in told] == ["session.status_idled", "session.idled"]
