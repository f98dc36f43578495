"""What it costs to keep a workspace of 5,000 files and 54 MB, beside a plain copy of it."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from report import Measure, median

from mainspring.capabilities.workspace.folder_workspace import FolderWorkspace
from mainspring.capabilities.workspace.snapshots import WorkspaceSnapshots

FILES, FOLDERS, BYTES = 5000, 250, 54_000_000
CHANGED = 88


async def measure() -> list[Measure]:
    with TemporaryDirectory() as folder:
        root, chance = Path(folder, "workspace"), random.Random(4)
        _fill(root, chance)
        copying = _seconds(["cp", "-a", str(root), str(Path(folder, "copy"))])
        snapshots = WorkspaceSnapshots(FolderWorkspace(root), Path(folder, "store"))
        first = await _timed(snapshots.take)
        taken, files = await snapshots.take()
        again = median([await _timed(snapshots.take) for _ in range(5)])
        back: list[float] = []
        for _ in range(5):
            _change(root, chance)
            back.append(await _timed(lambda: snapshots.restore(taken)))
    detail = f"{files:,} files, {BYTES / 1e6:.0f} MB; cp -a {copying * 1000:,.0f} ms"
    return [
        Measure(name="snapshot, the first", value=first * 1000, unit="ms", detail=detail),
        Measure(name="snapshot, the first / cp -a", value=first / copying, unit="x"),
        Measure(name="snapshot, nothing changed", value=again * 1000, unit="ms"),
        Measure(
            name="snapshot, nothing changed / cp -a",
            value=again / copying,
            unit="x",
            target="<= 0.5",
        ),
        Measure(name=f"restore of {CHANGED} entries", value=median(back) * 1000, unit="ms"),
    ]


def _fill(root: Path, chance: random.Random) -> None:
    for number in range(FILES):
        folder = root / f"part_{number % 10}" / f"folder_{number % FOLDERS}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"file_{number}").write_bytes(chance.randbytes(BYTES // FILES))


def _change(root: Path, chance: random.Random) -> None:
    files = sorted(path for path in root.rglob("file_*") if path.is_file())
    for number, path in enumerate(chance.sample(files, CHANGED)):
        if number % 4 == 0:
            path.unlink()
        elif number % 4 == 1:
            os.rename(path, path.with_name(f"new_{number}"))
        else:
            path.write_bytes(chance.randbytes(1000))


def _seconds(argv: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(argv, check=True)
    return time.perf_counter() - begun


async def _timed(act: Callable[[], Awaitable[object]]) -> float:
    begun = time.perf_counter()
    await act()
    return time.perf_counter() - begun
