"""What `mainspring doctor` does: look at everything, tell it, fail only if no session can run."""

from __future__ import annotations

import anyio
import msgspec
from msgspec import Struct

from mainspring import __version__
from mainspring.config import KEYS, Settings
from mainspring.edges.cli.checks.finding import Finding
from mainspring.edges.cli.checks.machine import look_at_machine
from mainspring.edges.cli.checks.protections import look_at_protections
from mainspring.edges.cli.checks.sandbox import look_at_sandbox
from mainspring.edges.cli.checks.store import look_at_store
from mainspring.edges.cli.render import Screen, counted, padded

_STYLES = {"ok": "green", "warn": "yellow", "missing": "bold red"}
_STATUS_WIDTH = 9
_NAME_WIDTH = 17


class Checkup(Struct, frozen=True, kw_only=True):
    """What `--json` prints."""

    ok: bool
    version: str
    store: str
    keys: dict[str, bool]
    findings: list[Finding]


async def checkup(settings: Settings, *, json: bool) -> int:
    findings = [
        *await anyio.to_thread.run_sync(look_at_machine, settings),
        *await look_at_store(settings),
        *await look_at_sandbox(),
        *await anyio.to_thread.run_sync(look_at_protections, settings),
    ]
    is_well = not any(finding.is_fatal for finding in findings)
    screen = Screen(settings)
    if json:
        report = Checkup(
            ok=is_well,
            version=__version__,
            store=settings.place,
            keys={name: name in settings.keys for name in KEYS},
            findings=findings,
        )
        screen.json(msgspec.json.encode(report))
    else:
        _print(screen, findings, is_well=is_well)
    return 0 if is_well else 1


def _print(screen: Screen, findings: list[Finding], *, is_well: bool) -> None:
    for finding in findings:
        head = (
            padded((finding.status, _STYLES[finding.status]), _STATUS_WIDTH),
            padded((finding.name, "bold"), _NAME_WIDTH),
        )
        if finding.status == "ok":
            screen.line(*head, (finding.found, ""), (f": {finding.consequence}", "dim"))
            continue
        screen.line(*head, (finding.found, ""))
        screen.whole((finding.consequence, ""), indent=_STATUS_WIDTH + _NAME_WIDTH)
        if finding.fix:
            screen.whole((f"fix: {finding.fix}", "cyan"), indent=_STATUS_WIDTH + _NAME_WIDTH)
    count = sum(finding.status != "ok" for finding in findings)
    screen.line(("", ""))
    if is_well:
        rest = f"; {counted(count, 'thing')} could be better" if count else ""
        screen.whole((f"sessions can run here{rest}", "green"))
    else:
        screen.whole(("sessions cannot run here: mend what is missing", "bold red"))
