"""What the model always sees of skills: a line for each. Their text comes when one is used."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from mainspring.runtime.skills.skill import Skill


def render_catalogue(skills: Iterable[Skill]) -> str:
    """Those that it may use by itself, by name: the same bytes for the same skills. One that is
    about certain files is brought up with them, and not before."""
    usable = [skill for skill in skills if skill.for_model and not skill.paths]
    return "\n".join(_line(skill) for skill in sorted(usable, key=lambda skill: skill.name))


def _line(skill: Skill) -> str:
    name, description = (" ".join(each.split()) for each in (skill.name, skill.description))
    return f'<skill name="{escape(name)}">{escape(description, quote=False)}</skill>'
