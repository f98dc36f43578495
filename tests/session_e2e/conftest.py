"""A user's home and a project of theirs, for sessions with everything that a real one has."""

import shutil
from collections.abc import Generator
from pathlib import Path

import pytest
from tests.abilities import require_sandbox
from tests.session_e2e.session_setup import Scene


@pytest.fixture(autouse=True)
def _isolation_is_to_be_had() -> None:
    require_sandbox()


@pytest.fixture(scope="session")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is known about this machine's sandboxes is found out once."""
    return tmp_path_factory.mktemp("probed") / "sandboxes.json"


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, probed: Path) -> Generator[Scene]:
    home, workspace = tmp_path / "home", tmp_path / "project"
    for folder in (home, workspace):
        folder.mkdir()
    monkeypatch.setenv("HOME", str(home))
    cache = home / ".mainspring/sandboxes.json"
    if probed.exists():
        cache.parent.mkdir(parents=True)
        shutil.copy(probed, cache)
    yield Scene(home=home, workspace=workspace, outside=tmp_path)
    if not probed.exists() and cache.exists():
        shutil.copy(cache, probed)
