"""The first files of a new agent."""

from pathlib import Path

import pytest

from mainspring.core.errors import InvalidInput
from mainspring.runtime.agent_folder.manifest import read_manifest
from mainspring.runtime.agent_folder.new_agent import NewAgent, write_agent


def test_a_new_agent_is_written_as_planned(tmp_path: Path):
    purpose = 'Answers: "yes", #no, or – perhaps'
    plan = NewAgent(name="yes", purpose=purpose, model="ollama:x", tools=("read",), mode="plan")
    files = write_agent(tmp_path / "deep" / "agent", plan)
    assert [file.name for file in files] == ["agent.yaml", "AGENTS.md"]
    found = read_manifest(files[0])
    assert found.findings == ()
    assert (found.name, found.description, found.model) == ("yes", purpose, "ollama:x")
    assert found.tools == ("read",)
    assert found.permissions is not None
    assert found.permissions.mode == "plan"
    assert purpose in files[1].read_text(encoding="utf-8")


def test_unset_fields_are_not_written(tmp_path: Path):
    [file, _] = write_agent(tmp_path, NewAgent(name="a", purpose="b"))
    assert "model" not in file.read_text().partition("\n")[2]
    assert read_manifest(file).tools == ("*",)


@pytest.mark.parametrize("taken", ["AGENTS.md", "CLAUDE.md"])
def test_existing_instructions_are_kept(tmp_path: Path, taken: str):
    (tmp_path / taken).write_text("Mine.")
    files = write_agent(tmp_path, NewAgent(name="a", purpose="b"))
    assert [file.name for file in files] == ["agent.yaml"]
    assert (tmp_path / taken).read_text() == "Mine."


def test_an_existing_agent_is_not_overwritten(tmp_path: Path):
    (tmp_path / "agent.yaml").write_text("name: mine\n")
    with pytest.raises(InvalidInput, match="exists already: nothing was written"):
        write_agent(tmp_path, NewAgent(name="a", purpose="b"))
    assert [item.name for item in tmp_path.iterdir()] == ["agent.yaml"]
