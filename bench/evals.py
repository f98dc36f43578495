"""What evals cost over the sessions themselves, and how often the gate and the judges are right in
worlds whose truth is known."""

from __future__ import annotations

import gc
import math
import random
import resource
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
from report import Measure, note

from mainspring import Agent, Runtime, open_runtime
from mainspring.config import read_settings
from mainspring.core.content import TextBlock
from mainspring.core.events import Usage
from mainspring.core.model import Delta, Reply, Request
from mainspring.core.ports import ExecRequest, ExecResult
from mainspring.improve.evals.graders import Bounds, Contains
from mainspring.improve.evals.runs.case_selection import Selection
from mainspring.improve.evals.runs.runner import RunSettings, SuiteRunner
from mainspring.improve.evals.scoring.judge_bias import LabelledPair, fit_length_bias, pair_verdict
from mainspring.improve.evals.statistics import paired_test
from mainspring.improve.evals.suite import Case, Suite, SuiteFile

CASES = 1000
PARALLEL = 32
WORLDS = 20_000
SEED = 3_141_592
"""Not one of those that statistics were tried on."""
AGENT = Agent(name="bench", model="scripted:bench")


async def measure() -> list[Measure]:
    return [*await overhead(), *gate_rates(), *judge_probes()]


def suite_of(count: int, name: str) -> SuiteFile:
    graders = (Contains(text="hello"), Bounds(max_turns=2))
    cases = tuple(
        Case(id=f"c{at}", input=f"Say hello, {at}", graders=graders) for at in range(count)
    )
    suite = Suite(name=name, cases=cases, parallel=PARALLEL)
    return SuiteFile(suite=suite, file=Path("evals/bench.yaml"), hash=name)


