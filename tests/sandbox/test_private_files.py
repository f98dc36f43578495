"""The store and the vault's key are never in what a program is shown, by whatever name."""

from dataclasses import replace
from pathlib import Path

import pytest

from mainspring.capabilities.sandbox.backend import SandboxSpec, check_private_paths
from mainspring.core.errors import SandboxFailed


@pytest.fixture
def site(tmp_path: Path) -> SandboxSpec:
    for name in ("work/.mainspring", "home/.mainspring", "tools"):
        (tmp_path / name).mkdir(parents=True)
    store, key = tmp_path / "work/.mainspring/log.db", tmp_path / "home/.mainspring/vault.key"
    for item in (store, key):
        item.write_text("private")
    return SandboxSpec(
        session_id="session",
        workspace=tmp_path / "work",
        state=tmp_path / "state",
        read_only=(tmp_path / "tools",),
        hidden=(tmp_path / "work/.mainspring",),
        private=(store, key, tmp_path / "home/.mainspring/vault.json"),
    )


def test_a_hidden_store_and_a_key_elsewhere_are_accepted(site: SandboxSpec):
    check_private_paths(site)


def test_a_store_in_the_workspace_must_be_hidden(site: SandboxSpec):
    with pytest.raises(SandboxFailed, match=r"log\.db is in the workspace"):
        check_private_paths(replace(site, hidden=(site.workspace / "other",)))


@pytest.mark.parametrize("shown", ["home", "home/.mainspring", "home/.mainspring/vault.key", ""])
def test_a_parent_folder_of_a_key_cannot_be_shown(site: SandboxSpec, tmp_path: Path, shown: str):
    with pytest.raises(SandboxFailed, match="name narrower folders"):
        check_private_paths(replace(site, read_only=(tmp_path / shown,)))


@pytest.mark.parametrize("target", ["home", "home/.mainspring", "home/.mainspring/vault.key"])
def test_another_name_of_a_private_folder_is_recognized(
    site: SandboxSpec, tmp_path: Path, target: str
):
    """As a bind mount is, a link is another name of what it leads to."""
    (tmp_path / "alias").symlink_to(tmp_path / target)
    for shown in ({"read_only": (tmp_path / "alias",)}, {"share": tmp_path / "alias"}):
        with pytest.raises(SandboxFailed, match="is shown to programs"):
            check_private_paths(replace(site, **shown))


@pytest.mark.parametrize("place", ["/usr/local/mainspring", "/lib/mainspring"])
def test_a_key_cannot_be_in_a_system_folder_shown_to_programs(site: SandboxSpec, place: str):
    with pytest.raises(SandboxFailed, match="is shown to programs"):
        check_private_paths(replace(site, private=(*site.private, Path(place, "vault.key"))))


def test_a_workspace_inside_a_system_folder_may_hide_its_own_store(site: SandboxSpec):
    root = Path("/usr/local")
    store = root / ".mainspring/log.db"
    check_private_paths(replace(site, workspace=root, hidden=(store.parent,), private=(store,)))


def test_a_hard_link_of_the_key_is_recognized(site: SandboxSpec, tmp_path: Path):
    (tmp_path / "copy").hardlink_to(tmp_path / "home/.mainspring/vault.key")
    with pytest.raises(SandboxFailed, match=r"vault\.key is in it"):
        check_private_paths(replace(site, read_only=(tmp_path / "copy",)))
