"""What this machine can do. A test asks for an ability, and for a backend only if it is about that
backend; a missing ability is a reason to skip it."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import anyio
import pytest

from mainspring.capabilities.sandbox.backend import Backend
from mainspring.capabilities.sandbox.backend_selection import (
    BackendName,
    SandboxSettings,
    select_backend,
)
from mainspring.capabilities.sandbox.bwrap import Bubblewrap
from mainspring.capabilities.sandbox.landlock_rules import ENOUGH_ABI, landlock_abi
from mainspring.core.errors import SandboxFailed


def require_sandbox() -> Backend:
    """The sandbox that sessions get here."""
    return _backend(None) or pytest.skip("no sandbox holds on this machine")


def require_network() -> Backend:
    """A sandbox whose programs reach allowed hosts through the proxy."""
    return require_bubblewrap("no sandbox here lets programs reach hosts through the proxy")


def require_bubblewrap(reason: str = "no namespaces here: bubblewrap cannot work") -> Bubblewrap:
    backend = _backend("bubblewrap")
    if not isinstance(backend, Bubblewrap):
        pytest.skip(reason)
    return backend


def require_session_uids() -> None:
    """A uid for the programs of each session."""
    if os.geteuid() != 0:
        pytest.skip("only root can give sessions uids of their own")
    require_sandbox()


has_landlock = sys.platform == "linux" and landlock_abi() >= ENOUGH_ABI


@cache
def _backend(forced: BackendName | None) -> Backend | None:
    settings = SandboxSettings(forced=forced)
    with ThreadPoolExecutor(1) as thread:  # a test may be running in an event loop
        try:
            return thread.submit(anyio.run, lambda: select_backend(settings, cache=None)).result()
        except SandboxFailed:
            return None
