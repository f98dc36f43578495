"""Permanently removes a text from the logs of all sessions. Events keep their positions, the hash
chain still verifies, and each log records its redactions, who asked for them and why.

A text matches wherever five of its words occur in a row, so quotations and excerpts match too. A
shorter text matches as a whole.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast

import msgspec

from mainspring.core.envelope import Event, redacted_body
from mainspring.core.errors import BlobNotFound, LeaseHeld, SessionGone, SessionNotFound
from mainspring.core.events import EventsRedacted, Redaction
from mainspring.core.sender import Sender
from mainspring.log.session_lease import hold_session
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow

REDACTED = "[redacted]"
_RUN_WORDS = 5  # in a row that must be equal; fewer would redact common phrases
_MIN_ONE_WORD = 8
"""The minimum length of a text that is a single word."""
_WORD = re.compile(r"[^\W_]+")
_PAGE = 200  # sessions read at once
_UNCHANGED_KEYS = frozenset(("type", "hash", "event_id", "tool_use_id", "session_id", "thread_id"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactionReport:
    sessions: tuple[str, ...]
    """Sessions whose logs were changed."""
    events: int
    blobs: int
    held: tuple[str, ...] = ()
    """Sessions that were running: their logs were not changed."""


class TextRemover:
    """Replaces every occurrence of certain texts in other texts."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._runs: dict[int, set[tuple[str, ...]]] = {}
        for text in texts:
            words = [word.casefold() for word in _WORD.findall(text)]
            size = min(_RUN_WORDS, len(words))
            if not size or (size == 1 and len(words[0]) < _MIN_ONE_WORD):
                continue
            runs = self._runs.setdefault(size, set())
            runs.update(tuple(words[at : at + size]) for at in range(len(words) - size + 1))
        self._first = {run[0] for runs in self._runs.values() for run in runs}

    def __call__(self, text: str) -> str:
        """The text without occurrences; the same object if there were none."""
        matches = list(_WORD.finditer(text))
        words = [match[0].casefold() for match in matches]
        marked = [False] * len(words)
        for at, word in enumerate(words):
            if word not in self._first:
                continue
            for size, runs in self._runs.items():
                if tuple(words[at : at + size]) in runs:
                    marked[at : at + size] = [True] * size
        if not any(marked):
            return text
        return _replace_marked(text, matches, marked)


def _replace_marked(text: str, matches: Sequence[re.Match[str]], marked: Sequence[bool]) -> str:
    parts: list[str] = []
    end = 0
    for at, match in enumerate(matches):
        if marked[at]:
            if not at or not marked[at - 1]:
                parts += [text[end : match.start()], REDACTED]
            end = match.end()
    parts.append(text[end:])
    return "".join(parts)


@dataclass(slots=True)
class _Progress:
    sessions: list[str] = field(default_factory=list[str])
    held: list[str] = field(default_factory=list[str])
    events: int = 0
    blobs: set[str] = field(default_factory=set[str])


async def redact_texts(
    log: SessionLog, texts: Iterable[str], *, reason: str, by: Sender
) -> RedactionReport:
    """After a crash, run it again: it continues, because removed text is no longer found."""
    remover, progress = TextRemover(texts), _Progress()
    before: SessionRow | None = None
    while page := await log.sessions(before=before, limit=_PAGE):
        before = page[-1]
        for row in page:
            try:
                await _redact_session(log, row.id, remover, progress, reason=reason, by=by)
            except (LeaseHeld, SessionGone):
                progress.held.append(row.id)
            except SessionNotFound:
                continue
    return RedactionReport(
        sessions=tuple(progress.sessions),
        events=progress.events,
        blobs=len(progress.blobs),
        held=tuple(progress.held),
    )


async def _redact_session(
    log: SessionLog,
    session_id: str,
    remover: TextRemover,
    progress: _Progress,
    *,
    reason: str,
    by: Sender,
) -> None:
    blobs = await _blobs_with(log, session_id, remover)
    removed = blobs | progress.blobs
    bodies = _redacted_bodies(await _own_events(log, session_id), remover, removed)
    if not bodies and not blobs:
        return
    async with hold_session(log, session_id) as writer:  # the log may have grown in the meantime
        bodies = _redacted_bodies(await _own_events(log, session_id), remover, removed)
        redactions = tuple(
            Redaction(
                seq=event.seq,
                digest=event.digest().hex(),
                body_sha256=hashlib.sha256(body).hexdigest(),
            )
            for event, body in bodies
        )
        event = EventsRedacted(
            redactions=redactions, reason=reason, by=by, blobs=tuple(sorted(blobs))
        )
        await writer.redact(event, {event.seq: body.decode() for event, body in bodies})
    progress.sessions.append(session_id)
    progress.events += len(bodies)
    progress.blobs |= blobs


async def _own_events(log: SessionLog, session_id: str) -> list[Event]:
    return [event for event in await log.read(session_id) if event.session_id == session_id]


async def _blobs_with(log: SessionLog, session_id: str, remover: TextRemover) -> set[str]:
    digests: set[str] = set()
    for digest in await log.store.blobs(session_id):
        try:
            text = (await log.blob(digest)).decode("utf-8", "ignore")
        except BlobNotFound:
            continue
        if remover(text) is not text:
            digests.add(digest)
    return digests


def _redacted_bodies(
    events: Iterable[Event], remover: TextRemover, blobs: set[str]
) -> list[tuple[Event, bytes]]:
    changed: list[tuple[Event, bytes]] = []
    for event in events:
        if isinstance(event.payload, EventsRedacted):
            continue
        value = msgspec.json.decode(event.body)
        value.pop("$redacted", None)
        clean = _clean(value, remover, blobs)
        if clean != value:
            body = redacted_body(msgspec.json.encode(clean), event.digest())
            changed.append((event, body))
    return changed


def _clean(value: object, remover: TextRemover, blobs: set[str]) -> object:
    match value:
        case str():
            return remover(value)
        case list():
            return [_clean(item, remover, blobs) for item in cast("list[object]", value)]
        case dict():
            fields = cast("dict[str, object]", value)
            if fields.get("hash") in blobs or _source_hash(fields) in blobs:
                return {"type": "text", "text": REDACTED}
            return {
                remover(key): item if key in _UNCHANGED_KEYS else _clean(item, remover, blobs)
                for key, item in fields.items()
            }
        case _:
            return value


def _source_hash(fields: dict[str, object]) -> object:
    source = fields.get("source")
    return cast("dict[str, object]", source).get("hash") if isinstance(source, dict) else None
