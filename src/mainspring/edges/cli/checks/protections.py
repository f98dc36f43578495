"""Whether the operator's own files are out of the reach of agents' programs."""

from __future__ import annotations

from dataclasses import asdict

from mainspring.config import Settings
from mainspring.edges.cli.checks.finding import Finding
from mainspring.wiring.protections import protection_looks


def look_at_protections(settings: Settings) -> list[Finding]:
    return [Finding(**asdict(look)) for look in protection_looks(settings)]
