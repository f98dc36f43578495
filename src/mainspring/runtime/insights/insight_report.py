"""Builds the insight report: reads all sessions once, event by event, for all detectors, failures
included. Deterministic; calls no model."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime
from decimal import Decimal

from msgspec import Struct

from mainspring.core import events
from mainspring.core.clock import from_micros
from mainspring.core.content import Block, plain_text
from mainspring.core.envelope import Event, event_types
from mainspring.core.events import Failure
from mainspring.core.sender import OriginType
from mainspring.harness.answer_checks import CHECK_EVENT
from mainspring.harness.context.messages import blocks_bytes
from mainspring.harness.limits import prompt_tokens
from mainspring.harness.state.open_call import call_id_of
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow, all_sessions
from mainspring.runtime.insights.insight import (
    BYTES_PER_TOKEN,
    Insight,
    InsightGroups,
    ObservedCall,
    observed_call,
    shorten,
)
from mainspring.runtime.insights.missing_rules import RuleDetector
from mainspring.runtime.insights.token_waste import WasteDetector
from mainspring.runtime.insights.unused_tools import UnusedDetector
from mainspring.runtime.session.session_summary import origin_of

_EXCLUDED_FAILURES: frozenset[Failure] = frozenset(("denied", "cancelled", "in_doubt"))
_QUOTED = re.compile(r"'[^'\n]{0,200}'|\"[^\"\n]{0,200}\"|`[^`\n]{0,200}`")
_PATH = re.compile(r"(?:\.{0,2}/)[^\s:,;)\]]+")
_NUMBER = re.compile(r"\d+")
_MIN_SESSIONS = 2  # in which the same thing happened; once is chance
_MIN_FAILURES = 3  # or so many times, even in one session


@dataclass(slots=True)
class FailureDetector:
    commands: InsightGroups = field(default_factory=InsightGroups)
    tools: InsightGroups = field(default_factory=InsightGroups)

    def result(
        self, call: ObservedCall, event: Event, content: tuple[Block, ...], error: Failure | None
    ) -> None:
        if error in _EXCLUDED_FAILURES:
            return
        command = call.command
        if command is not None:
            group = self.commands.group(shorten(command))
        else:
            group = self.tools.group(f"{call.tool}: {error_signature(plain_text(content))}")
        group.add(event.session_id, event.seq)

    def insights(self) -> list[Insight]:
        kinds = (
            (self.commands, "failing_command", "this command fails", _COMMAND_ACTION),
            (self.tools, "failing_tool", "this tool fails", _TOOL_ACTION),
        )
        return [
            group.insight("failure", topic, title=f"{what}: {key}", action=action)
            for groups, topic, what, action in kinds
            for key, group in groups.by_key.items()
            if group.sessions >= _MIN_SESSIONS or group.count >= _MIN_FAILURES
        ]


_COMMAND_ACTION = "document in AGENTS.md how to do it (which command, in which folder), or fix it"
_TOOL_ACTION = (
    "document in AGENTS.md what the tool needs, or remove the tool if it cannot work here"
)


def error_signature(text: str) -> str:
    """An error without the parts that differ from case to case."""
    line = next((line for line in text[:4000].splitlines() if line.strip()), "no message")
    for pattern, replacement in ((_QUOTED, "'…'"), (_PATH, "…"), (_NUMBER, "N")):
        line = pattern.sub(replacement, line)
    return shorten(line, 120)


_PAGE = 1000  # events read at once
_AUTOMATED_ORIGINS: frozenset[OriginType] = frozenset(("eval", "grader", "dream", "campaign"))
"""Sessions with these origins do not count."""
_TYPES = event_types(
    events.UserMessage,
    events.UserToolConfirmation,
    events.AgentMessage,
    events.AgentToolUse,
    events.AgentMcpToolUse,
    events.AgentToolResult,
    events.AgentMcpToolResult,
    events.ModelRequestStarted,
    events.ModelRequestEnded,
    events.ContextCompacted,
    events.AgentAdopted,
    events.SkillUsed,
    events.ToolCallAuthorized,
    events.BudgetSettled,
    events.HookRan,
)
_ORDER = {"waste": 0, "failure": 1, "missing_rule": 2, "unused": 3}


class CheckRate(Struct, frozen=True, kw_only=True):
    """How often answers passed one of the `checks` of agents."""

    name: str
    answers: int
    """The number of answers that it judged, including revised ones."""
    accepted: int

    @property
    def share(self) -> float:
        return self.accepted / self.answers


class InsightReport(Struct, frozen=True, kw_only=True):
    since: datetime | None
    sessions: int
    imported: int
    """How many of them were imported from other tools."""
    events: int
    prompt_tokens: int
    output_tokens: int
    cost_usd: Decimal
    insights: tuple[Insight, ...]
    checks: tuple[CheckRate, ...] = ()
    """Sorted by pass rate, the lowest first."""


@dataclass(slots=True)
class _Totals:
    sessions: int = 0
    imported: int = 0
    events: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    cost_usd: Decimal = Decimal(0)


def _no_progress(_sessions: int, _events: int) -> None:
    pass


async def build_report(
    log: SessionLog,
    *,
    since: datetime | None = None,
    progress: Callable[[int, int], None] = _no_progress,
) -> InsightReport:
    """`since` limits the report to later events. `progress` gets the counts of sessions and
    events."""
    collector = _InsightCollector(since)
    async for session in all_sessions(log.store):
        if since is None or from_micros(session.updated) >= since:
            await collector.session(log, session)
            progress(collector.totals.sessions, collector.totals.events)
    return await collector.report(log)


@dataclass(slots=True)
class _InsightCollector:
    since: datetime | None
    totals: _Totals = field(default_factory=_Totals)
    waste: WasteDetector = field(default_factory=WasteDetector)
    failures: FailureDetector = field(default_factory=FailureDetector)
    rules: RuleDetector = field(default_factory=RuleDetector)
    unused: UnusedDetector = field(default_factory=UnusedDetector)
    _calls: dict[str, ObservedCall] = field(default_factory=dict[str, ObservedCall])
    """The calls of this session without a result yet."""
    _asked: set[str] = field(default_factory=set[str])
    _checks: dict[str, CheckRate] = field(default_factory=dict[str, CheckRate])

    async def session(self, log: SessionLog, session: SessionRow) -> None:
        """Read a session's own events; inherited events are read in the parent."""
        origin = (await origin_of(log, session)).type
        if origin in _AUTOMATED_ORIGINS:
            return
        after, count = session.parent_seq, 0
        while page := await log.read(session.id, after=after, types=_TYPES, limit=_PAGE):
            for event in page:
                if self.since is None or event.time >= self.since:
                    self._observe(event)
                    count += 1
                elif isinstance(event.payload, events.AgentAdopted):
                    self.unused.adopted(event.payload.definition)
            after = page[-1].seq
        if count:
            self.totals.sessions += 1
            self.totals.imported += origin == "import"
            self.totals.events += count
        self.waste.end_session()
        self.unused.end_session()
        self._calls, self._asked = {}, set()

    def _observe(self, event: Event) -> None:
        match event.payload:
            case events.UserMessage() as message:
                if _is_person(event):
                    self.rules.add_message(event, message)
                self.waste.text(event, "messages of people", _tokens(message.content))
            case events.AgentMessage(content=content):
                self.waste.text(event, "replies", _tokens(content))
            case events.ContextCompacted() as compacted:
                self.waste.compacted(event, compacted)
            case events.ModelRequestStarted() as request:
                self.waste.request(event, request)
                self.unused.request(event, request)
            case events.ModelRequestEnded() as reply:
                self.waste.reply(event, reply)
                self.totals.prompt_tokens += prompt_tokens(reply.model_usage)
                self.totals.output_tokens += reply.model_usage.output_tokens
            case events.BudgetSettled(cost_usd=cost):
                self.totals.cost_usd += Decimal(cost)
            case _:
                self._observe_use(event)

    def _observe_use(self, event: Event) -> None:
        match event.payload:
            case events.AgentAdopted(definition=definition):
                self.unused.adopted(definition)
            case events.SkillUsed(name=name):
                self.unused.skills_used[name] += 1
            case events.HookRan(hook_event=kind, handler=name, outcome=outcome):
                if kind == CHECK_EVENT:
                    self._observe_check(name, is_accepted=outcome == "ok")
            case _:
                self._observe_call(event)

    def _observe_check(self, name: str, *, is_accepted: bool) -> None:
        rate = self._checks.get(name) or CheckRate(name=name, answers=0, accepted=0)
        self._checks[name] = CheckRate(
            name=name, answers=rate.answers + 1, accepted=rate.accepted + is_accepted
        )

    def _observe_call(self, event: Event) -> None:
        match event.payload:
            case (
                events.AgentToolUse(name=name, input=tool_input)
                | events.AgentMcpToolUse(name=name, input=tool_input)
            ):
                call = self._calls[event.id] = observed_call(event, name, tool_input)
                self.unused.called[call.tool] += 1
            case events.ToolCallAuthorized(tool_use_id=call_id, decision="ask"):
                self._asked.add(call_id)
            case events.UserToolConfirmation(tool_use_id=call_id, result=result):
                call = self._calls.get(call_id)
                if call is not None and call_id in self._asked:
                    self._asked.discard(call_id)
                    self.rules.answered(call, event, is_allowed=result == "allow")
            case events.AgentToolResult() | events.AgentMcpToolResult() as result:
                self._settle(event, result)
            case _:
                pass

    def _settle(
        self, event: Event, result: events.AgentToolResult | events.AgentMcpToolResult
    ) -> None:
        call = self._calls.pop(call_id_of(result) or "", None)
        if call is None:
            return
        self.waste.result(call, event, result.content)
        if result.is_error:
            self.rules.failed(call, event, plain_text(result.content))
            self.failures.result(call, event, result.content, result.error)

    async def report(self, log: SessionLog) -> InsightReport:
        insights = [
            *self.waste.insights(),
            *self.failures.insights(),
            *self.rules.insights(),
            *await self.unused.insights(log),
        ]
        return InsightReport(
            since=self.since,
            **asdict(self.totals),
            insights=tuple(sorted(insights, key=_rank)),
            checks=tuple(sorted(self._checks.values(), key=lambda rate: (rate.share, rate.name))),
        )


def _rank(insight: Insight) -> tuple[int, int, int, int, str]:
    """By kind; the most expensive first, then the most frequent."""
    return (
        _ORDER[insight.kind],
        -insight.tokens,
        -insight.sessions,
        -insight.count,
        insight.title,
    )


def _is_person(event: Event) -> bool:
    """Whether a person wrote it, here or in the tool it was imported from."""
    sender = event.sender
    return sender is None or sender.kind == "person" or sender.id.startswith("import:")


def _tokens(content: tuple[Block, ...]) -> int:
    return blocks_bytes(content) // BYTES_PER_TOKEN
