"""`mainspring agents`."""

import json
import shutil
from pathlib import Path
from typing import TypeAlias

import pytest
from tests.fork_server import Run
from tests.written_files import write_file

from mainspring.config import Settings, read_settings
from mainspring.core.clock import now
from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.agent_files import agents
from mainspring.runtime.agent_folder.folder_versions import list_versions, record_version

Out: TypeAlias = pytest.CaptureFixture[str]
CLAUDE_PROJECT = Path(__file__).parents[1] / "fixtures/claude_project"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return read_settings(environ={}, folder=tmp_path)


async def test_agents_are_listed_with_versions(settings: Settings, tmp_path: Path, capsys: Out):
    await agents.ls(settings, json=False)
    assert "there is no agent here; `mainspring init` creates one" in capsys.readouterr().err
    write_file(tmp_path / "team/poet/agent.yaml", "name: bard\ndescription: Rhymes.\nmodel: opus\n")
    write_file(tmp_path / "team/plain/AGENTS.md", "Be plain.")
    write_file(tmp_path / "node_modules/x/AGENTS.md", "not ours")
    record_version(tmp_path / "team/poet", now)
    write_file(tmp_path / "team/poet/AGENTS.md", "Rhyme.")
    await agents.ls(settings, json=False)
    [_, plain, poet] = capsys.readouterr().out.splitlines()
    assert plain.split() == ["plain", "team/plain", "-", "-"]
    assert poet.split() == ["bard", "team/poet", "1,", "changed", "since", "opus", "Rhymes."]
    await agents.ls(settings, json=True)
    views = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(view["name"], view["version"], view["is_changed"]) for view in views] == [
        ("plain", None, True),
        ("bard", 1, True),
    ]


async def test_an_agent_is_shown_as_it_would_run(settings: Settings, tmp_path: Path, capsys: Out):
    shutil.copytree(CLAUDE_PROJECT, tmp_path / "shop")
    write_file(tmp_path / "shop/agent.yaml", "limits: {max_turns: 5}\nrules: [Never push.]\n")
    record_version(tmp_path / "shop", now)
    await agents.show(settings, folder="shop", json=False)
    shown = {line[:14].strip(): line[14:] for line in capsys.readouterr().out.splitlines()}
    assert shown["name"] == "shop"
    assert shown["version"].startswith("1; files ")
    assert (shown["limits"], shown["rule"]) == ("max_turns 5", "Never push.")
    assert shown["instructions"].startswith("CLAUDE.md, docs/style.md")
    assert "reviewer" in shown["subagents"]
    assert (shown["skills"], shown["commands"]) == ("release-notes", "/db:migrate, /fix-issue")
    await agents.show(settings, folder="shop", json=True)
    view = json.loads(capsys.readouterr().out)
    assert view["definition"]["limits"]["max_turns"] == 5
    assert (view["version"], view["is_changed"]) == (1, False)


async def test_versions_are_compared_and_restored(settings: Settings, tmp_path: Path, capsys: Out):
    write_file(tmp_path / "a/AGENTS.md", "One.\n")
    with pytest.raises(InvalidInput, match="there are no versions yet"):
        await agents.diff(settings, agent="a", before=None, after=None)
    record_version(tmp_path / "a", now)
    await agents.diff(settings, agent="a", before=None, after=None)
    assert "no difference between version 1 and the current files" in capsys.readouterr().err
    write_file(tmp_path / "a/AGENTS.md", "Two.\n")
    await agents.diff(settings, agent="a", before=None, after=None)
    assert "-One.\n+Two.\n" in capsys.readouterr().out
    await agents.rollback(settings, agent="a", version=1)
    told = capsys.readouterr()
    assert told.out == "back to version 1, now version 3\n"
    assert told.err == "the previous files are saved as version 2\n"
    assert (tmp_path / "a/AGENTS.md").read_text() == "One.\n"
    assert [list_version.number for list_version in list_versions(tmp_path / "a")] == [1, 2, 3]
    await agents.rollback(settings, agent="a", version=1)
    assert capsys.readouterr().out == "the files are already those of version 1\n"


def test_rollback_to_an_unknown_version_is_refused_in_one_line(mainspring: Run, place: Path):
    write_file(place / "AGENTS.md", "Be brief.")
    refused = mainspring("agents", "rollback", "4")
    assert refused.returncode == 1
    assert "there is no version 4; there are none yet" in refused.stderr
