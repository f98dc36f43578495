"""Sandboxes of this machine: which there are, and what it has to make one from."""

from __future__ import annotations

from mainspring.capabilities.sandbox.choose import SandboxSettings
from mainspring.capabilities.sandbox.probes import Look, look_at_sandboxes

__all__ = ["Look", "sandbox_looks"]


async def sandbox_looks() -> list[Look]:
    return await look_at_sandboxes(SandboxSettings())
