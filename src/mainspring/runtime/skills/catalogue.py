"""What the model always sees of skills: a line for each, as far as the list has room. Their text
comes when one is used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from msgspec import structs

from mainspring.retrieval.ranking import Ranking
from mainspring.runtime.skills.skill import Skill

BYTES_PER_TOKEN = 3.5
"""Leans low, so that estimates lean high."""
_MAX_TOKENS = 8_000
_MIN_TOKENS = 1_000
_SHARE_OF_WINDOW = 100
_SEARCH = "{count} more skills are not listed: find them by what they are for with `skill_search`."


def render_catalogue(skills: Iterable[Skill]) -> str:
    """The listed skills by name: the same bytes for the same skills."""
    usable = sorted(filter(is_in_catalogue, skills), key=lambda skill: skill.name)
    lines = [_line(skill) for skill in usable if skill.is_listed]
    if len(lines) < len(usable):
        lines.append(_SEARCH.format(count=len(usable) - len(lines)))
    return "\n".join(lines)


def is_in_catalogue(skill: Skill) -> bool:
    """The model may use it by itself. A skill for certain files is offered with those files."""
    return skill.for_model and not skill.paths


def tokens_of(skill: Skill) -> int:
    """About: what its line in the list costs."""
    return round(len(_line(skill).encode()) / BYTES_PER_TOKEN) if is_in_catalogue(skill) else 0


def max_list_tokens(window: int) -> int:
    """How much of a model's context window the list may take."""
    return max(_MIN_TOKENS, min(_MAX_TOKENS, window // _SHARE_OF_WINDOW))


def is_over(skills: Iterable[Skill], *, window: int) -> bool:
    return sum(map(tokens_of, skills)) > max_list_tokens(window)


def with_room(
    skills: Sequence[Skill],
    *,
    window: int,
    uses: Mapping[str, int] | None = None,
    query: str = "",
) -> tuple[Skill, ...]:
    """The same skills, of which only as many are listed as there is room for: the most used first,
    then those that fit the query best."""
    if not is_over(skills, window=window):
        return tuple(skills)
    usable = {skill.name: skill.description for skill in skills if is_in_catalogue(skill)}
    counts, fit = uses or {}, Ranking(usable).scores(query)

    def rank(skill: Skill) -> tuple[float, float, str]:
        return -counts.get(skill.name, 0), -fit.get(skill.name, 0.0), skill.name

    listed: set[str] = set()
    room = max_list_tokens(window)
    for skill in sorted(filter(is_in_catalogue, skills), key=rank):
        room -= tokens_of(skill)
        if room < 0:
            break
        listed.add(skill.name)
    return tuple(structs.replace(skill, is_listed=skill.name in listed) for skill in skills)


def _line(skill: Skill) -> str:
    name, description = (" ".join(text.split()) for text in (skill.name, skill.description))
    return f'<skill name="{escape(name)}">{escape(description, quote=False)}</skill>'
