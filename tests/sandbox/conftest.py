"""A real sandbox for each test; skipped where this machine cannot make one."""

import itertools
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.abilities import require_bubblewrap, require_sandbox

from mainspring.capabilities.sandbox.backend import Backend, SandboxLimits, SandboxSpec
from mainspring.capabilities.sandbox.backends.bwrap import Bubblewrap
from mainspring.capabilities.sandbox.sandbox_client import KeeperSandbox
from mainspring.core.ports import ExecRequest, ExecResult

SERVICE_UID = 10001
"""Of the image in deploy/."""
_KEYS = itertools.count()


@pytest.fixture
def site(tmp_path: Path) -> SandboxSpec:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return SandboxSpec(session_id="test", workspace=workspace, state=tmp_path / "state")


@pytest.fixture(scope="session")
def bubblewrap() -> Bubblewrap:
    return require_bubblewrap()


@pytest.fixture(scope="session")
def backend() -> Backend:
    return require_sandbox()


@pytest.fixture
async def sandbox(site: SandboxSpec, backend: Backend) -> AsyncIterator[KeeperSandbox]:
    async with KeeperSandbox(site, backend) as opened:
        yield opened


def limited(site: SandboxSpec, limits: SandboxLimits) -> SandboxSpec:
    return replace(site, sandbox_limits=limits)


async def sh(sandbox: KeeperSandbox, script: str, *, wall_seconds: float = 60.0) -> ExecResult:
    """Run a script under a key of its own."""
    with anyio.fail_after(90):
        key = f"sh-{next(_KEYS)}"
        return await sandbox.run(
            ExecRequest(key=key, argv=("/bin/sh", "-c", script), wall_seconds=wall_seconds)
        )
