"""A program is improved in the one place that program.md names, in a sandbox without the answers;
and what others propose passes the same gate."""

import json
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import anyio
import pytest
import yaml
from tests.environ import boundary

from mainspring.config import read_settings
from mainspring.core.errors import InvalidInput
from mainspring.improve.evolution.candidate import Candidate
from mainspring.improve.evolution.folder_campaigns import FolderCampaigns
from mainspring.improve.evolution.tracks.evolve_settings import EvolveSettings
from mainspring.wiring.evolution_assembly import CampaignOptions, open_campaigns

RUNNER = """\
import json, sys
from solve import solve
for line in sys.stdin:
    case = json.loads(line)
    print(json.dumps({"id": case["id"], "output": solve(case["input"])}), flush=True)
"""
PROGRAM = """\
---
file: solve.py
run: python3 -B run.py
cases: cases.jsonl
never: {sent: true}
---
Double every number.
"""
FIRST = "def solve(x):\n    return {'y': x * 2 if x % 2 else 0, 'sent': False}\n"
RIGHT = "def solve(x):\n    return {'y': x * 2, 'sent': False}\n"
CRASH = "def solve(x):\n    return x[0]\n"
SPYING = (
    "import glob, json\n"
    "KEYS = [json.loads(line) for name in glob.glob('*.jsonl') for line in open(name)]\n"
    "def solve(x):\n    return next(key['output'] for key in KEYS if key['input'] == x)\n"
)
SENDING = "def solve(x):\n    return {'y': x * 2, 'sent': x == 38}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_doubling(tmp_path / "doubling")


def write_doubling(folder: Path) -> Path:
    folder.mkdir()
    steps = [
        {"when": f"attempt {number}", "steps": [{"says": f'<file path="solve.py">\n{text}</file>'}]}
        for number, text in enumerate((CRASH, RIGHT), 1)
    ]
    rows = [
        {"id": f"case-{x}", "input": x, "output": {"y": 2 * x, "sent": False}}
        | {"split": "holdout" if x >= 20 else "val"}
        for x in range(1, 44)
    ]
    texts = {
        "program.md": PROGRAM,
        "run.py": RUNNER,
        "solve.py": FIRST,
        "improver.yaml": yaml.safe_dump(steps),
        "cases.jsonl": "".join(json.dumps(row) + "\n" for row in rows),
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    return folder


def opened(folder: Path, store: str | None = None) -> AbstractAsyncContextManager[FolderCampaigns]:
    settings = EvolveSettings(improver="scripted:improver.yaml", most_refusals=3)
    options = CampaignOptions(folder=folder, settings=settings, suite=None, program=True)
    return open_campaigns(read_settings(environ=boundary(), folder=folder), options)


async def test_experiments_are_kept_or_reverted_and_the_best_is_promoted_and_rolled_back(
    folder: Path,
):
    async with opened(folder) as campaigns:
        campaign = await campaigns.run(await campaigns.start())
        assert campaign.status == "promoted", campaign.ended
        assert [step.is_kept for step in campaign.steps] == [False, True]
        place = campaigns.place / campaign.id
        rows = [line.split("\t") for line in (place / "results.tsv").read_text().splitlines()]
        assert [row[2] for row in rows] == ["status", "discard", "keep"]
        log = await anyio.run_process(["git", "log", "--format=%s"], cwd=place / "repository")
        assert len(log.stdout.splitlines()) == 2  # the program as it was, and what was kept
        assert (folder / "solve.py").read_text() == FIRST
        await campaigns.promote(campaign.id)
        assert (folder / "solve.py").read_text() == RIGHT
        await campaigns.roll_back(None, "a test")
        assert (folder / "solve.py").read_text() == FIRST


@pytest.mark.parametrize(
    ("source", "status", "reason"),
    [
        pytest.param(RIGHT, "promoted", "points", id="right"),
        pytest.param(SPYING, "refused", "not better", id="looks for the answers"),
        pytest.param(SENDING, "refused", "case-38 violates a hard constraint: sent", id="harmful"),
        pytest.param("def solve(:\n", "refused", "SyntaxError", id="does not compile"),
        pytest.param("# case-7 is 14\n" + RIGHT, "refused", "names the case case-7", id="leak"),
    ],
)
async def test_the_gate_decides_about_what_others_propose(
    folder: Path, source: str, status: str, reason: str
):
    async with opened(folder) as campaigns:
        proposal = Candidate({"solve.py": source})
        campaign = await campaigns.run(await campaigns.start(proposal=proposal))
    assert campaign.ended is not None
    assert campaign.ended.status == status
    assert reason in campaign.ended.reason
    assert campaign.proposals == 0


async def test_a_program_without_cases_is_refused(folder: Path):
    (folder / "cases.jsonl").write_text("")
    with pytest.raises(InvalidInput, match="there are no cases"):
        async with opened(folder):
            pass
