"""A real sandbox for each test; skipped where this machine cannot make one."""

import itertools
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from mainspring.capabilities.sandbox.bwrap import Bubblewrap, find_bubblewrap
from mainspring.capabilities.sandbox.cage import Limits, Site
from mainspring.capabilities.sandbox.client import KeptSandbox
from mainspring.core.hands import Exec, Ran

_KEYS = itertools.count()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return Site(session_id="test", workspace=workspace, state=tmp_path / "state")


@pytest.fixture(scope="session")
def bubblewrap() -> Bubblewrap:
    path = find_bubblewrap() if sys.platform == "linux" else None
    if path is None:
        pytest.skip("no bubblewrap here")
    return Bubblewrap(path=path, owns_uid=os.geteuid() == 0)


@pytest.fixture
async def sandbox(site: Site, bubblewrap: Bubblewrap) -> AsyncIterator[KeptSandbox]:
    async with KeptSandbox(site, bubblewrap) as opened:
        yield opened


def limited(site: Site, limits: Limits) -> Site:
    return replace(site, limits=limits)


async def sh(sandbox: KeptSandbox, script: str, *, wall_seconds: float = 20.0) -> Ran:
    """Run a script under a key of its own."""
    with anyio.fail_after(60):
        key = f"sh-{next(_KEYS)}"
        return await sandbox.run(
            Exec(key=key, argv=("/bin/sh", "-c", script), wall_seconds=wall_seconds)
        )
