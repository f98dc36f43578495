"""Checks of an agent's answer before its run may end: length, words, citations, functions, and the
commands that must have passed after the last edit.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from msgspec import Struct

from mainspring.core.envelope import Event
from mainspring.core.events import AgentToolResult, AgentToolUse, HookRan
from mainspring.harness.function_hooks import MaybeAwaitable, call_function, name_of
from mainspring.harness.permissions.tool_names import canonical_name

REVISIONS = 2
"""How often an answer is sent back; after that it is returned with a flag."""
CHECK_EVENT = "Check"
"""The `hook_event` of `hook.ran` for checks."""
_CITATION = re.compile(r"https?://|\[\d+\]|\[[^\]\n]+\]\([^)\n]+\)|[\w./-]+\.\w+:\d+")
_EDITS = frozenset(("edit", "write"))
_SEGMENTS = re.compile(r"(&&|\|\||[;|&\n])")

CheckFunction: TypeAlias = Callable[[str], MaybeAwaitable[str | None]]
"""Takes the answer; returns the problem with it, or `None`."""


class AnswerCheck(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Requirements for an answer."""

    max_chars: int | None = None
    banned: tuple[str, ...] = ()
    """Words that must not be in it, in any case."""
    must_mention: tuple[str, ...] = ()
    """Words that must be in it, in any case."""
    citations: bool = False
    """It names a source: a link, `[1]`, or a file with a line."""

    def problems(self, text: str) -> dict[str, str]:
        """The problems of an answer, by the name of the check."""
        folded = text.casefold()
        banned_words = [word for word in self.banned if word.casefold() in folded]
        missing_words = [word for word in self.must_mention if word.casefold() not in folded]
        problems: dict[str, str] = {}
        if self.max_chars is not None and len(text) > self.max_chars:
            problems["max_chars"] = f"it has {len(text)} characters, at most {self.max_chars}"
        if banned_words:
            problems["banned"] = f"it must not say: {', '.join(banned_words)}"
        if missing_words:
            problems["must_mention"] = f"it does not mention: {', '.join(missing_words)}"
        if self.citations and not _CITATION.search(text):
            problems["citations"] = "it cites no source"
        return problems

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the checks that are set."""
        selected = {
            "max_chars": self.max_chars is not None,
            "banned": bool(self.banned),
            "must_mention": bool(self.must_mention),
            "citations": self.citations,
        }
        return tuple(name for name, is_set in selected.items() if is_set)


Check: TypeAlias = AnswerCheck | CheckFunction


async def run_checks(checks: Sequence[Check], text: str) -> list[HookRan]:
    """Run all checks on an answer. A function that raises has failed the answer."""
    runs: list[HookRan] = []
    for check in checks:
        if isinstance(check, AnswerCheck):
            problems = check.problems(text)
            runs += [_check_run(name, problems.get(name)) for name in check.names]
        else:
            runs.append(_check_run(name_of(check), await _problem(check, text)))
    return runs


async def _problem(check: CheckFunction, text: str) -> str | None:
    try:
        return await call_function(check, text)
    except Exception as error:  # noqa: BLE001 (the function is the user's, and it is a gate)
        return f"the check failed: {type(error).__name__}: {error}"


def _check_run(name: str, problem: str | None) -> HookRan:
    outcome = "ok" if problem is None else "blocked"
    return HookRan(hook_event=CHECK_EVENT, handler=name, outcome=outcome, reason=problem)


async def run_evidence_checks(
    commands: Sequence[str], read_calls: Callable[[], Awaitable[Sequence[Event]]], thread_id: str
) -> list[HookRan]:
    """Whether each command passed after the thread's last edit; empty if it edited nothing.

    `read_calls`: the session's `agent.tool_use` and `agent.tool_result` events.
    """
    events = [event for event in await read_calls() if event.thread_id == thread_id]
    edits = [event.seq for event in events if _is_edit(event)]
    if not edits:
        return []
    results = {
        event.payload.tool_use_id: event.payload
        for event in events
        if isinstance(event.payload, AgentToolResult)
    }
    passed_commands = [
        str(event.payload.input.get("command", ""))
        for event in events
        if isinstance(event.payload, AgentToolUse)
        and event.seq > edits[-1]
        and canonical_name(event.payload.name) == "bash"
        and (result := results.get(event.id)) is not None
        and not result.is_error
    ]
    return [
        _check_run(
            f"evidence: {command}",
            None
            if any(proves(command, line) for line in passed_commands)
            else f"you changed files, and `{command}` has not passed since: run it and fix what"
            " fails, or say plainly that it does not pass",
        )
        for command in commands
    ]


def _is_edit(event: Event) -> bool:
    payload = event.payload
    return isinstance(payload, AgentToolUse) and canonical_name(payload.name) in _EDITS


def proves(command: str, line: str) -> bool:
    """Whether a line that exited with 0 shows that the command did: it is part of the line, and
    nothing after it hides its status."""
    parts = [part.strip() for part in _SEGMENTS.split(line) if part.strip()]
    for at, part in enumerate(parts):
        is_it = part == command or part.startswith(f"{command} ")
        operators = set(parts[at + 1 :]) & {"||", ";", "|", "&", "\n"}
        if is_it and not operators:
            return True
    return False
