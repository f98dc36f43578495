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


def test_an_untrusted_agent_can_only_deny_and_ask(home: Path, agent: Path):
    loaded = load(home, agent)
    assert rules(loaded) == ["deny Read(/.env)", "ask Edit"]
    assert (loaded.policy.mode, loaded.sandbox, loaded.hooks) == (None, {}, ())
    assert len(loaded.warnings) == 2


def test_a_trusted_agents_settings_apply_until_they_change(home: Path, agent: Path):
    trust(agent, home=home)
    loaded = load(home, agent)
    assert rules(loaded) == ["deny Read(/.env)", "ask Edit", "allow Bash"]
    assert (loaded.policy.mode, loaded.sandbox) == ("acceptEdits", SANDBOX)
    assert [hook.source for hook in loaded.hooks] == [str(agent / "hooks.json")]
    (agent / "agent.yaml").write_text(MANIFEST.replace("name: a", "name: b\nrules: [Be kind.]"))
    assert load(home, agent).is_trusted
    (agent / "agent.yaml").write_text(MANIFEST.replace("allow: [Bash]", "allow: [Bash, Write]"))
    assert not load(home, agent).is_trusted


def test_plan_mode_is_accepted_from_an_untrusted_agent(home: Path, agent: Path):
    (agent / "agent.yaml").write_text("permissions: {mode: plan}")
    assert load(home, agent).policy.mode == "plan"


def test_an_agents_settings_apply_in_any_workspace(home: Path, agent: Path):
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


def test_an_invalid_deny_rule_is_an_error(home: Path, agent: Path):
    (agent / "agent.yaml").write_text("permissions:\n  deny: ['Read(']\n")
    with pytest.raises(InvalidInput, match=r"agent\.yaml:2: deny has an invalid rule"):
        load(home, agent)
