"""How well this machine can keep an agent's commands inside a box."""

from __future__ import annotations

from dataclasses import asdict

from mainspring.edges.cli.checks.finding import Finding
from mainspring.wiring.sandboxes import sandbox_looks


async def look_at_sandbox() -> list[Finding]:
    return [Finding(**asdict(look)) for look in await sandbox_looks()]
