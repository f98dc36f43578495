"""What a folder brings as a plugin."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.agent_folder.plugin_folders import claude, manifest, names, portable, said, skill
from tests.unprivileged import unprivileged
from tests.written_files import write_file

from mainspring.core.errors import InvalidInput
from mainspring.runtime.agent_folder.agent_plugins_spec import is_plugin_name
from mainspring.runtime.agent_folder.mcp_file import read_mcp
from mainspring.runtime.agent_folder.plugin import plugin_name
from mainspring.runtime.agent_folder.plugins import FOLDER, installed_plugins, read_plugin
from mainspring.runtime.definition_files.scopes import Scopes

PLUGINS = Path(__file__).parents[2] / "fixtures" / "plugins"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty folder for a plugin, and something beside it that is none of its business."""
    (tmp_path / "outside" / "evil").mkdir(parents=True)
    skill(tmp_path / "outside" / "evil")
    (tmp_path / "outside" / "evil.md").write_text("evil")
    (tmp_path / "outside" / "evil.json").write_text('{"mcpServers": {"evil": {"command": "x"}}}')
    folder = tmp_path / "kit"
    folder.mkdir()
    return folder


def test_a_claude_code_plugin_is_read_with_all_its_parts():
    plugin = read_plugin(PLUGINS / "deploy-tools", "user")
    assert (plugin.name, plugin.version, plugin.kind) == ("deploy-tools", "2.1.0", "claude")
    assert names(plugin.skills) == ["rollback", "canary"]
    assert names(plugin.agents) == ["reviewer.md"]
    assert names(plugin.commands) == ["commands"]
    assert [s.name for s in plugin.servers] == ["deploy-tools:clusters", "deploy-tools:tracker"]
    assert [(hooks.file, hooks.count) for hooks in plugin.hooks] == [
        ("deploy-tools/hooks/hooks.json", 2),
        ("deploy-tools/.claude-plugin/plugin.json", 1),
    ]
    assert set(plugin.hooks[0].hooks) == {"PreToolUse", "SessionStart"}
    place = ".claude-plugin/plugin.json"
    assert said(plugin) == f"deploy-tools/{place}:20: vendorExtra is unknown and has no effect"
    assert "output-styles: not supported in this version" in said(plugin, "note")


def test_an_openhands_plugin_is_read():
    plugin = read_plugin(PLUGINS / "steward", "user")
    assert (plugin.name, plugin.kind) == ("steward", "openhands")
    assert (names(plugin.skills), names(plugin.commands)) == (["triage"], ["commands"])


def test_a_folder_needs_no_manifest_and_may_be_a_single_skill(root: Path):
    skill(root)
    plugin = read_plugin(root, "user")
    assert (plugin.name, plugin.skills, said(plugin)) == ("kit", (root,), "")


def test_a_portable_plugin_with_a_claude_manifest_has_the_parts_of_both(root: Path):
    skill(root / "skills" / "one")
    write_file(root / "commands" / "go.md", "Go.")
    manifest(root, ".claude-plugin/plugin.json", name="other", skills="./nowhere")
    plugin = portable(root)
    assert (plugin.name, plugin.kind) == ("kit", "agent-plugins")
    assert (names(plugin.skills), names(plugin.commands)) == (["one"], ["commands"])


def test_a_root_plugin_json_without_agent_plugins_schema_is_read_as_a_manifest(root: Path):
    manifest(root, "plugin.json", name="kit", version="3", skills=["./mine"])
    skill(root / "mine" / "one")
    plugin = read_plugin(root, "user")
    assert (plugin.version, names(plugin.skills)) == ("3", ["one"])


@pytest.mark.parametrize("key", ["skills", "agents", "commands", "hooks", "mcpServers"])
@pytest.mark.parametrize(
    "path",
    [
        "../outside/evil",
        "./../outside/evil.md",
        "./a/../../outside/evil.json",
        "/etc/passwd",
        "~/.ssh",
        "C:\\Windows",
        "C:/Windows",
        "..\\outside\\evil.md",
        "./link",
        "./link/evil",
        "./link/evil.json",
        "./nul\0byte",
        "./" + "x/" * 600,
        "https://x.test/bundle.mcpb",
        "./not-there",
        "",
        7,
        [["./nested"]],
    ],
)
def test_no_path_of_a_manifest_leads_out_of_the_plugin(root: Path, key: str, path: object):
    (root / "link").symlink_to(root.parent / "outside")
    sound = skill(root / "skills" / "sound")
    plugin = claude(root, **{key: path})
    assert plugin.skills == (sound,)
    assert (plugin.agents, plugin.commands, plugin.hooks, plugin.servers) == ((), (), (), ())
    assert f"{key}: " in said(plugin, "error")


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("skills", "../outside"),
        ("skills/evil", "../../outside/evil"),
        ("skills/evil/SKILL.md", "../../../outside/evil/SKILL.md"),
        ("commands", "../outside"),
        ("agents", "../outside"),
        (".mcp.json", "../outside/evil.json"),
        ("hooks/hooks.json", "../../outside/evil.json"),
        (".claude-plugin/plugin.json", "../../outside/evil.json"),
        ("skills", "skills"),
    ],
)
def test_no_link_leads_out_of_the_plugin(root: Path, link: str, target: str):
    (root / link).parent.mkdir(parents=True, exist_ok=True)
    (root / link).symlink_to(target)
    plugin = read_plugin(root, "user")
    assert plugin.is_empty
    assert f"kit/{link}" in said(plugin, "error")


def test_a_link_inside_the_plugin_is_followed(root: Path):
    skill(root / "shared" / "one")
    (root / "skills").symlink_to("shared")
    assert names(read_plugin(root, "user").skills) == ["one"]


