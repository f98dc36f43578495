"""The rules that skills bring with them, as long as they are used."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from mainspring.core.facts import SkillUsed
from mainspring.harness.permissions.policy import HeldRule, Policy


def with_skills(policy: Policy, used: Sequence[SkillUsed]) -> Policy:
    """What anybody else denies, or wants to be asked about, still goes before what they allow."""
    if not used:
        return policy
    return replace(policy, rules=(*policy.rules, *(rule for each in used for rule in _rules(each))))


def _rules(used: SkillUsed) -> list[HeldRule]:
    source = f"skill {used.name}"
    return [
        *(HeldRule(text=text, behavior="allow", source=source) for text in used.allowed_tools),
        *(HeldRule(text=text, behavior="deny", source=source) for text in used.disallowed_tools),
    ]
