"""Failures and corrections, recorded at once in `.learnings/` of the agent's folder. One that three
sessions have seen becomes a memory.

Anybody may write these files. So a line counts only if its session's log contains its event.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from anyio import to_thread

from mainspring.core.errors import InvalidInput, SessionNotFound
from mainspring.files.beneath import open_folder, read_file, write_file
from mainspring.log.session_log import SessionLog
from mainspring.runtime.memory.learning.extraction import (
    MemoryCandidate,
    MemoryEvidence,
    extract_candidates,
)

ERRORS, LEARNINGS = ".learnings/ERRORS.md", ".learnings/LEARNINGS.md"
SIGHTINGS = 3  # sessions with one failure, before it is proposed as a rule
_MAX_BYTES = 1_000_000  # of one of its files
_LINE = re.compile(r"^- \d{4}-\d{2}-\d{2} (?P<session>sesn_\w+) (?P<event>sevt_\w+): (?P<text>.+)$")


def record_learnings(folder: Path, candidates: Iterable[MemoryCandidate]) -> None:
    """Record new failures in one file and new corrections in the other. Blocks."""
    for file, learnings in (
        (ERRORS, [item for item in candidates if item.type == "procedure"]),
        (LEARNINGS, [item for item in candidates if item.is_correction]),
    ):
        if learnings:
            _add(folder, file, learnings)


async def promote(
    log: SessionLog, folder: Path, observed: Sequence[MemoryCandidate]
) -> list[MemoryCandidate]:
    """Return the candidates that enough sessions have seen, with the evidence of each session."""
    candidates: list[MemoryCandidate] = []
    for candidate in observed:
        lines = await to_thread.run_sync(_sightings, folder, candidate.text)
        evidence_by_session: dict[str, MemoryEvidence] = {}
        for session_id, event_id in lines:
            if session_id not in evidence_by_session and await _is_in_log(
                log, session_id, event_id, candidate.text
            ):
                evidence_by_session[session_id] = MemoryEvidence(
                    session_id=session_id, event_id=event_id
                )
        if len(evidence_by_session) >= SIGHTINGS:
            candidates.append(replace(candidate, evidence=tuple(evidence_by_session.values())))
    return candidates


async def _is_in_log(log: SessionLog, session_id: str, event_id: str, text: str) -> bool:
    """Whether the session's own log yields the same candidate from that event."""
    with suppress(SessionNotFound, InvalidInput):
        for item in extract_candidates(await log.read(session_id)):
            if item.text == text and any(piece.event_id == event_id for piece in item.evidence):
                return True
    return False


def _add(folder: Path, file: str, candidates: Sequence[MemoryCandidate]) -> None:
    with open_folder(folder) as root:
        content = read_file(root, file, max_bytes=_MAX_BYTES) or b""
        text = content.decode("utf-8", "replace")
        lines = [
            f"- {item.time:%Y-%m-%d} {item.evidence[0].session_id} {item.evidence[0].event_id}:"
            f" {' '.join(item.text.split())}\n"
            for item in candidates
            if item.evidence and f" {item.evidence[0].event_id}: " not in text
        ]
        if lines and len(content) < _MAX_BYTES:
            separator = "" if not text or text.endswith("\n") else "\n"
            write_file(root, file, f"{text}{separator}{''.join(lines)}".encode())


def _sightings(folder: Path, text: str) -> list[tuple[str, str]]:
    with open_folder(folder) as root:
        content = read_file(root, ERRORS, max_bytes=_MAX_BYTES) or b""
    matches = map(_LINE.match, content.decode("utf-8", "replace").splitlines())
    plain_text = " ".join(text.split())
    return [
        (match["session"], match["event"])
        for match in matches
        if match is not None and match["text"] == plain_text
    ]
