"""Compare this code with that of another commit: `python bench/compare.py BASE [ROUNDS] [NAME]...`.

BASE is a commit, or a folder with a checkout. Both sides run in processes of their own with this
environment's packages, against one model server, and take turns: first one works, then the other,
so that both see the same machine. A ratio is the median of the rounds' ratios; behind it are their
range, and the medians and least values of both sides: on a busy machine the least processor time
says most. NAMEs are of `PROBES`; all by default.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from statistics import median
from typing import TypeAlias

import anyio
import deltas
import turns
from report import Measure, as_table, note
from server import postgres

ROOT = Path(__file__).parent.parent
SESSIONS = 8
"""One after the other, in a round."""
Figures: TypeAlias = dict[str, float]
Probe: TypeAlias = Callable[[], Awaitable[Figures]]
"""One round of work, measured."""


@asynccontextmanager
async def turns_on(store: str, url: str) -> AsyncGenerator[Probe, None]:
    async with turns.runtime_at(url, store) as runtime:

        async def alone() -> None:
            for _ in range(SESSIONS):
                await turns.one(runtime, turns.TURNS)

        async def measured() -> Figures:
            seconds = await turns.cpu_seconds(alone)
            p50 = median(turns.gaps())
            rate, cpu = await turns.together(runtime)
            return {
                "CPU of a turn, ms": seconds * 1e3 / SESSIONS / (turns.TURNS + 1),
                "p50 of a turn, ms": p50,
                f"{cpu.name}, ms": cpu.value,
                rate.name: rate.value,
            }

        await alone()  # warm
        turns.STAMPS.clear()
        yield measured


@asynccontextmanager
async def sqlite_turns(url: str) -> AsyncGenerator[Probe, None]:
    with tempfile.TemporaryDirectory() as folder:
        async with turns_on(str(Path(folder, "bench.db")), url) as measured:
            yield measured


@asynccontextmanager
async def postgres_turns(url: str) -> AsyncGenerator[Probe, None]:
    with postgres() as store:
        async with turns_on(store, url) as measured:
            yield measured


PROBES: dict[str, Callable[[str], AbstractAsyncContextManager[Probe]]] = {
    "sqlite": sqlite_turns,
    "postgres": postgres_turns,
    "deltas": deltas.delta_costs,
}


async def serve_probe(name: str, url: str) -> None:
    """A round for each line of standard input; a line of JSON for each round."""
    async with PROBES[name](url) as measured:
        print("ready", flush=True)
        while await anyio.to_thread.run_sync(sys.stdin.readline):
            print(json.dumps(await measured()), flush=True)


class Side:
    """A process that measures the package in a folder `src`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.rounds: list[Figures] = []

    def wait(self) -> None:
        assert self._read() == "ready\n", "the other process did not start"

    def measure(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self.rounds.append(json.loads(self._read()))

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@contextmanager
def side(source: Path, name: str, url: str) -> Generator[Side]:
    with subprocess.Popen(
        [sys.executable, __file__, "--probe", name, url],
        env={**os.environ, "PYTHONPATH": str(source)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Side(process)  # at the end its standard input is closed, and it ends


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
    async with turns.serving() as url:
        return [item for name in names for item in _compare(base, rounds, name, url)]


def _compare(base: Path, rounds: int, name: str, url: str) -> list[Measure]:
    with side(base, name, url) as before, side(ROOT / "src", name, url) as after:
        before.wait()
        after.wait()
        for number in range(rounds):
            note(f"{name}: round {number + 1}")
            before.measure()
            after.measure()
    return [
        _ratio(
            f"{name}: {figure}",
            [figures[figure] for figures in before.rounds],
            [figures[figure] for figures in after.rounds],
        )
        for figure in after.rounds[0]
    ]


def _ratio(figure: str, before: list[float], after: list[float]) -> Measure:
    ratios = [new / old for old, new in zip(before, after, strict=True)]
    return Measure(
        name=figure,
        value=median(ratios),
        unit="x",
        detail=f"{min(ratios):.2f} to {max(ratios):.2f}; medians {median(before):.2f} ->"
        f" {median(after):.2f}, least {min(before):.2f} -> {min(after):.2f}",
    )


def main() -> int:
    if sys.argv[1:2] == ["--probe"]:
        anyio.run(serve_probe, sys.argv[2], sys.argv[3])
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
