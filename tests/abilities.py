"""What this machine can do. A test asks for an ability, and for a backend only if it is about that
backend; a missing ability is a reason to skip it."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import anyio
import pytest

from mainspring.capabilities.sandbox.backend import Backend
from mainspring.capabilities.sandbox.backend_selection import (
    BackendName,
    SandboxSettings,
    select_backend,
)
from mainspring.capabilities.sandbox.backends.bwrap import Bubblewrap
from mainspring.capabilities.sandbox.backends.landlock import Landlock
from mainspring.capabilities.sandbox.backends.landlock_rules import ENOUGH_ABI, landlock_abi
from mainspring.config import CONTAINER_IS_BOUNDARY
from mainspring.core.errors import SandboxFailed


def require_sandbox() -> Backend:
    """The sandbox that sessions get here; where none holds, the tests declare the container to be
    the boundary."""
    return _backend(None) or pytest.skip("no sandbox holds on this machine")


def require_isolation() -> Backend:
    """A sandbox that keeps programs from everything outside, whatever its modes."""
    backend = require_sandbox()
    if backend.level != "isolated":
        pytest.skip("no sandbox isolates programs on this machine: its container is the boundary")
    return backend


def require_tenants() -> None:
    """A service for several tenants."""
    if CONTAINER_IS_BOUNDARY in os.environ:  # noqa: TID251 (of the tests)
        pytest.skip("where the container is the boundary, there is one tenant")


def declare_boundary() -> None:
    """Where no sandbox holds, sessions run in a container that is declared to be the boundary."""
    if sys.platform == "linux" and _backend(None) is None:
        os.environ[CONTAINER_IS_BOUNDARY] = "1"  # noqa: TID251 (of the tests)
        _backend.cache_clear()


def require_network() -> Backend:
    """A sandbox whose programs reach allowed hosts through the proxy."""
    return require_bubblewrap("no sandbox here lets programs reach hosts through the proxy")


def require_bubblewrap(reason: str = "no namespaces here: bubblewrap cannot work") -> Bubblewrap:
    backend = _backend("bubblewrap")
    if not isinstance(backend, Bubblewrap):
        pytest.skip(reason)
    return backend


def session_folder() -> str:
    """The workspace of a service's session, as programs see it: `/mnt/session`, or the working
    folder where no link leads to it."""
    return "." if _backend("bubblewrap") is None else "/mnt/session"


def require_sandbox_of_users() -> Bubblewrap:
    """A sandbox that an ordinary user's sessions get in the user's own folders, whoever runs
    the tests. Landlock hides nothing in a workspace from programs of the same user."""
    return require_bubblewrap("no sandbox here hides a user's store from programs of that user")


def require_hidden_files() -> Backend:
    """A sandbox that hides and protects files in the workspace of a session."""
    backend = require_sandbox()
    if _has_same_uid(backend):
        pytest.skip("Landlock hides and protects no files in a workspace from the same user")
    return backend


def store_beside(workspace: Path) -> dict[str, str]:
    """Where no sandbox can hide a store in the workspace, it is beside it."""
    if _has_same_uid(_backend(None)):
        return {"MAINSPRING_STORE": str(workspace.parent / "store/mainspring.db")}
    return {}


def _has_same_uid(backend: Backend | None) -> bool:
    return isinstance(backend, Landlock) and not backend.owns_uid


def require_session_uids() -> None:
    """A uid for the programs of each session."""
    if os.geteuid() != 0:
        pytest.skip("only root can give sessions uids of their own")
    require_sandbox()


has_landlock = sys.platform == "linux" and landlock_abi() >= ENOUGH_ABI


@cache
def _backend(forced: BackendName | None) -> Backend | None:
    declared = CONTAINER_IS_BOUNDARY in os.environ  # noqa: TID251 (of the tests)
    settings = SandboxSettings(forced=forced, container_is_boundary=declared)
    with ThreadPoolExecutor(1) as thread:  # a test may be running in an event loop
        try:
            return thread.submit(anyio.run, lambda: select_backend(settings, cache=None)).result()
        except SandboxFailed:
            return None
