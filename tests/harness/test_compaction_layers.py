"""The layers over random conversations: whatever they do, the next request is valid, all that is
pinned is in it, any prefix of the log folds, and a replay gives the same bytes.
"""

from datetime import UTC, datetime

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.content import Base64Source, Block, ImageBlock, TextBlock
from mainspring.core.envelope import FORMAT, GENESIS, Event, decode_payload, encode_payload
from mainspring.core.events import (
    AgentMessage,
    AgentToolResult,
    AgentToolUse,
    ContextCompacted,
    KnownPayload,
    ModelRequestEnded,
    ModelRequestStarted,
    StatusIdle,
    StatusRunning,
    StopReason,
    SystemMessage,
    Usage,
    UserMessage,
)
from mainspring.core.model import Message, ToolResultBlock
from mainspring.harness.context.compaction import is_harmless
from mainspring.harness.context.compaction_layers import (
    CompactionInput,
    collapse_rounds,
    drop_finished_tasks,
    drop_media,
    drop_old_results,
    first_kept_message,
    limit_results,
    referenced_rounds,
    removable_ranges,
)
from mainspring.harness.context.conversation_digest import DIGEST_HEADING
from mainspring.harness.context.messages import (
    is_media,
    message_bytes,
    message_order_error,
    missing_pins,
)
from mainspring.harness.state.thread import Thread, fold

THREAD = "sthr_1"
PICTURE = ImageBlock(source=Base64Source(media_type="image/png", data="aGk="))
WORDS = st.sampled_from(
    (
        "go on",
        "never push",
        "look at src/a.py",
        "again, sevt_9",
        "Grüße " * 100,
        DIGEST_HEADING + "x",
    )
)
PATHS = st.sampled_from(("src/a.py", "src/b.py", "notes.md", "ls -la"))
SIZES = st.integers(0, 3_000)


class RandomConversation:
    """A log being written, and the thread that it folds to."""

    def __init__(self) -> None:
        self.log: list[Event] = []
        self.thread = Thread(id=THREAD)
        self.requests: dict[int, list[Message]] = {}
        """The messages of the next request, wherever one could have been made, by log length."""

    def tell(self, *payloads: KnownPayload) -> str:
        for payload in payloads:
            seq = len(self.log) + 1
            event = Event(
                id=f"sevt_{seq}",
                session_id="sesn_1",
                seq=seq,
                thread_id=THREAD,
                time=datetime(2026, 1, 1, tzinfo=UTC),
                payload=payload,
                body=encode_payload(payload),
                version=FORMAT,
                prev=GENESIS,
            )
            self.log.append(event)
            self.thread.apply(event)
        return self.log[-1].id

    def check(self) -> None:
        transcript = self.thread.transcript
        messages = transcript.upcoming()
        pinned = [block for block in transcript.pins.blocks() if not is_media(block)]
        assert message_order_error(messages) is None
        assert missing_pins(pinned, messages) == []
        assert transcript.bytes == sum(map(message_bytes, messages))
        self.requests[len(self.log)] = messages


def add_user_message(tale: RandomConversation, draw: st.DrawFn) -> None:
    blocks: list[Block] = [TextBlock(draw(WORDS))]
    if draw(st.booleans()):
        blocks.append(PICTURE)
    if draw(st.integers(0, 4)) == 0:
        tale.tell(SystemMessage(content=(TextBlock(f"rule {len(tale.log)}"),)))
    tale.tell(UserMessage(content=tuple(blocks)))


