"""Reads a session from the log and writes it in the requested format."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Literal, TypeAlias

from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow
from mainspring.log.transfer import export_lines
from mainspring.runtime.export_sessions.api_blocks import media_of
from mainspring.runtime.export_sessions.claude_code_transcript import ClaudeCodeLines, session_uuid
from mainspring.runtime.export_sessions.conversation_fold import ConversationFold, ExportedEntry
from mainspring.runtime.export_sessions.html_page import HtmlPage
from mainspring.runtime.export_sessions.markdown_page import render_markdown
from mainspring.runtime.session.session_summary import summarize_session, summary_facts

ExportFormat: TypeAlias = Literal["jsonl", "claude-code", "markdown", "html"]

_PAGE = 500  # events read at once


async def export_session(
    log: SessionLog, session: SessionRow, form: ExportFormat, *, version: str
) -> AsyncGenerator[bytes, None]:
    """Yield the file in pieces. `jsonl` is the log itself, which `log import` reads."""
    match form:
        case "jsonl":
            pieces = _log_lines(log, session)
        case "claude-code":
            pieces = _claude_code(log, session)
        case "markdown" | "html":
            pieces = _document(log, session, form, version)
    async with aclosing(pieces):
        async for piece in pieces:
            yield piece


async def _log_lines(log: SessionLog, session: SessionRow) -> AsyncGenerator[bytes, None]:
    async with aclosing(export_lines(log, session.id)) as lines:
        async for line in lines:
            yield line + b"\n"


async def _claude_code(log: SessionLog, session: SessionRow) -> AsyncGenerator[bytes, None]:
    conversation = ConversationFold()
    lines = ClaudeCodeLines(session_name=session_uuid(session.id), main_thread=session.thread_id)
    async with aclosing(_entries(log, session.id, conversation)) as entries:
        async for entry in entries:
            media = await media_of(log, getattr(entry, "content", ()))
            for line in lines.write(entry, conversation, media):
                yield line.json + b"\n"


async def _document(
    log: SessionLog, session: SessionRow, form: Literal["markdown", "html"], version: str
) -> AsyncGenerator[bytes, None]:
    conversation, entries, media = ConversationFold(), list[ExportedEntry](), dict[str, bytes]()
    async with aclosing(_entries(log, session.id, conversation)) as folded:
        async for entry in folded:
            entries.append(entry)
            if form == "html":
                media |= await media_of(log, getattr(entry, "content", ()))
    summary = await summarize_session(log, session)
    title, facts = summary.title or f"Session {session.id}", summary_facts(summary)
    if form == "html":
        page = HtmlPage(entries, conversation, media)
        pieces = page.write(title, facts, session.thread_id, version)
    else:
        pieces = render_markdown(title, facts, entries, conversation, session.thread_id)
    for piece in pieces:
        yield piece.encode("utf-8", "replace")


async def _entries(
    log: SessionLog, session_id: str, conversation: ConversationFold
) -> AsyncGenerator[ExportedEntry, None]:
    """The entries of all events, including inherited ones."""
    after = 0
    while page := await log.read(session_id, after=after, limit=_PAGE):
        for event in page:
            for entry in conversation.take(event):
                yield entry
        after = page[-1].seq
    for entry in conversation.close():
        yield entry
