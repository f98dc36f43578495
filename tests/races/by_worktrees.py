"""Worktrees of a repository that programs turn on: opened, changed, merged and removed."""

import os
import time
from pathlib import Path

import anyio
from tests.races.race_run import SECONDS, Scene

from mainspring.capabilities.git.worktrees import GitWorktrees
from mainspring.core.errors import MainspringError
from mainspring.wiring.worktrees import open_worktrees

_ROUNDS = 20


async def race_worktrees(scene: Scene, until: float) -> None:
    number = 0
    while time.monotonic() < until and not scene.wins:
        number += 1
        root = scene.workspace(f"forked-{number}")
        worktrees = open_worktrees(root, scene.root / f"place-{number}")
        with scene.stand_in(root, os.geteuid(), "git"):
            for name in range(_ROUNDS):
                if time.monotonic() < until and not scene.wins:
                    await _round(scene, worktrees, f"tree{name}")
                    await anyio.to_thread.run_sync(scene.look, list[str](), root, worktrees.place)


async def _round(scene: Scene, worktrees: GitWorktrees, name: str) -> None:
    scene.counts["worktrees"] += 1
    try:
        with anyio.fail_after(SECONDS):
            opened = await worktrees.open(name)
            _change(opened.path)
            await worktrees.changes(opened)
            closed = await worktrees.close(
                opened, merge=scene.random.random() < 0.8, message="done"
            )
            scene.counts[closed.outcome] += 1
    except MainspringError as error:
        scene.refused(error)
    except TimeoutError:
        scene.late("a worktree")
    except Exception as error:  # noqa: BLE001 (whatever comes out is a failure)
        scene.failed("worktrees", error)


def _change(place: Path) -> None:
    (place / "new.txt").write_text(str(place))