def add_turn(tale: RandomConversation, draw: st.DrawFn) -> None:
    """One request: refused by the provider, or answered with text or calls."""
    started = tale.tell(StatusRunning(), ModelRequestStarted(model="m", prefix="p"))
    usage = Usage(input_tokens=tale.thread.transcript.bytes // 4, output_tokens=9)
    if draw(st.integers(0, 5)) == 0:
        ended = ModelRequestEnded(
            model_request_start_id=started, model_usage=usage, is_error=True, stop_reason="server"
        )
        tale.tell(ended)
        return
    tale.tell(AgentMessage(content=(TextBlock(draw(WORDS)),)))
    calls = [
        tale.tell(AgentToolUse(name="read", input={"path": draw(PATHS)}))
        for _ in range(draw(st.integers(0, 3)))
    ]
    tale.tell(ModelRequestEnded(model_request_start_id=started, model_usage=usage))
    for call in draw(st.permutations(calls)):
        content: tuple[Block, ...] = (TextBlock("line\n" + "é" * draw(SIZES)),)
        if draw(st.integers(0, 5)) == 0:
            content = (*content, PICTURE)
        tale.tell(AgentToolResult(tool_use_id=call, content=content, is_error=draw(st.booleans())))
    if not calls:
        reason = draw(st.sampled_from(("completed", "completed", "interrupted_streaming")))
        tale.tell(StatusIdle(stop_reason=StopReason(type="end_turn"), reason=reason))
        add_user_message(tale, draw)


def auto_overlay(sheet: CompactionInput) -> list[ContextCompacted]:
    overlays: list[ContextCompacted] = []
    for part in removable_ranges(0, sheet.upto, sheet.kept_rounds):
        first, last = sheet.span(part)
        summary = None if overlays else f"{DIGEST_HEADING}a summary"
        overlays.append(
            ContextCompacted(layer="auto", first_seq=first, last_seq=last, summary=summary)
        )
    return overlays


def random_overlays(tale: RandomConversation, draw: st.DrawFn) -> list[ContextCompacted]:
    """What no layer would propose."""
    first = draw(st.integers(0, len(tale.log)))
    last = draw(st.integers(first, len(tale.log)))
    summary = draw(st.sampled_from((None, "", "s")))
    return [ContextCompacted(first_seq=first, last_seq=last, summary=summary)]


def add_compaction(tale: RandomConversation, draw: st.DrawFn) -> None:
    transcript = tale.thread.transcript
    sheet = CompactionInput(
        transcript,
        excess_bytes=draw(st.integers(1, 40_000)),
        rounds=draw(st.integers(1, 4)),
        recent_bytes=draw(st.integers(0, 20_000)),
    )
    layer = draw(st.integers(0, 6))
    if layer == 0:
        tale.tell(*limit_results(transcript, draw(st.integers(0, 5_000))))
    elif layer == 1:
        tale.tell(*drop_media(sheet, with_newest=draw(st.booleans())))
    elif layer == 2:
        tale.tell(*random_overlays(tale, draw))
    else:
        tale.tell(
            *(drop_finished_tasks, drop_old_results, collapse_rounds, auto_overlay)[layer - 3](
                sheet
            )
        )


@st.composite
def random_conversations(draw: st.DrawFn) -> RandomConversation:
    tale = RandomConversation()
    add_user_message(tale, draw)
    tale.check()
    for _ in range(draw(st.integers(1, 14))):
        add_turn(tale, draw)
        tale.check()
        if draw(st.integers(0, 2)) == 0:
            add_compaction(tale, draw)
            tale.check()
    return tale


def encode_messages(messages: list[Message]) -> bytes:
    return msgspec.json.encode(messages)


@given(random_conversations())
def test_after_compaction_requests_are_valid_and_replay_to_the_same_bytes(tale: RandomConversation):
    replayed = Thread(id=THREAD)
    for event in tale.log:
        replayed.apply(msgspec.structs.replace(event, payload=decode_payload(event.body)))
        if (live := tale.requests.get(event.seq)) is not None:
            assert encode_messages(replayed.transcript.upcoming()) == encode_messages(live)
    assert replayed.transcript.tokens(prefix_bytes=9, bytes_per_token=3.5) == (
        tale.thread.transcript.tokens(prefix_bytes=9, bytes_per_token=3.5)
    )


@given(random_conversations(), st.data())
def test_any_prefix_of_a_log_folds_and_continues_to_the_same_state(
    tale: RandomConversation, data: st.DataObject
):
    cut = data.draw(st.integers(0, len(tale.log)))
    thread = fold(tale.log[:cut], thread_id=THREAD)
    thread.transcript.upcoming()
    for event in tale.log[cut:]:
        thread.apply(event)
    assert encode_messages(thread.transcript.upcoming()) == encode_messages(
        tale.thread.transcript.upcoming()
    )


@given(random_conversations(), st.integers(1, 4), st.integers(0, 20_000))
def test_rounds_referenced_by_recent_messages_are_not_compacted(
    tale: RandomConversation, rounds: int, size: int
):
    transcript = tale.thread.transcript
    upto = first_kept_message(transcript, rounds=rounds, max_bytes=size)
    kept = referenced_rounds(transcript, upto, max_bytes=size)
    covered = [index for part in removable_ranges(0, upto, kept) for index in part]
    assert sorted([*covered, *kept]) == list(range(upto))
    for index in kept:
        results = [p for p in transcript.messages[index].content if isinstance(p, ToolResultBlock)]
        assert not results or index - 1 in kept


@given(random_conversations())
def test_a_compaction_that_would_lose_a_pin_is_detected(tale: RandomConversation):
    transcript = tale.thread.transcript
    broken = transcript.copy()
    broken.pins.__init__()
    first = broken.spans[0][0] if broken.spans else 0
    changed = broken.compact(
        ContextCompacted(first_seq=first, last_seq=len(tale.log), summary="all is well")
    )
    lost = missing_pins([b for b in transcript.pins.blocks() if not is_media(b)], broken.upcoming())
    assert not (changed and lost and is_harmless(transcript, broken))
