"""Filled-in payloads of what is learned from sessions: utility and dreams."""

from mainspring.core import events

LEARNING_SAMPLES: tuple[events.KnownPayload, ...] = (
    events.UtilityCredited(
        subject=events.UtilitySubject(type="memory", id="agent/a.md", version="9f86"),
        reward=1.0,
        source="outcome",
        outcome_id="outc_1",
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
