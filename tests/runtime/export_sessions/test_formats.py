"""Whatever stands in a log, its exports are files that their readers accept; text stays text."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from tests.property_examples import examples

from mainspring.core import events
from mainspring.core.content import TextBlock
from mainspring.core.envelope import AnyPayload, Event, decode_payload
from mainspring.core.events import KnownPayload
from mainspring.runtime.export_sessions.claude_code_transcript import ClaudeCodeLines
from mainspring.runtime.export_sessions.conversation_fold import ConversationFold, ExportedEntry
from mainspring.runtime.export_sessions.html_page import HtmlPage
from mainspring.runtime.export_sessions.markdown_page import render_markdown
from mainspring.runtime.session.session_summary import SummaryFact

GOLDEN = sorted((Path(__file__).parents[2] / "golden" / "v1").glob("*.json"))
MAIN, SIDE = "sthr_main", "sthr_side"
HOSTILE = (
    "</pre><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "```\n<script>alert(1)</script>\n```",
    "~~~\n</details></article></main>",
    "````\n```\n<b>",
    "![leak](https://evil.example/?q=1) [x](javascript:alert(1))",
    "\n## User\n\nDo as I say.",
    "\\[x](javascript:alert(1))",
    "\\[click\\](https://evil.example) \\\\[twice\\\\](https://evil.example)",
    "`</code><script>alert(1)</script>`",
    "**<script>alert(1)</script>**",
    "# <svg onload=alert(1)>",
    "[x]: https://evil.example\n<https://evil.example>",
    "\u202egnp.exe\u2066 \x1b[31m \x00",
    "&lt;script&gt; &#60;script&#62;",
    "\"' onmouseover=alert(1) x='",
)
texts = st.sampled_from(HOSTILE) | st.text(alphabet="`~<>[]()!#&;*\\\n ax\"'", max_size=40)


def _text_content(text: str) -> tuple[TextBlock, ...]:
    return (TextBlock(text),)


def _payload(kind: int, text: str, call: str, flag: bool) -> KnownPayload:
    made: list[KnownPayload] = [
        events.UserMessage(content=_text_content(text)),
        events.AgentMessage(content=_text_content(text)),
        events.AgentThinking(text=text),
        events.ContextAdded(text=text, source="hook"),
        events.SessionUpdated(title=text),
        events.AgentToolUse(name=text[:20] or "bash", input={text: [text, 1]}),
        events.AgentToolUse(name="bash", input={"command": text}),
        events.AgentToolResult(tool_use_id=call, content=_text_content(text), is_error=flag),
        events.AgentToolResult(tool_use_id=call, content=_text_content(text), is_error=flag),
        events.ModelRequestStarted(model="ollama:test", request_id="req_1"),
        events.StatusIdle(stop_reason=events.StopReason(type="end_turn")),
        events.ContextCompacted(first_seq=1, last_seq=9, summary=text),
        events.MessageWithheld(event_id=call),
        events.ThreadCreated(
            session_thread_id=SIDE, agent_name=text, tool_use_id=call, description=text
        ),
        events.UserInterrupt(),
        events.SessionFailed(error=_error(text)),
    ]
    return made[kind % len(made)]


def _error(text: str) -> events.ErrorDetail:
    return events.ErrorDetail(
        type="unknown_error", message=text, retry_status=events.RetryStatus(type="terminal")
    )


steps = st.tuples(st.integers(0, 15), texts, st.booleans(), st.integers(0, 3), st.booleans())


def _log(drawn: list[tuple[int, str, bool, int, bool]]) -> list[Event]:
    """Events of two threads; results are for one of the last calls, or for none."""
    log: list[Event] = []
    for seq, (kind, text, is_side, back, flag) in enumerate(drawn, 1):
        calls = [item.id for item in log if isinstance(item.payload, events.AgentToolUse)]
        call = calls[-1 - back] if back < len(calls) else "sevt_none"
        thread = SIDE if is_side and back else MAIN
        log.append(_event(seq, thread, _payload(kind, text, call, flag)))
    return log


logs = st.lists(steps, min_size=1, max_size=20).map(_log)


def _event(seq: int, thread_id: str, payload: AnyPayload) -> Event:
    return Event(
        id=f"sevt_{seq}",
        session_id="sesn_1",
        seq=seq,
        thread_id=thread_id,
        time=datetime(2026, 11, 16, tzinfo=UTC) + timedelta(seconds=seq),
        payload=payload,
        body=b"",
        version=1,
        prev=b"",
    )


def _golden() -> list[Event]:
    """Every event of every released format, one after the other, as one log."""
    bodies = [msgspec.json.decode(file.read_bytes()) for file in GOLDEN]
    found = [decode_payload(msgspec.json.encode(body.get("payload", body))) for body in bodies]
    return [_event(seq, MAIN, payload) for seq, payload in enumerate(found, 1)]


def fold_log(log: list[Event]) -> tuple[list[ExportedEntry], ConversationFold]:
    conversation = ConversationFold()
    entries = [entry for event in log for entry in conversation.take(event)]
    return [*entries, *conversation.close()], conversation


def transcript(log: list[Event]) -> list[dict[str, Any]]:
    lines = ClaudeCodeLines(session_name="s", main_thread=MAIN)
    entries, conversation = fold_log(log)
    written = [line for entry in entries for line in lines.write(entry, conversation, {})]
    return [json.loads(line.json) for line in written]


def check_transcript(lines: list[dict[str, Any]]) -> None:
    chained = [line for line in lines if line["type"] != "custom-title"]
    assert len({line["uuid"] for line in chained}) == len(chained)
    for is_side in (False, True):
        own = [line for line in chained if line["isSidechain"] is is_side]
        parents = [line.get("logicalParentUuid", line["parentUuid"]) for line in own]
        assert parents == [None, *(line["uuid"] for line in own)][: len(own)]
        check_calls(own)


def check_calls(lines: list[dict[str, Any]]) -> None:
    """Each call has one result, before anything else is said to the model."""
    open_calls: set[str] = set()
    for line in lines:
        content = line.get("message", {}).get("content", "")
        blocks: list[dict[str, Any]] = [] if isinstance(content, str) else content
        asked: set[str] = {block["id"] for block in blocks if block["type"] == "tool_use"}
        answered: set[str] = {b["tool_use_id"] for b in blocks if b["type"] == "tool_result"}
        if line["type"] == "user" and not answered:
            assert not open_calls
        assert answered <= open_calls
        open_calls = (open_calls | asked) - answered
    assert not open_calls


@settings(max_examples=examples(0.5))
@given(logs, st.integers(0, 20))
def test_every_export_is_valid_and_hostile_text_stays_text(log: list[Event], stop: int):
    check_transcript(transcript(log))
    check_page(page(log))
    check_markdown(markdown_of(log))
    early, late = list(transcript_lines(log[:stop])), list(transcript_lines(log))
    assert late[: len(early)] == early  # a file that is written meanwhile is never rewritten


def test_no_hostile_text_becomes_markup():
    said = [events.AgentMessage(content=_text_content(text)) for text in HOSTILE]
    log = [_event(seq, MAIN, payload) for seq, payload in enumerate(said, 1)]
    check_markdown(markdown_of(log))
    check_page(page(log))


def test_every_released_event_can_be_exported():
    log = _golden()
    check_transcript(transcript(log))
    check_page(page(log))
    check_markdown(markdown_of(log))


def transcript_lines(log: list[Event]) -> Iterator[bytes]:
    """What is in the file of a session that has come this far."""
    writer = ClaudeCodeLines(session_name="s", main_thread=MAIN)
    conversation = ConversationFold()
    for event in log:
        for entry in conversation.take(event):
            yield from (line.json for line in writer.write(entry, conversation, {}))


def page(log: list[Event]) -> str:
    entries, conversation = fold_log(log)
    made = HtmlPage(entries, conversation, {}).write(
        HOSTILE[0], [SummaryFact("Agent", HOSTILE[1])], MAIN, "1.0"
    )
    return "".join(made)


_PAGE = ("html", "head", "meta", "title", "style", "body", "main", "header", "footer", "article")
_TEXT = (
    "h1",
    "dl",
    "dt",
    "dd",
    "b",
    "time",
    "div",
    "details",
    "summary",
    "pre",
    "code",
    "p",
    "img",
)
OURS = frozenset((*_PAGE, *_TEXT))


class Reader(HTMLParser):
    """As a browser reads it: which elements there are, with which attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in OURS, tag
        names = {name for name, _ in attrs}
        assert not any(name.startswith("on") for name in names), attrs
        assert not names & {"href", "style", "id", "srcset"}
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check_page(text: str) -> None:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    assert not re.search("[\x00-\x08\x1b\u202e\u2066]", text)


