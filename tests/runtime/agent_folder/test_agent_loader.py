"""A folder, read into one agent."""

import shutil
from pathlib import Path

import msgspec
import pytest
from tests.written_files import write_file

from mainspring.core.errors import InvalidInput
from mainspring.runtime.agent_folder.agent_loader import read_agent
from mainspring.runtime.definition_files.scopes import Scopes
from mainspring.runtime.session.pinned_agent import AgentDefinition, agent_of, definition_of

CLAUDE_PROJECT = Path(__file__).parents[2] / "fixtures/claude_project"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return Path(shutil.copytree(CLAUDE_PROJECT, tmp_path / "shop-project"))


def test_a_claude_code_project_is_read_as_an_agent(project: Path):
    found = read_agent(Scopes(folder=project))
    agent = found.agent
    assert (agent.name, agent.model, agent.built_ins) == ("shop-project", "", ("*",))
    for words in ("prices are in cents", "Small functions", "failing check first", "in `.env`"):
        assert words in agent.instructions
    assert "team meets on Mondays" not in agent.instructions
    assert {"reviewer", "test-runner", "explore", "verify"} <= {s.name for s in agent.subagents}
    kinds = {skill.name: skill.kind for skill in agent.skills}
    assert kinds == {"release-notes": "skill", "fix-issue": "command", "db:migrate": "command"}
    assert not any(skill.is_trusted for skill in agent.skills)
    assert found.is_described
    assert [r.source for r in found.instructions.instructions.scoped] == [".claude/rules/prices.md"]


def test_wider_scopes_add_their_parts_and_the_manifest_overrides(tmp_path: Path):
    home, folder = tmp_path / "home", tmp_path / "agent"
    write_file(home / ".claude/CLAUDE.md", "I am left-handed.")
    write_file(
        home / ".claude/skills/mine/SKILL.md", "---\nname: mine\ndescription: of the user\n---\nx"
    )
    write_file(folder / "AGENTS.md", "Be brief.")
    write_file(
        folder / "skills/mine/SKILL.md", "---\nname: mine\ndescription: of the project\n---\nx"
    )
    write_file(folder / "agents/plan.md", "---\nname: plan\ndescription: our own\n---\nPlan well.")
    write_file(folder / "agent.yaml", "name: a\ninstructions: Be kind.\nagents: [plan, ghost]\n")
    found = read_agent(Scopes(folder=folder, home=home))
    text = found.agent.instructions
    assert text.index("left-handed") < text.index("Be brief.") < text.index("Be kind.")
    [skill] = found.agent.skills
    assert skill.description.startswith("of the user")
    [plan] = found.agent.subagents
    assert plan.prompt == "Plan well."
    [warning] = found.warnings
    assert warning.startswith("agent.yaml:3: there is no subagent ghost (there are explore,")


def test_an_empty_folder_is_an_agent_with_the_name_of_the_folder(tmp_path: Path):
    found = read_agent(Scopes(folder=tmp_path))
    assert (found.agent.name, found.is_described) == (tmp_path.name, False)
    assert {s.name for s in found.agent.subagents} == {"explore", "general", "plan", "verify"}


def test_an_invalid_manifest_does_not_run_but_can_be_inspected(tmp_path: Path):
    write_file(tmp_path / "agent.yaml", "name: a\nlimits:\n  max_cost_usd: much\n")
    with pytest.raises(InvalidInput, match=r"^agent\.yaml:3: max_cost_usd must be an amount"):
        read_agent(Scopes(folder=tmp_path))
    assert read_agent(Scopes(folder=tmp_path), allows_errors=True).agent.name == "a"
    with pytest.raises(InvalidInput, match="there is no such folder"):
        read_agent(Scopes(folder=tmp_path / "nowhere"))


def test_many_problems_in_skills_are_reported_as_one_count(tmp_path: Path):
    for name in ("a", "b"):
        text = f"---\nname: {name}\ndescription: d\norigin: x\n---\n"
        write_file(tmp_path / f"skills/{name}/SKILL.md", text)
    [warning] = read_agent(Scopes(folder=tmp_path)).warnings
    assert warning.startswith("2 problems in skills or subagents")


def test_a_pinned_skill_is_trusted(project: Path):
    found = read_agent(Scopes(folder=project), is_pinned=lambda at: at.name == "release-notes")
    assert [skill.name for skill in found.agent.skills if skill.is_trusted] == ["release-notes"]


def test_an_agent_definition_does_not_depend_on_its_files(project: Path):
    write_file(project / "agent.yaml", "limits: {max_cost_usd: 1.5}\nrules: [Never push.]\n")
    agent = read_agent(Scopes(folder=project)).agent
    kept = msgspec.json.encode(definition_of(agent))
    shutil.rmtree(project)
    assert agent_of(msgspec.json.decode(kept, type=AgentDefinition)) == agent
