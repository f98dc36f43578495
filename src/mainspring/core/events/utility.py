"""Credit for what a session used: memories, skills, prompt fragments and tools, after an outcome,
a test or a person's rating."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from mainspring.core.events.payload import Payload

UtilityType: TypeAlias = Literal["memory", "skill", "prompt_fragment", "tool"]


class UtilitySubject(Struct, frozen=True, kw_only=True, omit_defaults=True):
    type: UtilityType
    id: str
    """For a memory, its store and path, such as `agent/project_release.md`; else a name."""
    version: str | None = None
    """Hash of the content that was used."""


class UtilityCredited(Payload, frozen=True, kw_only=True, tag="utility.credited"):
    """Credit for one thing that the session used."""

    subject: UtilitySubject
    reward: float
    """From 0 (failed) to 1 (succeeded)."""
    source: Literal["outcome", "test", "eval", "person"]
    outcome_id: str
    """What the reward is for: an outcome, a call that ran tests, a rating. It credits
    each subject once."""


UtilityPayload: TypeAlias = UtilityCredited
