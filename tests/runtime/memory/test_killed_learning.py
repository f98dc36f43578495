"""Learning by a model that is killed: nothing is lost, nothing happens twice, no recorded answer is
paid twice."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.runtime.memory.killable_learning import prepare
from tests.runtime.memory.test_model_learning import a_world

from mainspring.core.events import MemoryLearned, MemoryWritten, ModelRequestEnded
from mainspring.runtime.memory.note import INDEX_FILE

STEPS = 60
"""Points between the first and the last step of learning."""


def learn(place: Path, kind: str, number: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.runtime.memory.killable_learning", place, kind, str(number)],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=60,
    )


async def state_of(place: Path) -> tuple[dict[str, str], Counter[str], list[str]]:
    """The bodies of the memories, how often the log says that each version was written, and each
    end of a request."""
    session_id = (place / "names").read_text().splitlines()[0]
    async with a_world(place) as world:
        log = [event.payload for event in await world.log.read(session_id)]
        bodies = {
            path: world.folder.read(path).body
            for path in world.folder.paths()
            if path != INDEX_FILE
        }
        index = world.folder.text(INDEX_FILE)
    assert all(f"]({path})" in index for path in bodies)
    assert index.count("](") == len(bodies)
    versions = Counter(item.version or "" for item in log if isinstance(item, MemoryWritten))
    assert sum(isinstance(item, MemoryLearned) for item in log) == 1
    requests = [item.cost_usd or "" for item in log if isinstance(item, ModelRequestEnded)]
    return bodies, versions, requests


async def prepared(tmp_path: Path) -> Path:
    await prepare(tmp_path / "before")
    shutil.copytree(tmp_path / "before", tmp_path / "whole")
    return tmp_path / "before"


async def check_kills(tmp_path: Path, kind: str, points: list[int], most_paid: int) -> None:
    whole = await state_of(tmp_path / "whole")
    assert len(whole[0]) == 2, whole
    for point in points:
        place = tmp_path / f"{kind}{point}"
        shutil.copytree(tmp_path / "before", place)
        killed = learn(place, kind, point)
        assert killed.returncode == -9, (point, killed.stderr)
        finished = learn(place, "event", 0)
        assert finished.returncode == 0, (point, finished.stderr)
        assert await state_of(place) == whole, (kind, point)
        assert len((place / "paid").read_text().splitlines()) <= most_paid, (kind, point)


async def test_learning_killed_after_any_event_is_completed_once(tmp_path: Path):
    await prepared(tmp_path)
    events = learn(tmp_path / "whole", "event", 0)
    assert events.returncode == 0, events.stderr
    await check_kills(tmp_path, "event", list(range(1, int(events.stdout) + 1)), most_paid=1)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_learning_killed_at_any_step_is_completed_once(tmp_path: Path):
    """An answer that came and was not recorded yet is asked for again; no other is."""
    await prepared(tmp_path)
    steps = learn(tmp_path / "whole", "step", 0)
    assert steps.returncode == 0, steps.stderr
    points = [1 + at * int(steps.stdout) // STEPS for at in range(STEPS)]
    await check_kills(tmp_path, "step", points, most_paid=2)