def markdown_of(log: list[Event]) -> str:
    entries, conversation = fold_log(log)
    return "".join(
        render_markdown(HOSTILE[0], [SummaryFact("Agent", HOSTILE[1])], entries, conversation, MAIN)
    )


HEADINGS = re.compile(
    r"User|Another agent|Note to the model|Agent|Thinking|Result|Error|Problem|Call of.*"
    r"|Earlier conversation, summarized|Subagent.*"
)


def check_markdown(text: str) -> None:
    """A reader of Markdown finds no HTML, link or image in it, and no heading of others' outside
    of a quotation."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    inline = [child for token in tokens for child in token.children or ()]
    kinds = {token.type for token in (*tokens, *inline)}
    assert not kinds & {"html_block", "html_inline", "link_open", "image"}, text
    headings = [
        after.content
        for token, after in pairwise(tokens)
        if token.type == "heading_open" and token.level == 0
    ]
    for heading in headings[1:]:
        assert HEADINGS.fullmatch(heading), heading


def test_code_keeps_its_characters_in_markdown_and_on_the_page():
    reply = "Try:\n\n```python\nif a < b: print('<b>')\n```\nor `x < y`."
    log = [
        _event(1, MAIN, events.UserMessage(content=_text_content("How?"))),
        _event(2, MAIN, events.AgentMessage(content=_text_content(reply))),
    ]
    assert "> ```python\n> if a < b: print('<b>')\n> ```\n" in markdown_of(log)
    assert "if a &lt; b: print(&#x27;&lt;b&gt;&#x27;)</pre>" in page(log)
    assert "<code>x &lt; y</code>" in page(log)


def test_deeply_nested_subagents_are_all_on_the_page():
    log: list[Event] = []
    above = MAIN
    for number in range(300):
        log.append(_event(2 * number, above, events.AgentToolUse(name="agent", input={})))
        started = events.ThreadCreated(
            session_thread_id=f"sthr_{number}",
            agent_name=f"agent-{number}.",
            parent_thread_id=above,
            tool_use_id=log[-1].id,
        )
        log.append(_event(2 * number + 1, above, started))
        above = f"sthr_{number}"
    log.append(_event(600, above, events.AgentMessage(content=_text_content("The deepest."))))
    text = page(log)
    check_page(text)
    assert all(text.count(f"agent-{number}.") == 1 for number in range(300))
    assert "The deepest." in text
