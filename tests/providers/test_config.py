"""Settings tell nobody what they must not, and are read on any system."""

import os
from pathlib import Path

import pytest

from mainspring.config import read_settings

STORE = "postgresql://ada:pa55word@db.example/log?password=pa55word"


def test_settings_are_shown_without_keys_and_passwords(tmp_path: Path):
    environ = {"ANTHROPIC_API_KEY": "sk-very-secret", "MAINSPRING_STORE": STORE}
    settings = read_settings(environ=environ, folder=tmp_path)
    assert (settings.store, settings.store_label) == (STORE, "postgresql://ada:***@db.example/log")
    assert "pa55word" not in repr(settings)
    assert "sk-very-secret" not in repr(settings)


def test_a_store_in_a_parent_folder_is_found_without_uids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / ".mainspring").mkdir()
    (tmp_path / ".mainspring/mainspring.db").touch()
    below = tmp_path / "below"
    below.mkdir()
    monkeypatch.delattr(os, "getuid")
    for home, place in ((tmp_path, tmp_path), (below, below)):
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.setenv("USERPROFILE", str(home))
        settings = read_settings(environ={}, folder=below)
        assert settings.store == str(place / ".mainspring" / "mainspring.db")


def test_a_parent_folder_with_settings_only_does_not_hold_the_store(tmp_path: Path):
    (tmp_path / ".mainspring").mkdir()
    (tmp_path / ".mainspring/settings.json").write_text("{}")
    below = tmp_path / "below"
    below.mkdir()
    settings = read_settings(environ={}, folder=below)
    assert settings.store == str(below / ".mainspring" / "mainspring.db")
