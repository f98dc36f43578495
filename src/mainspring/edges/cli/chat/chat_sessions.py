"""Commands of chat about whole sessions: /resume with a picker, /rewind, /diff and /export. Also
prints the conversation of a resumed session."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import datetime
from io import StringIO
from pathlib import Path

from mainspring.config import Settings
from mainspring.core import clock, events
from mainspring.core.content import plain_text
from mainspring.core.envelope import Event, event_types
from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.render.event_summary import short_id, truncate
from mainspring.edges.cli.render.markdown_stream import HiddenArea
from mainspring.edges.cli.render.printing import Screen, age_text, plural
from mainspring.edges.cli.render.renderer import TerminalRenderer
from mainspring.edges.cli.run.terminal_input import Keyboard
from mainspring.edges.cli.session_lookup import find_session
from mainspring.edges.cli.sessions.session_rewind import RewindOptions, diff, rewind_session
from mainspring.edges.cli.sessions.session_transfer import export
from mainspring.log.session_log import SessionLog
from mainspring.runtime.export_sessions.exporter import ExportFormat
from mainspring.runtime.memory.memory_mode import MemoryMode
from mainspring.runtime.session.recent_sessions import PEOPLES_ORIGINS, sessions_of_origins
from mainspring.runtime.session.session_summary import SessionSummary, summarize_session
from mainspring.runtime.skills.substitution import typed_text

_MAX_LISTED = 15  # sessions, or messages, to choose from
_SHOWN_MESSAGES = 5  # of a resumed session, to remember where it was
_USER_MESSAGES = event_types(events.UserMessage)
_FORMATS: dict[str, ExportFormat] = {
    ".md": "markdown",
    ".html": "html",
    ".jsonl": "jsonl",
    ".json": "claude-code",
}


async def show_conversation(settings: Settings, log: SessionLog, session_id: str) -> None:
    """Print the last messages of a session with their replies."""
    row = await log.session(session_id)
    thread = [event for event in await log.read(row.id) if event.thread_id == row.thread_id]
    messages = [index for index, event in enumerate(thread) if event.type in _USER_MESSAGES]
    begin = messages[-_SHOWN_MESSAGES] if len(messages) > _SHOWN_MESSAGES else 0
    renderer = TerminalRenderer(settings, is_live=False, is_whole=True)
    if begin:
        earlier = plural(len(messages) - _SHOWN_MESSAGES, "earlier message")
        renderer.note(f"{earlier}: mainspring sessions show {short_id(session_id)}")
    for event in thread[begin:]:
        renderer.event(event)
    renderer.close()


async def transcript(settings: Settings, log: SessionLog, session_id: str) -> list[str]:
    """The whole conversation with all outputs, as lines with ANSI styles."""
    row = await log.session(session_id)
    thread = [event for event in await log.read(row.id) if event.thread_id == row.thread_id]
    before, sys.stdout = sys.stdout, _TerminalText()
    try:
        renderer = TerminalRenderer(
            settings, is_live=False, is_whole=True, shows_all=True, area=HiddenArea()
        )
        for event in thread:
            renderer.event(event)
        renderer.close()
        return sys.stdout.getvalue().splitlines()
    finally:
        sys.stdout = before


class _TerminalText(StringIO):
    """Text that is written as to a terminal."""

    def isatty(self) -> bool:
        return True


async def show_resumed(
    settings: Settings, notes: Screen, log: SessionLog, session: SessionSummary
) -> None:
    await show_conversation(settings, log, session.id)
    title = f": {session.title}" if session.title else ""
    line = f"session {short_id(session.id)}, {plural(session.turns, 'turn')}{title}"
    notes.paragraph((line, "dim"))


@dataclass(frozen=True, slots=True)
class PickedSession:
    """The session to continue with."""

    id: str
    model: str | None = None
    """Its last model; `None`: the current one."""
    memory: MemoryMode | None = None
    """Its memory mode; `None`: the current one."""


@dataclass(frozen=True, slots=True)
class ChatSessions:
    settings: Settings
    notes: Screen
    log: SessionLog
    keyboard: Keyboard

    async def run(self, name: str, typed: str, current: str | None) -> PickedSession | None:
        """Run `resume`, `diff`, `export` or `rewind`. Returns the session to continue with, if it
        is another one."""
        if name == "resume":
            return await self._resume(typed, current)
        if current is None:
            self.notes.paragraph(("nothing yet", "dim"))
            return None
        match name:
            case "diff":
                await diff(self.settings, session=current)
            case "export":
                await self._export(current, typed)
            case _:
                return await self._rewind(current, typed)
        return None

    async def _resume(self, typed: str, current: str | None) -> PickedSession | None:
        """The session that the user named, or picks from a list."""
        if typed:
            named = await find_session(self.settings, self.log, typed)
            summary = await summarize_session(self.log, named)
            return PickedSession(summary.id, summary.model, summary.memory)
        rows = sorted(
            [
                row
                async for row in sessions_of_origins(self.log, PEOPLES_ORIGINS)
                if row.id != current
            ],
            key=lambda row: row.updated,
            reverse=True,
        )
        summaries = [await summarize_session(self.log, row) for row in rows[:_MAX_LISTED]]
        if not summaries:
            self.notes.paragraph(("there is no other session", "dim"))
            return None
        now = clock.now()
        rows = [_row(summary, now) for summary in summaries]
        index = await self.keyboard.choose("session: ", rows)
        if index is None:
            return None
        summary = summaries[index]
        return PickedSession(summary.id, summary.model, summary.memory)

    async def _rewind(self, session_id: str, typed: str) -> PickedSession | None:
        """Rewind files and conversation to before a message that the user picks."""
        row = await self.log.session(session_id)
        messages = [
            event
            for event in await self.log.read(session_id, types=_USER_MESSAGES)
            if event.thread_id == row.thread_id
        ]
        if typed and not (typed.isdigit() and 1 <= int(typed) <= len(messages)):
            raise InvalidInput(f"say how many of {len(messages)} messages to go back: /rewind 1")
        if typed:
            index: int | None = len(messages) - int(typed)
        else:
            last = messages[-_MAX_LISTED:]
            texts = [_message_text(event) for event in reversed(last)]
            chosen = await self.keyboard.choose("go back to before: ", texts)
            index = None if chosen is None else len(messages) - 1 - chosen
        if index is None:
            return None
        options = RewindOptions(to=max(messages[index].seq - 1, 1))
        async with self.keyboard.suspended():
            view = await rewind_session(self.settings, session_id, options, is_in_chat=True)
        return None if view is None or view.fork is None else PickedSession(view.fork)

    async def _export(self, session_id: str, file: str) -> None:
        """Export to a file. Its suffix determines the format."""
        path = Path(file or f"session-{short_id(session_id)}.md")
        form = _FORMATS.get(path.suffix.lower())
        if form is None:
            raise InvalidInput(f"{path.name}: its name ends with {', '.join(_FORMATS)}")
        output = str(Path(self.settings.folder, path))
        await export(self.settings, session=session_id, form=form, output=output)


def _row(summary: SessionSummary, now: datetime) -> str:
    age = age_text(now - summary.updated)
    status = summary.status.replace("_", " ")
    title = truncate(summary.title or "")
    return f"{age:>7}  {short_id(summary.id)}  {summary.turns:>3}  {status:<16}  {title}".rstrip()


def _message_text(event: Event) -> str:
    content = event.payload.content if isinstance(event.payload, events.UserMessage) else ()
    return truncate(typed_text(content) or plain_text(content) or "(no text)")