BROKEN = {
    ".claude-plugin/plugin.json": "{",
    ".mcp.json": "[]",
    "hooks/hooks.json": '{"hooks": []}',
    "mcp.json": '{"mcpServers": {"a": {}}}',
}


@pytest.mark.parametrize("file", BROKEN)
def test_one_broken_part_never_blocks_the_rest(tmp_path: Path, file: str):
    root = tmp_path / "deploy-tools"
    shutil.copytree(PLUGINS / "deploy-tools", root)
    (root / file).write_text(BROKEN[file])
    plugin = read_plugin(root, "user")
    assert f"deploy-tools/{file}" in said(plugin, "error")
    assert "rollback" in names(plugin.skills)
    assert names(plugin.commands) == ["commands"]


@pytest.mark.parametrize("file", [".claude-plugin/plugin.json", "hooks/hooks.json", ".mcp.json"])
def test_a_huge_file_is_not_read(root: Path, file: str):
    (root / file).parent.mkdir(exist_ok=True)
    with (root / file).open("wb") as opened:
        opened.truncate(2_000_000_000)
    skill(root / "skills" / "one")
    plugin = read_plugin(root, "user")
    assert "longer than" in said(plugin, "error")
    assert names(plugin.skills) == ["one"]


def test_a_fifo_is_not_opened(root: Path):
    os.mkfifo(root / "plugin.json")
    plugin = read_plugin(root, "user")
    assert plugin.is_rejected
    assert "not a file" in said(plugin)


def test_commands_and_agents_named_by_the_manifest_replace_the_default_ones(root: Path):
    for name in ("commands/usual.md", "agents/usual.md", "more/extra.md"):
        write_file(root / name, "Text.")
    plugin = claude(
        root,
        commands={"deploy": {"source": "./more/extra.md"}, "inline": {"content": "Text."}},
        agents="more/extra.md",
    )
    assert (names(plugin.commands), names(plugin.agents)) == (["extra.md"], ["extra.md"])
    assert "agents: 'more/extra.md' should start with ./" in said(plugin, "warning")
    assert "commands: 'None' is not a path" in said(plugin, "error")


def test_a_plugin_described_only_by_a_marketplace_has_only_the_named_skills(root: Path):
    skill(root / "skills" / "named")
    skill(root / "skills" / "other")
    assert names(claude(root, strict=False, skills=["./skills/named"]).skills) == ["named"]


@pytest.mark.parametrize(
    ("given_name", "called"),
    [
        ("Deploy Tools", "deploy-tools"),
        ("a/../../b", "a-b"),
        ("é:@", "plugin"),
        ("", "kit"),
        (7, "kit"),
    ],
)
def test_an_invalid_plugin_name_is_corrected_with_a_warning(
    root: Path, given_name: object, called: str
):
    manifest(root, ".claude-plugin/plugin.json", name=given_name)
    plugin = read_plugin(root, "user")
    assert plugin.name == called
    assert "name must be" in said(plugin, "warning")


@given(st.text())
def test_any_text_can_be_turned_into_a_valid_plugin_name(text: str):
    name = plugin_name(text)
    assert is_plugin_name(name)
    assert plugin_name(name) == name


def test_plugins_are_found_in_all_scopes_and_those_of_the_user_come_first(tmp_path: Path):
    home, folder = tmp_path / "home", tmp_path / "project"
    shutil.copytree(PLUGINS / "deploy-tools", home / FOLDER / "deploy-tools")
    shutil.copytree(PLUGINS / "reports", folder / FOLDER / "reports")
    shutil.copytree(PLUGINS / "steward", folder / FOLDER / "deploy-tools")
    manifest(folder / FOLDER / "deploy-tools", ".plugin/plugin.json", name="deploy-tools")
    (folder / FOLDER / "linked").symlink_to(PLUGINS / "steward")
    (folder / FOLDER / ".new-half").mkdir()
    found = installed_plugins(folder, home)
    assert [(plugin.name, plugin.scope) for plugin in found.plugins] == [
        ("deploy-tools", "user"),
        ("acme.reports", "project"),
    ]
    scopes = Scopes(folder=folder, home=home, plugins=found.places)
    places = [place for place in scopes.places("skills") if place.plugin]
    assert [(place.plugin, place.path.name) for place in places] == [
        ("deploy-tools", "rollback"),
        ("deploy-tools", "canary"),
        ("acme.reports", "outline"),
        ("acme.reports", "summarize"),
    ]
    assert [place.path.name for place in scopes.places("agents") if place.plugin] == ["reviewer.md"]
    servers = read_mcp(scopes, {}, plugins=found.servers).servers
    assert [server.name for server in servers] == [
        "deploy-tools:clusters",
        "deploy-tools:tracker",
        "acme.reports:validator",
        "acme.reports:archive",
    ]
    told = "\n".join(map(str, found.findings))
    assert "deploy-tools in ~/.mainspring/plugins/deploy-tools is used instead" in told
    assert ".mainspring/plugins/linked: a link that leads out of the project" in told


def test_without_a_home_or_plugins_nothing_is_found(tmp_path: Path):
    found = installed_plugins(tmp_path, None)
    assert (found.plugins, found.findings, found.places) == ((), (), ())


def test_an_unreadable_plugin_folder_is_an_error(tmp_path: Path):
    (tmp_path / FOLDER).mkdir(parents=True)
    (tmp_path / FOLDER).parent.chmod(0)
    with unprivileged(), pytest.raises(InvalidInput, match="cannot be read: Permission denied"):
        installed_plugins(tmp_path, None)
