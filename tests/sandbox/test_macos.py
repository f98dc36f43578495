"""The profile for sandbox-exec, word for word; whether macOS obeys it is seen on macOS."""

from pathlib import Path

import pytest

from mainspring.capabilities.sandbox.backend import SandboxSpec
from mainspring.capabilities.sandbox.backends.macos import profile
from mainspring.core.errors import SandboxFailed

WORK = Path("/Users/me/work")


def make_profile(workspace: Path = WORK) -> str:
    site = SandboxSpec(
        session_id="one",
        workspace=workspace,
        state=Path("/Users/me/state"),
        hidden=(workspace / ".mainspring",),
        protected=(workspace / ".git/hooks",),
    )
    return profile(site, Path("/Users/me/state/tmp"), Path("/opt/python"))


def test_only_named_operations_are_allowed():
    lines = make_profile().splitlines()
    assert lines[:4] == [
        "(version 1)",
        "(deny default)",
        "(allow process-exec process-fork)",
        "(allow signal process-info* (target same-sandbox))",
    ]
    text = make_profile()
    assert "network" not in text
    for service in ("appleevents", "lsopen", "coreservices"):
        assert service not in text


def test_programs_write_only_in_their_workspace_and_denials_come_last():
    text = make_profile()
    assert text.endswith(
        """(allow file-write*
  (subpath "/Users/me/work")
  (subpath "/Users/me/state/tmp"))
(deny file-write*
  (subpath "/Users/me/work/.git/hooks"))
(deny file-read* file-write*
  (subpath "/Users/me/work/.mainspring"))
(deny file-write-unlink
  (literal "/Users/me/work")
  (literal "/Users/me/work/.git"))
"""
    )
    assert '(subpath "/Users/me")' not in text


def test_a_path_cannot_close_its_own_quotation():
    assert '(subpath "/Users/me/a\\"b\\\\c")' in make_profile(Path('/Users/me/a"b\\c'))
    with pytest.raises(SandboxFailed, match="cannot be named"):
        make_profile(Path("/Users/me/a\nb"))
