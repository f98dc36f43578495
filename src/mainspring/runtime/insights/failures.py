"""What fails repeatedly: the same command, or a tool with the same error, in several sessions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from mainspring.core.content import Block, plain_text
from mainspring.core.envelope import Event
from mainspring.core.events import Failure
from mainspring.runtime.insights.insight import CallMade, Group, Groups, Insight, shortened

_NOT_ITS_FAULT: frozenset[Failure] = frozenset(("denied", "cancelled", "in_doubt"))
_QUOTED = re.compile(r"'[^'\n]{0,200}'|\"[^\"\n]{0,200}\"|`[^`\n]{0,200}`")
_PATH = re.compile(r"(?:\.{0,2}/)[^\s:,;)\]]+")
_NUMBER = re.compile(r"\d+")
_MIN_SESSIONS = 2
_MIN_FAILURES = 3


@dataclass(slots=True)
class FailureDetector:
    commands: Groups = field(default_factory=Groups)
    tools: Groups = field(default_factory=Groups)

    def result(
        self, call: CallMade, event: Event, content: tuple[Block, ...], error: Failure | None
    ) -> None:
        if error in _NOT_ITS_FAULT:
            return
        command = call.command
        if command is not None:
            group = self.commands.group(shortened(command))
        else:
            group = self.tools.group(f"{call.tool}: {signature(plain_text(content))}")
        group.add(event.session_id, event.seq)

    def insights(self) -> list[Insight]:
        found = [
            _insight(group, "failing_command", f"this command fails: {key}", _COMMAND)
            for key, group in self.commands.by_key.items()
            if _is_repeated(group)
        ]
        return found + [
            _insight(group, "failing_tool", f"this tool fails: {key}", _TOOL)
            for key, group in self.tools.by_key.items()
            if _is_repeated(group)
        ]


_COMMAND = "write into AGENTS.md how it is done here (which command, from which folder), or mend it"
_TOOL = "write into AGENTS.md what the tool needs, or take it from the agent if it cannot work here"


def signature(text: str) -> str:
    """An error without what differs from case to case."""
    line = next((each for each in text[:4000].splitlines() if each.strip()), "no message")
    for pattern, instead in ((_QUOTED, "'…'"), (_PATH, "…"), (_NUMBER, "N")):
        line = pattern.sub(instead, line)
    return shortened(line, 120)


def _is_repeated(group: Group) -> bool:
    return group.sessions >= _MIN_SESSIONS or group.count >= _MIN_FAILURES


def _insight(group: Group, topic: str, title: str, action: str) -> Insight:
    return group.insight(
        "failure",
        topic,
        title=title,
        action=action,
    )
