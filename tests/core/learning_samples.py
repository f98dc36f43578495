"""Filled-in payloads of what is learned from sessions: utility, dreams, and what is forgotten."""

from mainspring.core import events
from mainspring.core.sender import Sender

LEARNING_SAMPLES: tuple[events.KnownPayload, ...] = (
    events.EventsRedacted(
        redactions=(events.Redaction(seq=4, digest="ab" * 32, body_sha256="cd" * 32),),
        reason="memory purged: project_a.md",
        by=Sender(kind="person", id="cli:anna"),
        blobs=("sha256:" + "56" * 32,),
    ),
    events.UtilityCredited(
        subject=events.UtilitySubject(type="memory", id="agent/a.md", version="9f86"),
        reward=1.0,
        source="outcome",
        outcome_id="outc_1",
    ),
    events.MemoryExtracted(
        request_id="req_1",
        until_seq=7,
        changes=1,
        proposal="sha256:" + "56" * 32,
        refused=(events.RefusedOperation(operation='{"op": "retract"}', problem="nobody asked"),),
    ),
    events.MemoryLearned(
        request_id="req_1",
        versions=("memver_1",),
        refused=(events.RefusedOperation(operation="project_a.md", problem="it has changed"),),
    ),
    events.DreamCreated(
        dream_id="drm_1",
        store_id="agent",
        session_ids=("sesn_1", "sesn_2"),
        policy="review",
        model="anthropic:claude-haiku-4-5",
        instructions="only preferences",
        budget_usd="0.5",
    ),
    events.DreamProposed(
        dream_id="drm_1",
        proposal="sha256:" + "56" * 32,
        changes=3,
        score=events.DreamScore(
            suite="smoke",
            before=0.5,
            after=0.75,
            before_run_id="sesn_before",
            after_run_id="sesn_after",
        ),
    ),
    events.DreamApplied(dream_id="drm_1", versions=("memver_1",), refused=("a.md",)),
    events.DreamRolledBack(dream_id="drm_1", reason="smoke fell", versions=("memver_2",)),
)
