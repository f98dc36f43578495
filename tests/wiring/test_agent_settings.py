"""What an agent's folder says about permissions, sandbox and hooks counts like a settings file."""

import os
from pathlib import Path

import pytest

from mainspring.core.errors import InvalidInput
from mainspring.runtime.settings.policy_loader import LoadedPolicy
from mainspring.wiring.settings_files import load_policy, trust

MANIFEST = """\
name: a
permissions: {mode: acceptEdits, allow: [Bash], ask: [Edit], deny: ["Read(/.env)"]}
environment: {networking: {type: limited, allowed_hosts: [example.com]}}
"""
HOOKS = '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "x"}]}]}}'
SANDBOX = {"networking": {"type": "limited", "allowed_hosts": ["example.com"]}}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = Path(os.path.realpath(tmp_path)) / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def agent(home: Path) -> Path:
    folder = home / "agent"
    folder.mkdir()
    (folder / "agent.yaml").write_text(MANIFEST)
    (folder / "hooks.json").write_text(HOOKS)
    return folder


def load(home: Path, folder: Path, agent: Path | None = None) -> LoadedPolicy:
    return load_policy(folder, home=home, managed=home / "none.json", agent=agent)


def rules(loaded: LoadedPolicy) -> list[str]:
    return [f"{rule.behavior} {rule.text}" for rule in loaded.policy.rules]


def test_an_untrusted_agent_can_only_forbid(home: Path, agent: Path):
    loaded = load(home, agent)
    assert rules(loaded) == ["deny Read(/.env)", "ask Edit"]
    assert (loaded.policy.mode, loaded.sandbox, loaded.hooks) == (None, {}, ())
    assert len(loaded.warnings) == 2


def test_a_trusted_one_is_believed_until_it_says_something_else(home: Path, agent: Path):
    trust(agent, home=home)
    loaded = load(home, agent)
    assert rules(loaded) == ["deny Read(/.env)", "ask Edit", "allow Bash"]
    assert (loaded.policy.mode, loaded.sandbox) == ("acceptEdits", SANDBOX)
    assert [hook.source for hook in loaded.hooks] == [str(agent / "hooks.json")]
    (agent / "agent.yaml").write_text(MANIFEST.replace("name: a", "name: b\nrules: [Be kind.]"))
    assert load(home, agent).is_trusted
    (agent / "agent.yaml").write_text(MANIFEST.replace("allow: [Bash]", "allow: [Bash, Write]"))
    assert not load(home, agent).is_trusted


def test_nothing_but_the_strictest_mode_is_taken_from_who_is_not_trusted(home: Path, agent: Path):
    (agent / "agent.yaml").write_text("permissions: {mode: plan}")
    assert load(home, agent).policy.mode == "plan"


def test_an_agent_brings_its_settings_to_wherever_it_works(home: Path, agent: Path):
    workspace = home / "work"
    workspace.mkdir()
    assert rules(load(home, workspace, agent)) == ["deny Read(/.env)", "ask Edit"]
    trust(agent, home=home)
    loaded = load(home, workspace, agent)
    assert (loaded.policy.mode, loaded.sandbox) == ("acceptEdits", SANDBOX)
    assert {rule.folder for rule in loaded.policy.rules} == {workspace.as_posix()}
    assert rules(load(home, agent, agent)) == rules(load(home, agent))


def test_a_manifest_without_settings_needs_no_trust(home: Path, agent: Path):
    (agent / "agent.yaml").write_text("name: a\ntools: 3\n")
    (agent / "hooks.json").write_text("[1, 2, 3]")
    loaded = load(home, agent)
    assert (loaded.is_trusted, loaded.warnings, rules(loaded)) == (True, (), [])


def test_a_prohibition_that_cannot_be_understood_stops_everything(home: Path, agent: Path):
    (agent / "agent.yaml").write_text("permissions:\n  deny: ['Read(']\n")
    with pytest.raises(InvalidInput, match=r"agent\.yaml:2: deny has an invalid rule"):
        load(home, agent)
