"""No hostile program wins a race against its sandbox: a little here, ten minutes each when slow.

`python -m tests.races` does the same by hand, and with a seed again.
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping

import pytest
from tests.abilities import require_bubblewrap
from tests.races.by_runtime import race_runtime
from tests.races.canaries import Canaries
from tests.races.other_uid import ROOT
from tests.races.race_run import Sandbox, open_scene

from mainspring.capabilities.sandbox.backends.landlock_rules import ENOUGH_ABI, landlock_abi

ORDINARY_UID = 1500
_MINUTES = 10
_KEPT = ("PATH", "PYTHONPATH", "LANG")

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or landlock_abi() < ENOUGH_ABI,
    reason="takes root on Linux, with Landlock",
)


def race(*words: str) -> subprocess.CompletedProcess[str]:
    environ: Mapping[str, str] = os.environ  # noqa: TID251 (for the process under test)
    return subprocess.run(
        [sys.executable, "-m", "tests.races", *words],
        cwd=ROOT,
        env={name: environ[name] for name in _KEPT if name in environ},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("sandbox", ["bubblewrap", "landlock"])
async def test_no_hostile_program_wins_a_race_within_a_second(sandbox: Sandbox):
    if sandbox == "bubblewrap":
        require_bubblewrap()
    with open_scene(sandbox, seed=1, seconds=1) as scene:
        await race_runtime(scene, time.monotonic() + 1)
        assert not scene.is_lost, scene.told(0)
        assert scene.counts["rounds"] > 1


@pytest.mark.slow
@pytest.mark.timeout(_MINUTES * 60 + 300)
@pytest.mark.parametrize("uid", [0, ORDINARY_UID])
@pytest.mark.parametrize("sandbox", ["bwrap", "landlock"])
def test_no_hostile_program_wins_a_race_within_ten_minutes(sandbox: str, uid: int):
    done = race("--sandbox", sandbox, "--uid", str(uid), "--seconds", str(_MINUTES * 60))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "wins=0" in done.stdout


def test_the_race_kit_detects_every_kind_of_win():
    """What has been read, changed or brought in is noticed, or nothing would be shown by this."""
    with open_scene("bubblewrap", 1, 1) as scene:
        canaries: Canaries = scene.canaries
        work = scene.workspace("work")
        scene.look([f"so it is {canaries.token}"], work)
        assert len(scene.wins) == 1
        prompt = scene.root / "host/server/prompt.txt"
        os.chown(prompt, ORDINARY_UID, -1)
        (work / "src/copy").write_bytes(prompt.read_bytes())
        (scene.root / "host/server/planted").touch()
        scene.look([], work)
    told = "\n".join(scene.wins)
    assert f"changed: {prompt}" in told
    assert "planted" in told
    assert "brought in" in told
