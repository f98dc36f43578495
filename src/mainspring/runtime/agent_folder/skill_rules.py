"""The permission rules that come with an agent's skills."""

from __future__ import annotations

from mainspring.harness.permissions.policy import PolicyRule
from mainspring.runtime.agent import Agent, skill_folders


def reading_rules(agent: Agent) -> tuple[PolicyRule, ...]:
    """Rules that allow reading the files of skills without approval."""
    return tuple(
        PolicyRule(text=f"Read(/{folder.as_posix()}/**)", behavior="allow", source="skills")
        for folder in skill_folders(agent)
    )