async def cpu_and_wall(work: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    await work()
    return time.process_time() - cpu, time.perf_counter() - wall


async def sessions(runtime: Runtime, count: int) -> None:
    """The same conversations through `Runtime`, as many at a time."""
    jobs = iter(range(count))

    async def work() -> None:
        for at in jobs:
            session = await runtime.start(AGENT, f"Say hello, {at}")
            result = await session.run()
            assert result is not None
            assert result.text == "hello"

    async with anyio.create_task_group() as group:
        for _ in range(PARALLEL):
            group.start_soon(work)


async def suite(runner: SuiteRunner, count: int, name: str) -> None:
    suite_file, settings = suite_of(count, name), RunSettings()
    plan = await runner.plan(suite_file, Selection(), settings)
    run = await runner.run(suite_file, plan, settings)
    assert run.ended is not None
    assert run.ended.passed == count


async def no_program(folder: Path, program: ExecRequest) -> ExecResult:
    raise AssertionError(f"these cases run no programs: {folder} {program}")


class Hello:
    """A recorded answer; unlike `Scripted` it keeps nothing of what it was asked."""

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        yield Reply(
            content=(TextBlock("hello"),),
            usage=Usage(input_tokens=10, output_tokens=1),
            reason="end_turn",
            model=request.model,
        )


async def overhead() -> list[Measure]:
    """Interleaved, in one process: both see the same machine."""
    plain: list[float] = []
    graded: list[float] = []
    walls: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        settings = read_settings(environ={}, folder=Path(folder))
        async with open_runtime(settings) as runtime:
            runtime.models.put(AGENT.model, Hello())
            runner = SuiteRunner(
                runtime=runtime,
                agent=replace(AGENT),
                run_program=no_program,
                make_script=lambda _steps, _name: Hello(),
                place=Path(folder),
                verdicts=Path(folder, "verdicts"),
                monotonic=time.monotonic,
            )
            await suite(runner, 100, "warm")
            await sessions(runtime, 100)
            before = first = peak_megabytes()
            for turn in range(3):
                cpu, wall = await cpu_and_wall(partial(suite, runner, CASES, f"bench{turn}"))
                graded.append(cpu)
                walls.append(wall)
                if turn == 0:
                    first = peak_megabytes()
                plain.append((await cpu_and_wall(lambda: sessions(runtime, CASES)))[0])
            last = peak_megabytes()
    milliseconds = sorted(
        (one - other) / CASES * 1e3 for one, other in zip(graded, plain, strict=True)
    )
    return [
        Measure(
            name="eval run: CPU a case over the session's own",
            value=milliseconds[1],
            unit="ms",
            target="<= 1",
            detail=f"of {sorted(graded)[1] / CASES * 1e3:.2f} ms in all",
        ),
        Measure(name="1,000 one-turn cases", value=sorted(walls)[1], unit="s", target="<= 30"),
        Measure(
            name="memory of the second and third 1,000 cases",
            value=last - first,
            unit="MB",
            target="<= 20",
            detail=f"{before:.0f} MB before, {first:.0f} MB after the first",
        ),
    ]


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def world(rng: random.Random, delta: float) -> tuple[list[list[float]], list[list[float]]]:
    """150 cases x 3 trials, each case with its own chance and its own change; 5 % of the grades are
    wrong. At no difference, half of the cases do not change at all."""

    def trials(chance: float) -> list[float]:
        return [float((rng.random() < chance) != (rng.random() < 0.05)) for _ in range(3)]

    before: list[list[float]] = []
    after: list[list[float]] = []
    for _ in range(150):
        chance = rng.betavariate(0.8, 0.6)
        moved = min(1.0, max(0.0, chance + delta + rng.choice((-0.15, 0.15)) * rng.random()))
        if delta == 0 and rng.random() < 0.5:
            moved = chance
        before.append(trials(chance))
        after.append(trials(moved))
    return before, after


def gate_rates() -> list[Measure]:
    """Chances end at 1, so what is meant to be +10 points is +8.1 on average; the last line is a
    world that gains +10."""
    return [
        gate_rate(0.0, "at +0 points", "<= 0.05"),
        gate_rate(-0.05, "at -5 points", "<= 0.005"),
        gate_rate(0.10, "at +10 points", ">= 0.85"),
        gate_rate(0.125, "at +10 points after the ceiling", ""),
    ]


def gate_rate(delta: float, name: str, target: str) -> Measure:
    note(f"  {WORLDS} worlds {name} ...")
    rng = random.Random(SEED + round(delta * 1000))
    hits = sum(paired_test(*world(rng, delta)).p_better < 0.05 for _ in range(WORLDS))
    share = hits / WORLDS
    half = 1.96 * math.sqrt(share * (1 - share) / WORLDS)
    return Measure(
        name=f"gate: promoted {name}",
        value=share,
        unit="share",
        target=target,
        detail=f"{share:.4f}, 95 %: {share - half:.4f} to {share + half:.4f}",
    )


PAIRS, ROUNDS, LABELLED = 3000, 3, 200


class BiasedJudge:
    """Prefers the first answer and the longer one; its votes are noisy."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def prefers_first(self, first: tuple[float, float], second: tuple[float, float]) -> bool:
        """Answers are quality and length."""
        quality = (first[0] - second[0]) * 2.2
        length = 0.9 * math.log(first[1] / second[1])
        return quality + 0.8 + length + self._rng.gauss(0, 1) > 0

    def votes(self, first: tuple[float, float], second: tuple[float, float]) -> int:
        """Of both orders, `ROUNDS` times: how many are for the first."""
        forward = sum(self.prefers_first(first, second) for _ in range(ROUNDS))
        return forward + sum(not self.prefers_first(second, first) for _ in range(ROUNDS))


def judge_probes() -> list[Measure]:
    """The verdict of a pair as the grader `pairwise` reaches it, on a judge of known biases."""
    rng = random.Random(3_000)
    judge = BiasedJudge(rng)

    def answer() -> tuple[float, float]:
        return rng.gauss(0, 0.6), rng.lognormvariate(5, 0.5)

    pairs = [(answer(), answer()) for _ in range(PAIRS)]
    pairs = [pair for pair in pairs if abs(pair[0][0] - pair[1][0]) > 0.15]
    labelled = [
        LabelledPair(
            first_is_better=one[0] > other[0],
            length_ratio=one[1] / other[1],
            share=judge.votes(one, other) / (2 * ROUNDS),
        )
        for one, other in pairs[:LABELLED]
    ]
    bias = fit_length_bias(labelled)

    def worth(one: tuple[float, float], other: tuple[float, float]) -> float:
        verdict = pair_verdict(
            judge.votes(one, other),
            2 * ROUNDS,
            lengths=(round(one[1] * 100), round(other[1] * 100)),
            length_bias=bias,
        )
        return {"first": 1.0, "tie": 0.5, "second": 0.0}[verdict]

    tested = pairs[LABELLED:]
    same = sum(worth(one, one) for one, _ in tested) / len(tested)
    padded = sum(worth((one[0], 2 * one[1]), one) for one, _ in tested) / len(tested)
    verdicts = [(worth(one, other), one[0] > other[0]) for one, other in tested]
    decided = [(value > 0.5) == truth for value, truth in verdicts if value != 0.5]
    return [
        Measure(
            name="judge: identical pair, off from 0.50",
            value=abs(same - 0.5),
            unit="share",
            target="<= 0.05",
            detail=f"{same:.3f}",
        ),
        Measure(name="judge: padding wins", value=padded, unit="share", target="<= 0.55"),
        Measure(
            name="judge: right when it decides",
            value=sum(decided) / len(decided),
            unit="share",
            detail=f"ties {1 - len(decided) / len(verdicts):.0%}",
        ),
    ]
