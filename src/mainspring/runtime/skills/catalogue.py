"""What the model sees of skills before it uses one: the list in its prompt, the tool
`skill_search`, and skills that are offered when the model touches a file they apply to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from msgspec import structs

from mainspring.core.lazy_module import LazyModule
from mainspring.core.model import ToolSpec
from mainspring.core.tool import Call, Tool, ToolResult, Traits
from mainspring.runtime.skills.skill import Skill

if TYPE_CHECKING:
    from mainspring.retrieval import bm25
else:
    bm25 = LazyModule("mainspring.retrieval.bm25")  # few agents have skills that are not listed

BYTES_PER_TOKEN = 3.5
"""A low estimate, so that token counts err on the high side."""
_MAX_TOKENS = 8_000  # of the list of skills
_MIN_TOKENS = 1_000  # of the list of skills, with a small context
_SHARE_OF_WINDOW = 100  # the list takes one part in so many of the context
_SEARCH_NOTE = (
    "{count} more skills are not listed: find them by what they are for with `skill_search`."
)


def render_catalogue(skills: Iterable[Skill]) -> str:
    """The listed skills, sorted by name: the same skills give the same bytes."""
    usable = sorted(filter(is_in_catalogue, skills), key=lambda skill: skill.name)
    lines = [_line(skill) for skill in usable if skill.is_listed]
    if len(lines) < len(usable):
        lines.append(_SEARCH_NOTE.format(count=len(usable) - len(lines)))
    return "\n".join(lines)


def is_in_catalogue(skill: Skill) -> bool:
    """Whether the model may use it by itself. A skill with `paths` is offered when the model
    touches one of those files."""
    return skill.for_model and not skill.paths


def tokens_of(skill: Skill) -> int:
    """The approximate cost of its line in the list."""
    return round(len(_line(skill).encode()) / BYTES_PER_TOKEN) if is_in_catalogue(skill) else 0


def max_list_tokens(window: int) -> int:
    """How much of a model's context window the list may take."""
    return max(_MIN_TOKENS, min(_MAX_TOKENS, window // _SHARE_OF_WINDOW))


def exceeds_window(skills: Iterable[Skill], *, window: int) -> bool:
    return sum(map(tokens_of, skills)) > max_list_tokens(window)


def fit_to_window(
    skills: Sequence[Skill],
    *,
    window: int,
    uses: Mapping[str, int] | None = None,
    query: str = "",
) -> tuple[Skill, ...]:
    """Return the skills, of which only as many are listed as fit: the most used first, then those
    that match the query best."""
    if not exceeds_window(skills, window=window):
        return tuple(skills)
    usable = {skill.name: skill.description for skill in skills if is_in_catalogue(skill)}
    counts, fit = uses or {}, bm25.Bm25Index(usable).scores(query)

    def rank(skill: Skill) -> tuple[float, float, str]:
        return -counts.get(skill.name, 0), -fit.get(skill.name, 0.0), skill.name

    listed_names: set[str] = set()
    tokens_left = max_list_tokens(window)
    for skill in sorted(filter(is_in_catalogue, skills), key=rank):
        tokens_left -= tokens_of(skill)
        if tokens_left < 0:
            break
        listed_names.add(skill.name)
    return tuple(structs.replace(skill, is_listed=skill.name in listed_names) for skill in skills)


def _line(skill: Skill) -> str:
    name, description = (" ".join(text.split()) for text in (skill.name, skill.description))
    return f'<skill name="{escape(name)}">{escape(description, quote=False)}</skill>'


_MAX_RESULTS = 10  # of a search
_SEARCH_TRAITS = Traits(read_only=True, concurrent=True, in_doubt="retry")
_SEARCH_SPEC = ToolSpec(
    name="skill_search",
    description=(
        "Find skills that did not fit into your list of skills. Returns the names and descriptions"
        " that fit best; use one with the tool `skill`."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "Words for the work to be done."}
        },
        "required": ["query"],
        "additionalProperties": False,
    },
)


def skill_search_tool(skills: Sequence[Skill]) -> Tool:
    by_name = {skill.name: skill for skill in skills}
    ranking = bm25.Bm25Index({skill.name: skill.description for skill in skills})

    async def run(call: Call) -> ToolResult:
        names = ranking.search(str(call.input.get("query", "")), _MAX_RESULTS)
        if not names:
            return ToolResult.text("No skill fits. Try other words for the work.")
        return ToolResult.text("\n".join(_search_line(by_name[name]) for name in names))

    return Tool(spec=_SEARCH_SPEC, run=run, traits=lambda _: _SEARCH_TRAITS)


def _search_line(skill: Skill) -> str:
    return f"- {skill.name}: {' '.join(skill.description.split())}"
