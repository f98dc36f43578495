"""The list of skills in the prompt: capped, chosen once for a session, the rest found by search."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.skills.skill_sessions import results, site

from mainspring.core.model import Request
from mainspring.runtime.agent import Agent
from mainspring.runtime.skills.catalogue import (
    BYTES_PER_TOKEN,
    fit_to_window,
    max_list_tokens,
    render_catalogue,
)
from mainspring.runtime.skills.skill import Skill
from mainspring.testing import Scripted, calls, says

TASKS = ("invoices", "charts", "releases", "translations", "backups")


def skill(number: int, task: str = "things") -> Skill:
    said = f"Works on {task}, the kind that has number {number}. " + "Use it with care. " * 10
    name = f"skill-{number:03}"
    return Skill(name=name, description=said, file=f"/{name}", folder="/", hash=str(number))


MANY = [skill(number, TASKS[number % len(TASKS)]) for number in range(300)]


@given(
    skills=st.lists(st.integers(0, 299), unique=True).map(lambda at: [MANY[item] for item in at]),
    window=st.integers(8_000, 2_000_000),
)
def test_the_list_never_exceeds_its_share_of_the_window(skills: list[Skill], window: int):
    listed = fit_to_window(skills, window=window)
    notice = 100
    assert len(render_catalogue(listed)) <= max_list_tokens(window) * BYTES_PER_TOKEN + notice
    assert [item.name for item in listed] == [item.name for item in skills]
    assert render_catalogue(listed) == render_catalogue(fit_to_window(skills[::-1], window=window))


def test_the_cap_is_a_share_of_the_window_within_bounds():
    assert [max_list_tokens(w) for w in (32_000, 200_000, 2_000_000)] == [1_000, 2_000, 8_000]


def test_the_most_used_skills_are_listed_first_and_then_relevant_ones():
    listed = fit_to_window(MANY, window=32_000, uses={"skill-299": 3}, query="make charts")
    names = [item.name for item in listed if item.is_listed]
    assert "skill-299" in names
    assert {item.description.split(",")[0] for item in listed if item.is_listed} == {
        "Works on charts",
        "Works on backups",  # skill-299
    }
    assert 10 < len(names) < 60


async def test_the_list_is_fixed_for_a_session_and_other_skills_are_found_by_search(tmp_path: Path):
    asked: list[Request] = []

    def look(request: Request):
        asked.append(request)
        is_first = len(asked) == 1
        return calls("skill_search", query="translations number 298") if is_first else says("done")

    who = Agent(name="lead", skills=MANY, version="1")
    async with site(tmp_path, Scripted(otherwise=look)) as played:
        session = await played.played(who, "please make charts")
        await session.send("now the backups")
        resumed = await played.runtime.resume(who, session.id)
        await resumed.run()
        events = await session.log.read(session.id)
    systems = {request.system for request in asked}
    assert len(systems) == 1
    [system] = systems
    listed = "\n".join(system)
    assert listed.count("<skill name=") < 60
    assert 'name="skill-001"' in listed  # charts: what the first message is about
    assert "more skills are not listed" in listed
    assert "skill-298" not in listed
    assert results(events)[0].startswith("- skill-298: Works on translations")
    assert "skill_search" in [tool.name for tool in asked[0].tools]
