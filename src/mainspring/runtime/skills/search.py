"""The tool `skill_search`: finds skills that the list had no room for."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.core.model import ToolSpec
from mainspring.core.tool import Call, Outcome, Tool, Traits
from mainspring.retrieval.ranking import Ranking
from mainspring.runtime.skills.skill import Skill

_MAX_RESULTS = 10
_TRAITS = Traits(read_only=True, concurrent=True, in_doubt="retry")
_SPEC = ToolSpec(
    name="skill_search",
    description=(
        "Find skills that your list of skills has no room for. Returns the names and descriptions"
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


def skill_search(skills: Sequence[Skill]) -> Tool:
    by_name = {skill.name: skill for skill in skills}
    ranking = Ranking({skill.name: skill.description for skill in skills})

    async def run(call: Call) -> Outcome:
        names = ranking.best(str(call.input.get("query", "")), _MAX_RESULTS)
        if not names:
            return Outcome.text("No skill fits. Try other words for the work.")
        return Outcome.text("\n".join(_shown(by_name[name]) for name in names))

    return Tool(spec=_SPEC, run=run, traits=lambda _: _TRAITS)


def _shown(skill: Skill) -> str:
    return f"- {skill.name}: {' '.join(skill.description.split())}"
