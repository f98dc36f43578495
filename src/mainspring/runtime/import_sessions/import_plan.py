"""Converts another tool's session into our events, before they are stored.

Ids are derived from the file, so the same entry always becomes the same event. Nothing in a file
becomes a permission, an approval or a rule: only messages, calls, results and status events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from mainspring.core import ids
from mainspring.core.content import BlobBlock, Block, TextBlock, plain_text
from mainspring.core.events import (
    AgentMessage,
    AgentThinking,
    AgentToolResult,
    AgentToolUse,
    ContextAdded,
    ContextCompacted,
    KnownPayload,
    ModelRequestEnded,
    ModelRequestStarted,
    SessionCreated,
    StatusIdle,
    StatusRunning,
    StopReason,
    ThreadCreated,
    ThreadMessageReceived,
    ThreadStatusTerminated,
    UserMessage,
)
from mainspring.core.sender import Origin
from mainspring.log.blobs import digest_of
from mainspring.runtime.import_sessions.source_session import (
    ImportFinding,
    SourceCall,
    SourceCallResult,
    SourceCompaction,
    SourcePrompt,
    SourceReply,
    SourceSession,
    SourceSubagent,
    SourceText,
    SourceThinking,
    SourceThread,
)

MAX_RESULT_CHARS = 100_000  # of one tool result
MAX_EVENTS = 500_000  # of one session
MAX_SUBAGENT_DEPTH = 32  # of its threads
UNKNOWN_RESULT = (
    "Unknown: the imported file has no result for this call. It may or may not have been carried"
    " out; look before you repeat it."
)
IMPORT_NOTE = (
    "The conversation up to here was imported from {tool}. The tools may have had other names and"
    " inputs there; use only those that you have now. Files and everything else that results"
    " mention may have changed since."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedEvent:
    id: str
    thread_id: str
    time: datetime
    payload: KnownPayload
    source_id: str
    """The entry of the file that the event comes from."""
    replaces: tuple[str, str] | None = None
    """For a compaction: the ids of the first and last event that its summary replaces."""


@dataclass(slots=True, kw_only=True)
class ImportPlan:
    session_id: str
    thread_id: str
    events: list[PlannedEvent] = field(default_factory=list[PlannedEvent])
    blobs: dict[str, bytes] = field(default_factory=dict[str, bytes])


def session_id_of(form: str, source_id: str) -> str:
    return ids.stable_id(ids.SESSION, "import", form, source_id)


def plan_import(
    source: SourceSession,
    *,
    scrub: Callable[[bytes], bytes],
    now: datetime,
    session_id: str | None = None,
) -> ImportPlan:
    """`now` is used where the file gives no time. Without a `session_id`, the id is derived from
    the file."""
    session_id = session_id or session_id_of(source.format, source.id)
    main = ids.stable_id(ids.THREAD, session_id, "main")
    planned = ImportPlan(session_id=session_id, thread_id=main)
    started = min(source.started or _first_time(source) or now, now)
    planner = _Planner(planned, source, scrub, now, started)
    planner.begin()
    planner.thread(source.main, main)
    planner.end()
    return planned


def _first_time(source: SourceSession) -> datetime | None:
    return next((item.time for item in source.main.items if item.time is not None), None)


@dataclass(slots=True)
class _Planner:
    planned: ImportPlan
    source: SourceSession
    scrub: Callable[[bytes], bytes]
    now: datetime
    time: datetime
    """The time of the last event: times never go back, and never beyond now."""
    by_call: dict[str, list[SourceSubagent]] = field(
        default_factory=dict[str, list[SourceSubagent]]
    )
    written: set[str] = field(default_factory=set[str])
    """The ids of subagents that have been written."""
    depth: int = 0
    """The nesting depth of the subagent that is being written."""
    key_counts: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])

    def begin(self) -> None:
        for subagent in self.source.source_subagents:
            self.by_call.setdefault(subagent.call_id or "", []).append(subagent)
        origin = Origin(type="import", id=f"{self.source.format}:{self.source.id}")
        created = SessionCreated(title=self.source.title, origin=origin)
        self.add("created", self.planned.thread_id, None, created)

    def end(self) -> None:
        """Write the subagents that have no known call, or are nested too deeply."""
        for subagent in self.source.source_subagents:
            if subagent.id not in self.written:
                self.subagent(subagent, self.planned.thread_id, None)

    def add(
        self,
        key: str,
        thread_id: str,
        time: datetime | None,
        payload: KnownPayload,
        *,
        replaces: tuple[str, str] | None = None,
    ) -> str:
        """`key` identifies the event within its thread, by the entry that it comes from."""
        self.time = self.time if time is None else min(max(self.time, time), self.now)
        self.key_counts[thread_id, key] += 1
        if (count := self.key_counts[thread_id, key]) > 1:  # a file may contain an entry twice
            key = f"{key}#{count}"
        event = PlannedEvent(
            id=ids.stable_id(ids.EVENT, self.planned.session_id, thread_id, key),
            thread_id=thread_id,
            time=self.time,
            payload=payload,
            source_id=key,
            replaces=replaces,
        )
        self.planned.events.append(event)
        return event.id

    def thread(self, thread: SourceThread, thread_id: str) -> None:
        _ThreadPlanner(self, thread, thread_id).write()

    def subagent(self, subagent: SourceSubagent, parent: str, call: str | None) -> None:
        if subagent.id in self.written or not subagent.thread.items:
            return
        if self.depth >= MAX_SUBAGENT_DEPTH:
            self.add_finding(
                f"has subagents more than {MAX_SUBAGENT_DEPTH} deep; deeper ones became subagents"
                " of the session itself"
            )
            return
        self.written.add(subagent.id)
        thread_id = ids.stable_id(ids.THREAD, self.planned.session_id, subagent.id)
        name = subagent.name or "subagent"
        created = ThreadCreated(
            session_thread_id=thread_id,
            agent_name=name,
            parent_thread_id=parent,
            tool_use_id=call,
            mode="foreground",
            description=subagent.description,
        )
        self.add(f"subagent:{subagent.id}", parent, None, created)
        self.depth += 1
        self.thread(subagent.thread, thread_id)
        self.depth -= 1
        thread_end = ThreadStatusTerminated(session_thread_id=thread_id, agent_name=name)
        self.add(
            f"subagent-ended:{subagent.id}:{self.planned.events[-1].id}", parent, None, thread_end
        )

    def is_full(self) -> bool:
        if len(self.planned.events) < MAX_EVENTS:
            return False
        self.add_finding(f"is longer than {MAX_EVENTS} events; the rest was left out")
        return True

    def add_finding(self, what: str) -> None:
        finding = ImportFinding(path=self.source.path, line=0, what=what)
        if finding not in self.source.findings:
            self.source.findings.append(finding)

    def cap_result(self, content: tuple[Block, ...]) -> tuple[Block, ...]:
        """Store a result that is too long as a blob; the model reads its beginning and end."""
        text = plain_text(content)
        if len(text) <= MAX_RESULT_CHARS:
            return content
        clean = self.scrub(text.encode("utf-8", "replace"))
        digest = digest_of(clean)
        self.planned.blobs[digest] = clean
        text, half = clean.decode("utf-8", "replace"), MAX_RESULT_CHARS // 2
        preview = (
            f"{text[:half]}\n[... {len(text) - 2 * half} characters left out; history_read shows"
            f" all of blob {digest} ...]\n{text[-half:]}"
        )
        media = [block for block in content if not isinstance(block, TextBlock)]
        return (BlobBlock(preview=preview, hash=digest, size=len(clean)), *media)


class _ThreadPlanner:
    """Writes one conversation as runs: a prompt, replies with their results, and an end."""

    def __init__(self, planner: _Planner, thread: SourceThread, thread_id: str) -> None:
        self._planner = planner
        self._thread = thread
        self._id = thread_id
        self._is_main = thread_id == planner.planned.thread_id
        self._is_running = False
        self._awaits_reply = False
        """Whether a message has no reply yet."""
        self._lacks_result = False
        self._has_open_calls = False
        self._last_item_id = ""
        self._first_of: dict[str, int] = {}
        """The position in `_event_ids` of each item's events, to find what a compaction keeps."""
        self._event_ids: list[str] = []
        self._has_reply = False

    def write(self) -> None:
        for item in self._thread.items:
            if self._planner.is_full():
                break
            start = len(self._event_ids)
            match item:
                case SourcePrompt():
                    self._prompt(item)
                case SourceReply():
                    self._reply(item)
                case SourceCompaction():
                    self._compaction(item)
            if len(self._event_ids) > start:
                self._first_of[item.id] = start
        if not self._has_open_calls:  # otherwise the run continues with them
            self._end_run()

    def _add(self, key: str, time: datetime | None, payload: KnownPayload) -> str:
        event_id = self._planner.add(key, self._id, time, payload)
        self._event_ids.append(event_id)
        return event_id

    def _prompt(self, item: SourcePrompt) -> None:
        if not item.is_person:
            self._last_item_id = item.id
            text = plain_text(item.content)
            self._add(item.id, item.time, ContextAdded(text=text, source="import"))
            return
        if not self._is_main:
            message = ThreadMessageReceived(
                from_session_thread_id=self._planner.planned.thread_id, content=item.content
            )
            self._add(item.id, item.time, message)
            self._last_item_id = item.id
            self._is_running = self._awaits_reply = True
            return
        self._end_run()
        self._last_item_id = item.id
        self._add(item.id, item.time, UserMessage(content=item.content))
        self._start_run(item.id, item.time)
        self._awaits_reply = True

    def _start_run(self, key: str, time: datetime | None) -> None:
        if self._is_main and not self._is_running:
            self._add(f"running:{key}", time, StatusRunning())
        self._is_running = True

    def _end_run(self) -> None:
        if not self._is_running:
            return
        reason = "completed"
        if self._awaits_reply:
            reason = "interrupted_tools" if self._lacks_result else "interrupted_streaming"
        idle = StatusIdle(stop_reason=StopReason(type="end_turn"), reason=reason)
        self._add(f"idle:{self._last_item_id}:{reason}", None, idle)
        self._is_running = self._awaits_reply = self._lacks_result = False

    def _reply(self, item: SourceReply) -> None:
        calls = [part for part in item.parts if isinstance(part, SourceCall)]
        parts = [part for part in item.parts if isinstance(part, SourceCall) or part.text]
        if not parts:
            return
        self._last_item_id, self._has_reply = item.id, True
        self._start_run(item.id, item.time)
        started = self._add(f"request:{item.id}", item.time, ModelRequestStarted())
        calls_made: dict[str, str] = {}
        for index, part in enumerate(parts):
            key = f"{item.id}:{index}"
            match part:
                case SourceText(text=text):
                    self._add(key, None, AgentMessage(content=(TextBlock(text),)))
                case SourceThinking(text=text):
                    self._add(key, None, AgentThinking(text=text))
                case SourceCall(id=call_id) if call_id not in calls_made:
                    use = AgentToolUse(name=part.name, input=part.input)
                    calls_made[call_id] = self._add(f"call:{call_id}", None, use)
                case SourceCall():
                    pass
        request_end = ModelRequestEnded(
            model_request_start_id=started,
            model_usage=item.usage,
            model=item.model,
            stop_reason="tool_use" if calls else "end_turn",
        )
        self._add(f"replied:{item.id}:{len(parts)}", None, request_end)
        self._awaits_reply = self._lacks_result = False
        self._settle(calls_made)

    def _settle(self, calls: dict[str, str]) -> None:
        for call_id, event_id in calls.items():
            for subagent in self._planner.by_call.get(call_id, ()):
                self._planner.subagent(subagent, self._id, event_id)
            result = self._thread.results.get(call_id)
            if result is None and call_id in self._thread.open_calls:
                self._has_open_calls = True
            elif result is None:
                self._lacks_result = True
                self._add(f"unknown:{call_id}", None, _unknown_result(event_id))
            else:
                self._result(f"result:{call_id}", event_id, result)
            self._awaits_reply = True

    def _result(self, key: str, event_id: str, result: SourceCallResult) -> None:
        event = AgentToolResult(
            tool_use_id=event_id,
            content=self._planner.cap_result(result.content),
            is_error=result.is_error,
            error="failed" if result.is_error else None,
        )
        self._add(key, result.time, event)

    def _compaction(self, item: SourceCompaction) -> None:
        if not item.summary:
            return
        first, last = self._replaced_range(item)
        if not first or not last:  # it replaces the beginning of another file
            self._add(item.id, item.time, ContextAdded(text=item.summary, source="import"))
            return
        overlay = ContextCompacted(layer="auto", summary=item.summary)
        event_id = self._planner.add(item.id, self._id, item.time, overlay, replaces=(first, last))
        self._event_ids.append(event_id)

    def _replaced_range(self, item: SourceCompaction) -> tuple[str | None, str | None]:
        end = self._first_of.get(item.first_kept_id or "", len(self._event_ids))
        if not self._has_reply or not end:
            return None, None
        return self._event_ids[0], self._event_ids[end - 1]


def _unknown_result(call_id: str) -> AgentToolResult:
    return AgentToolResult(
        tool_use_id=call_id,
        content=(TextBlock(UNKNOWN_RESULT),),
        is_error=True,
        error="in_doubt",
    )
