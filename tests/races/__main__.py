"""`python -m tests.races --sandbox bwrap|landlock --uid 0|1500 --seconds N --seed S`

Prints what was counted, and exits with 1 if anybody won. Another uid than one's own takes root.
"""

import argparse
import faulthandler
import os
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable

import anyio
from tests.races.by_api import race_api
from tests.races.by_cli import race_cli
from tests.races.by_runtime import race_runtime
from tests.races.by_worktrees import race_worktrees
from tests.races.other_uid import run_as
from tests.races.race_run import Sandbox, Scene, open_scene

_PARTS = {"runtime": race_runtime, "cli": race_cli, "api": race_api, "worktrees": race_worktrees}


async def race(scene: Scene, seconds: float, parts: list[str]) -> None:
    until = time.monotonic() + seconds
    async with anyio.create_task_group() as group:
        for part, act in _PARTS.items():
            if part in parts:
                group.start_soon(_until_lost, act, scene, until)


async def _until_lost(
    act: Callable[[Scene, float], Awaitable[None]], scene: Scene, until: float
) -> None:
    while time.monotonic() < until and not scene.wins:
        try:
            await act(scene, until)
        except TimeoutError as error:
            scene.late(str(error))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.races", description=__doc__)
    parser.add_argument("--sandbox", choices=("bwrap", "landlock"), default="bwrap")
    parser.add_argument("--uid", type=int)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--parts", default="runtime,cli,api,worktrees")
    given = parser.parse_args()
    faulthandler.register(signal.SIGUSR1)  # where it is, for whoever wonders
    if given.uid not in (None, os.geteuid()):
        words = [f"--sandbox={given.sandbox}", f"--seconds={given.seconds}", f"--seed={given.seed}"]
        return run_as(given.uid, *words, f"--parts={given.parts}")
    sandbox: Sandbox = "landlock" if given.sandbox == "landlock" else "bubblewrap"
    begun = time.monotonic()
    with open_scene(sandbox, given.seed, given.seconds) as scene:
        anyio.run(race, scene, given.seconds, given.parts.split(","))
        sys.stdout.write(scene.told(begun) + "\n")
        return int(scene.is_lost)


if __name__ == "__main__":
    sys.exit(main())
