"""Whether the operator's own files are out of the reach of agents' programs."""

from __future__ import annotations

from dataclasses import asdict

from mainspring.config import Settings
from mainspring.edges.cli.checks.finding import Finding
from mainspring.wiring.protections import protection_looks


def look_at_protections(settings: Settings, sandbox: list[Finding]) -> list[Finding]:
    """`sandbox`: what was found out about those of this machine."""
    holding = [each for each in sandbox if each.name == "sandbox" and each.status != "missing"]
    backend = holding[0].found.split()[0] if holding else ""
    return [Finding(**asdict(look)) for look in protection_looks(settings, backend=backend)]
