"""Marketplaces that somebody else wrote. An attack wins if a plugin comes from this machine, from
anywhere but https, from outside the marketplace's folder, or takes the name or place of another."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.row_checks import for_each

from mainspring.core.errors import InvalidInput, MainspringError
from mainspring.runtime.agent_folder.plugin_installation import FILE, fetch, find_offer
from mainspring.runtime.packages.installer import staging_folder

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


def marketplace(root: Path, entry: object, **more: object) -> Path:
    (root / FILE).parent.mkdir(parents=True, exist_ok=True)
    (root / FILE).write_text(json.dumps({"name": "m", "plugins": [entry], **more}))
    return root


REMOTE: dict[str, object] = {
    "a file": {"source": "url", "url": "file:///etc"},
    "a path": {"source": "url", "url": "/etc"},
    "http": {"source": "url", "url": "http://evil.example/x.git"},
    "git": {"source": "git", "url": "git://evil.example/x.git"},
    "ssh": {"source": "git", "url": "ssh://evil.example/x.git"},
    "ssh in short": {"source": "git", "url": "git@evil.example:x"},
    "a helper of git": {"source": "git", "url": "ext::sh -c touch% /tmp/pwned"},
    "an option": {"source": "git", "url": "--upload-pack=touch /tmp/pwned"},
    "an option as repository": {"source": "github", "repo": "--upload-pack=x/y"},
    "a kind of its own": {"source": "exec", "url": "https://evil.example"},
    "no address": {"source": "url"},
    "an address that is a list": {"source": "url", "url": ["https://evil.example"]},
    "capitals": {"source": "url", "url": "FILE:///etc"},
    "a line break": {"source": "url", "url": "file:///etc\nhttps://evil.example"},
    "npm": {"source": "npm", "package": "evil"},
}


@for_each("name", REMOTE)
def test_a_source_elsewhere_is_https_or_nothing(name: str, tmp_path: Path) -> None:
    root = marketplace(tmp_path / name, {"name": "x", "source": REMOTE[name]})
    with pytest.raises(InvalidInput):
        find_offer(root, "x")


LOCAL: dict[str, object] = {
    "above": "../secret",
    "above, later": "./a/../../secret",
    "absolute": "/etc",
    "a home": "~/secret",
    "a link out": "./link",
    "a link above": "./deep/link",
    "nothing": "",
    "a number": 5,
    "NUL": "./a\0b",
    "a file": "./file",
    "backslashes": "..\\secret",
    "a local source above": {"source": "local", "path": "../secret"},
    "a local source that is absolute": {"source": "local", "path": "/etc"},
    "a local source that is a link": {"source": "local", "path": "link"},
}


@for_each("name", LOCAL)
def test_a_source_in_the_marketplace_stays_in_it(name: str, tmp_path: Path) -> None:
    secret = tmp_path / name / "secret"
    (secret / ".claude-plugin").mkdir(parents=True)
    (secret / ".claude-plugin" / "plugin.json").write_text('{"name": "stolen"}')
    root = marketplace(tmp_path / name / "m", {"name": "x", "source": LOCAL[name]})
    (root / "link").symlink_to(secret)
    (root / "deep").mkdir()
    (root / "deep" / "link").symlink_to("../../secret")
    (root / "file").write_text("x")
    with staging_folder(tmp_path / name / "home", now=NOON) as staging:
        with pytest.raises((MainspringError, ValueError)) as refused:
            fetch(str(root), Path(staging), name="x")
        assert isinstance(refused.value, MainspringError), repr(refused.value)
        fetched = [path for path in Path(staging).rglob("plugin.json") if "secret" in str(path)]
        assert fetched == []


ROOTED = '{"metadata": {"pluginRoot": ROOT}, "plugins": [{"name": "x", "source": "etc"}]}'
CATALOGS: dict[str, str] = {
    "nested deeply": '{"plugins": ' + "[" * 50_000 + "]" * 50_000 + "}",
    "a list": "[]",
    "no JSON": "plugins:\n  - x",
    "a plugin root above": ROOTED.replace("ROOT", '"../.."'),
    "a plugin root that is absolute": ROOTED.replace("ROOT", '"/"'),
    "a plugin root that is a list": ROOTED.replace("ROOT", '["/"]'),
    "plugins that are no list": '{"plugins": {"x": {"source": "./x"}}}',
    "a name that is a path": '{"plugins": [{"name": "../../x", "source": "./x"}]}',
    "a name with control sequences": '{"plugins": [{"name": "\\u001b[2J", "source": "./x"}]}',
    "no plugins": '{"plugins": []}',
}


@for_each("name", CATALOGS)
def test_a_broken_catalogue_is_refused(name: str, tmp_path: Path) -> None:
    root = tmp_path / name
    (root / FILE).parent.mkdir(parents=True)
    (root / FILE).write_text(CATALOGS[name])
    with staging_folder(tmp_path / "home", now=NOON) as staging:
        with pytest.raises(MainspringError) as refused:
            fetch(str(root), Path(staging), name="x")
        assert len(str(refused.value)) < 5_000


def test_a_manifest_of_the_catalogue_is_not_written_through_a_link(tmp_path: Path) -> None:
    root = marketplace(tmp_path / "m", {"name": "x", "source": "./x", "description": "d"})
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / "x").mkdir()
    os.symlink(outside, root / "x" / ".claude-plugin")
    with staging_folder(tmp_path / "home", now=NOON) as staging, pytest.raises(MainspringError):
        fetch(str(root), Path(staging), name="x")
    assert list(outside.iterdir()) == []
