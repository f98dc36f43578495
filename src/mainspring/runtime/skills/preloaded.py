"""Skills whose whole text a subagent begins with, because its file says so."""

from __future__ import annotations

from collections.abc import Iterable

from mainspring.core.errors import InvalidInput
from mainspring.core.facts import SkillUsed
from mainspring.runtime.crew.subagent import Subagent
from mainspring.runtime.skills.body import read_body, shown
from mainspring.runtime.skills.skill import Skill

MAX_CHARS = 100_000
"""Of all of them together: about 25,000 tokens."""


def preload(kind: Subagent, skills: Iterable[Skill]) -> str:
    """In the order it names them; what has changed since the session began, or does not fit any
    more, is named and nothing else. Blocking."""
    texts: list[str] = []
    room = MAX_CHARS
    for skill in wanted_by(kind, skills):
        try:
            text = shown(skill, read_body(skill).strip())
        except InvalidInput as error:
            text = f"[{error}]"
        if len(text) > room:
            text = f"[There is no room for the skill {skill.name}: use it when you need it.]"
        room -= len(text)
        texts.append(text)
    return "\n\n".join(texts)


def wanted_by(kind: Subagent, skills: Iterable[Skill]) -> list[Skill]:
    """Those that only a user may call are not a model's to begin with either."""
    known = {skill.name: skill for skill in skills if skill.for_model}
    return [known[name] for name in dict.fromkeys(kind.skills) if name in known]


def preloading(kind: Subagent, skills: Iterable[Skill]) -> list[SkillUsed]:
    """What the log has to know of it. It gives no leave."""
    return [
        SkillUsed(name=skill.name, hash=skill.hash, by="agent") for skill in wanted_by(kind, skills)
    ]
