"""Sandboxes of this machine: which there are, and what it has to make one from."""

from __future__ import annotations

from mainspring.capabilities.sandbox.backend_selection import SandboxSettings
from mainspring.capabilities.sandbox.sandbox_probes import SandboxProbe, probe_sandboxes

__all__ = ["SandboxProbe", "sandbox_looks"]


async def sandbox_looks() -> list[SandboxProbe]:
    return await probe_sandboxes(SandboxSettings())
