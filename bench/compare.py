"""Compare this code with that of another commit: `python bench/compare.py BASE [ROUNDS] [NAME]...`.

BASE is a commit, or a folder with a checkout. Both sides run in processes of their own with this
environment's packages, in turn, against one model server; a ratio is that of the two medians, with
the range of the rounds behind it. NAMEs are of `PROBES`; all by default.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import anyio
import deltas
import turns
from report import Measure, as_table, note
from server import postgres

ROOT = Path(__file__).parent.parent


async def turns_on(store: str, url: str) -> dict[str, float]:
    async with turns.runtime_at(url, store) as runtime:
        await turns.one(runtime, 3)  # warm
        turns.STAMPS.clear()
        measures = [*await turns.latency(runtime, url), *await turns.together(runtime)]
    return {f"{item.name}, {item.unit}": item.value for item in measures}


async def sqlite_turns(url: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        return await turns_on(str(Path(folder, "bench.db")), url)


async def postgres_turns(url: str) -> dict[str, float]:
    with postgres() as store:
        return await turns_on(store, url)


async def delta_costs(url: str) -> dict[str, float]:
    costs = await deltas.microseconds_by_depth(url)
    return {f"CPU of a delta through {depth}, us": value for depth, value in costs.items()}


PROBES: dict[str, Callable[[str], Awaitable[dict[str, float]]]] = {
    "sqlite": sqlite_turns,
    "postgres": postgres_turns,
    "deltas": delta_costs,
}


def probe(source: Path, name: str, url: str) -> dict[str, float]:
    """What `PROBES[name]` measures of the package in `source`."""
    done = subprocess.run(
        [sys.executable, __file__, "--probe", name, url],
        env={**os.environ, "PYTHONPATH": str(source)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=900,
        check=True,
    )
    figures = json.loads(done.stdout.splitlines()[-1])
    return {f"{name}: {figure}": value for figure, value in figures.items()}


@contextmanager
def source_of(base: str) -> Generator[Path]:
    """The folder `src` of a checkout, or of a commit for as long as the block runs."""
    if Path(base).is_dir():
        yield Path(base, "src").resolve()
        return
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", base, "src"], cwd=ROOT, stdout=subprocess.PIPE, check=True
        )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        yield Path(folder, "src")


async def compare(base: Path, rounds: int, names: list[str]) -> list[Measure]:
    before: dict[str, list[float]] = {}
    after: dict[str, list[float]] = {}
    async with turns.serving() as url:
        for number in range(rounds):
            for name in names:
                for source, figures in ((base, before), (ROOT / "src", after)):
                    note(f"round {number + 1}: {name} of {'BASE' if source == base else 'this'}")
                    for figure, value in probe(source, name, url).items():
                        figures.setdefault(figure, []).append(value)
    return [_ratio(figure, before[figure], after[figure]) for figure in after]


def _ratio(figure: str, before: list[float], after: list[float]) -> Measure:
    each = [new / old for old, new in zip(before, after, strict=True)]
    return Measure(
        name=figure,
        value=median(after) / median(before),
        unit="x",
        detail=f"{min(each):.2f} to {max(each):.2f}; {median(before):.2f} -> {median(after):.2f}",
    )


def main() -> int:
    if sys.argv[1:2] == ["--probe"]:
        print(json.dumps(anyio.run(PROBES[sys.argv[2]], sys.argv[3])))
        return 0
    parser = argparse.ArgumentParser(description="Ratios of this code to another commit's.")
    parser.add_argument("base", metavar="BASE", help="a commit, or a folder with a checkout")
    parser.add_argument("rounds", nargs="?", type=int, default=5, metavar="ROUNDS")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PROBES)}")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in PROBES]:
        parser.error(f"there is no {unknown[0]}; there are {', '.join(PROBES)}")
    with source_of(options.base) as base:
        names = options.names or list(PROBES)
        print(as_table(anyio.run(compare, base, options.rounds, names)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
