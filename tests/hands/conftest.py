"""A user's home and a project of theirs, for sessions with everything that a real one has."""

from pathlib import Path

import pytest
from tests.hands.scene import Scene

from mainspring.capabilities.sandbox.bwrap import find_bubblewrap


@pytest.fixture(autouse=True)
def _isolation_is_to_be_had() -> None:  # pyright: ignore[reportUnusedFunction]
    if find_bubblewrap() is None:
        pytest.skip("no bubblewrap here")


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    home, workspace = tmp_path / "home", tmp_path / "project"
    for folder in (home, workspace):
        folder.mkdir()
    monkeypatch.setenv("HOME", str(home))
    return Scene(home=home, workspace=workspace, outside=tmp_path)
