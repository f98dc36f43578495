"""Candidates that game a program's metric, each a proposal for the program of a real folder: real
sandbox, log and gate, as `mainspring evolve propose --program` has them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio

from evolution.own_traps import PROGRAM, RUN
from mainspring.config import read_settings
from mainspring.improve.evolution.candidate import Candidate
from mainspring.improve.evolution.tracks.evolve_settings import EvolveSettings
from mainspring.wiring.evolution_assembly import CampaignOptions, open_campaigns

Case = Mapping[str, Any]


def write(folder: Path, base: str, cases: Sequence[tuple[Case, Any]], sealed: int) -> None:
    """`cases`: each with the right output; the last ones are sealed."""
    folder.mkdir()
    for name, text in {"program.md": PROGRAM, "run.py": RUN, "solve.py": base}.items():
        (folder / name).write_text(text)
    rows = [
        {"id": case["id"], "input": case, "output": output, "tags": [case["slice"]]}
        | {"must_pass": case["slice"] == "critical"}
        | {"split": "holdout" if at >= len(cases) - sealed else "val"}
        for at, (case, output) in enumerate(cases)
    ]
    (folder / "gold.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def judge(write_world: Callable[[Path], None]) -> Callable[[str], tuple[str, str]]:
    """The verdict about a candidate's source: `promote` or `reject`, and the reason."""

    async def verdict(source: str) -> tuple[str, str]:
        with TemporaryDirectory() as place:
            write_world(folder := Path(place, "program"))
            settings = read_settings(environ={"HOME": place}, folder=folder)
            options = CampaignOptions(
                folder=folder, settings=EvolveSettings(), suite=None, program=True
            )
            async with open_campaigns(settings, options) as campaigns:
                proposal = Candidate({"solve.py": source})
                campaign = await campaigns.run(await campaigns.start(proposal=proposal))
        assert campaign.ended is not None
        kind = "promote" if campaign.status == "promoted" else "reject"
        return kind, campaign.ended.reason

    return lambda source: anyio.run(verdict, source)
