"""Ids of events that are told before the events are there."""

from itertools import count

from mainspring.core.content import TextBlock
from mainspring.core.model import (
    Delta,
    EventAnnounced,
    FailedOver,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolInputDelta,
    ToolUse,
)
from mainspring.harness.reply_announcer import ReplyAnnouncer

CALL = ToolInputDelta(id="t", name="look", json="")


def announce_deltas(*deltas: Delta) -> tuple[ReplyAnnouncer, list[Delta]]:
    told: list[Delta] = []
    numbers = count(1)
    announcer = ReplyAnnouncer(told.append, lambda: f"sevt_{next(numbers)}")
    for delta in deltas:
        announcer.on_delta(delta)
    return announcer, told


def test_each_run_of_deltas_is_announced_once_and_keeps_its_id():
    announcer, told = announce_deltas(
        ThinkingDelta("h"), ThinkingDelta("m"), TextDelta("a"), CALL, TextDelta("b"), TextDelta("c")
    )
    assert told == [
        EventAnnounced(event_id="sevt_1", kind="agent.thinking"),
        EventAnnounced(event_id="sevt_2", kind="agent.message"),
        EventAnnounced(event_id="sevt_3", kind="agent.message"),
    ]
    assert announcer.first_message == ("sevt_2",)
    reply = [
        Thinking(text="hm"),
        TextBlock("a"),
        ToolUse(id="t", name="look", input={}),
        TextBlock("bc"),
    ]
    assert [announcer.event_ids(p) for p in reply] == [("sevt_1",), ("sevt_2",), (), ("sevt_3",)]


def test_an_unannounced_block_gets_no_id_and_no_id_is_used_twice():
    announcer, _ = announce_deltas(TextDelta("a"))
    assert announcer.event_ids(TextBlock("something else")) == ()
    assert announcer.event_ids(TextBlock("")) == ()
    assert announcer.event_ids(TextBlock("a")) == ("sevt_1",)
    assert announcer.event_ids(TextBlock("a")) == ()


def test_blocks_streamed_as_one_run_do_not_share_an_id():
    announcer, _ = announce_deltas(TextDelta("a"), TextDelta("b"), CALL, TextDelta("c"))
    parts = [TextBlock("a"), TextBlock("b"), TextBlock("c")]
    assert [announcer.event_ids(part) for part in parts] == [("sevt_1",), (), ("sevt_2",)]


def test_a_failover_discards_ids_of_the_first_model():
    failed = FailedOver(from_model="a", to_model="b", reason="overloaded")
    announcer, _ = announce_deltas(TextDelta("a"), failed, TextDelta("a"))
    assert announcer.event_ids(TextBlock("a")) == ("sevt_2",)
