"""How well campaigns improve agents, and how often they promote something worse, in the public
worlds of `../shared/bench/evolve`, whose truth is known; peers run there in the same run."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from anyio import to_thread
from evolution import layer_world, own_traps, program_world, prompt_world, recommender
from evolution.drift_world import run_stream
from evolution.stream import Stream
from report import Measure, note

FIRST = 20_000
"""The first seed; smaller ones were looked at while the settings were chosen."""
ROOT = Path(__file__).parent.parent
WORLDS = Path("shared/bench/evolve")
GEPA = "gepa==0.1.4"
NULL = {"q_good": 0.0, "q_distract": 0.55, "q_toxic": 0.2, "q_memo": 0.25}
"""A proposer that never proposes anything useful."""
MIX = {"prompt": 0.2, "skill": 0.2, "code": 0.15, "knowledge": 0.2, "finetune": 0.0} | {
    "flaky": 0.05,
    "grader": 0.03,
    "easy": 0.17,
}
World = Any  # the worlds are not typed
_RESAMPLES = 2_000


async def measure() -> list[Measure]:
    place = next((p / WORLDS for p in ROOT.parents if (p / WORLDS).is_dir()), None)
    if place is None:
        note(f"evolve needs ../{WORLDS}, which is not there: nothing was measured")
        return []
    return await to_thread.run_sync(_measure, place)


def _measure(place: Path) -> list[Measure]:
    sys.path.append(str(place))
    sys.path.append(str(_peer()))
    parts = (_prompt, _gated, _recommender, _loop, _stream, _drift, _traps)
    chosen = os.environ.get("EVOLVE", "").split()
    found: list[Measure] = []
    for part in parts:
        if not chosen or part.__name__.removeprefix("_") in chosen:
            note(f"  {part.__name__.removeprefix('_')} ...")
            found += part()
    return found


def _peer() -> Path:
    """The peer's package, installed beside the repository's own; nothing of ours imports it."""
    target = ROOT / ".bench" / "gepa"
    if not target.is_dir():
        note(f"installing {GEPA} ...")
        uv = [sys.executable, "-m", "uv", "pip", "install", "-q", "--target", str(target), GEPA]
        subprocess.run(uv, check=True)
    return target


def _shared(name: str) -> World:
    """A module of the worlds."""
    return import_module(name)


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the mean, by resampling."""
    rng = random.Random(1)
    means = sorted(fmean(rng.choices(values, k=len(values))) for _ in range(_RESAMPLES))
    return means[int(0.025 * _RESAMPLES)], means[int(0.975 * _RESAMPLES)]


def _mean(
    name: str, values: Sequence[float], target: str = "", *, scale: float = 100, unit: str = "%"
) -> Measure:
    low, high = _interval(values)
    detail = f"95 %: {low * scale:.1f} to {high * scale:.1f}, n={len(values)}"
    return Measure(name=name, value=fmean(values) * scale, unit=unit, target=target, detail=detail)


def _recovered(world: World, score: float) -> float:
    return (score - world.start()) / (world.optimum() - world.start())


def _prompt() -> Iterable[Measure]:
    facade, make = _shared("facade").PromptFacade, _shared("simworld").PromptWorld
    algorithms = _shared("optimizers").ALGOS
    for noise, bar in ((0.0, 80), (0.1, 78)):
        ours: list[float] = []
        peers: dict[str, list[float]] = {"gepa": [], "keep_revert": [], "metaprompt": []}
        seconds, calls = 0.0, 0
        for seed in range(FIRST, FIRST + 60):
            world = make(seed=seed, noise=noise)
            begin = time.process_time()
            prompt = prompt_world.search(facade(world, 600), 600, seed)
            seconds, calls = seconds + time.process_time() - begin, calls + world.calls
            ours.append(_recovered(world, world.true_score(prompt)))
            for name, results in peers.items():
                world = make(seed=seed, noise=noise)
                best, _ = algorithms[name](world, 600, seed)
                results.append(_recovered(world, world.true_score(best)))
        label = f"prompt, 600 calls, noise {noise:.0%}"
        yield _mean(label, ours, f">= {bar}")
        low = _interval(ours)[0] * 100
        yield Measure(name=f"{label}: lower bound", value=low, unit="%", target=">= 75")
        for name, results in peers.items():
            yield _mean(f"{label}: {name}", results)
        difference = [a - b for a, b in zip(ours, peers["gepa"], strict=True)]
        yield _mean(f"{label}: above gepa", difference, unit="points")
        low = _interval(difference)[0] * 100
        yield Measure(
            name=f"{label}: lower bound of it", value=low, unit="points", target=">= 0.01"
        )
        yield Measure(
            name=f"{label}: CPU a call, the world's included",
            value=1000 * seconds / calls,
            unit="ms",
            target="<= 1",
        )


def _gated() -> Iterable[Measure]:
    for is_null, runs in ((True, 500), (False, 100)):
        changes = [_promoted(seed, is_null=is_null) for seed in range(FIRST, FIRST + runs)]
        worse = [float(change < -1e-9) for change in changes]
        better = [float(change > 1e-9) for change in changes]
        world = "useless proposer" if is_null else "real proposer"
        yield _mean(f"gated, {world}: promoted worse", worse, "<= 2")
        yield _mean(f"gated, {world}: promoted better", better, "" if is_null else ">= 85")


def _promoted(seed: int, *, is_null: bool) -> float:
    """The change of the true score by what the gate promotes."""
    world = _shared("simworld").PromptWorld(seed=seed, noise=0.05, **(NULL if is_null else {}))
    facade = _shared("facade").PromptFacade(world, 400)
    prompt = prompt_world.improve(facade, 400, seed)
    return world.true_score(prompt) - world.start()


def _recommender() -> Iterable[Measure]:
    scenario, peers = _shared("bench_dispatch").scenario, _shared("dispatchers").DISPATCHERS
    choosers: dict[str, Callable[..., str]] = {"ours": recommender.recommended, **peers}
    right: dict[str, list[float]] = {name: [] for name in choosers}
    regrets: dict[str, list[float]] = {name: [] for name in choosers}
    nothing: list[float] = []
    for number in range(FIRST, FIRST + 300):
        world = scenario(number)
        first = world.seed_bundle
        records = [world.evaluate(first, task, epoch) for task in world.dev for epoch in (0, 1)]
        context = {"trajectories": world.trajectories, "corpus_available": True}
        best, gains = world.best_layer(first)
        for name, choose in choosers.items():
            chosen = choose(records, context)
            right[name].append(float(chosen == best))
            regrets[name].append(max(0.0, gains.get(best, 0)) - max(0.0, gains.get(chosen, 0)))
            if name == "ours" and number % 8 == 0:  # scenarios with nothing to fix
                nothing.append(float(chosen == "none"))
    yield _mean("recommender: right", right["ours"], ">= 78")
    yield _mean("recommender: regret", regrets["ours"], "<= 0.02", scale=1, unit="")
    yield _mean("recommender: nothing to fix is recognised", nothing, ">= 100")
    for name in peers:
        yield _mean(f"recommender: {name} right", right[name])


def _loop() -> Iterable[Measure]:
    algorithms, facade = _shared("bench_evolve").ALGOS, _shared("facade").LayerFacade
    ours: list[float] = []
    poisoned = broken = worse = 0
    peers: dict[str, list[float]] = {"gepa_all": [], "keep_revert": []}
    for seed in range(FIRST, FIRST + 40):
        world = _layers(seed)
        bundle = layer_world.improve(facade(world, 1000), 1000, seed)
        start = world.true_score(world.seed_bundle)
        ours.append(_gain(world, bundle))
        worse += world.true_score(bundle) < start - 1e-9
        poisoned += world.poison in bundle.index
        broken += _is_broken(bundle)
        for name, results in peers.items():
            world = _layers(seed)
            results.append(_gain(world, algorithms[name](world, 1000, seed)))
    yield _mean("whole loop, 1,000 calls", ours, ">= 78")
    for name, results in peers.items():
        yield _mean(f"whole loop: {name}", results)
    for name, count in {"below start": worse, "poisoned": poisoned, "crashing": broken}.items():
        yield Measure(name=f"whole loop: {name}", value=count, unit="runs", target="<= 0")


def _layers(seed: int) -> World:
    make = _shared("layerworld").LayerWorld
    world = make(seed=seed, mix=MIX, n_dev=80, n_hold=160, trajectories=120)
    world.gate = world.hold[:60]
    return world


def _gain(world: World, bundle: World) -> float:
    start, best = world.true_score(world.seed_bundle), world.true_score(world.optimum())
    return (world.true_score(bundle) - start) / (best - start)


def _is_broken(bundle: World) -> bool:
    try:
        for source in (bundle.harness, *(script for _, _, script in bundle.skills)):
            compile(source, "edit", "exec")
    except SyntaxError:
        return True
    return False


def _stream() -> Iterable[Measure]:
    bench_campaign = _shared("bench_campaign")
    bench_campaign.SUT = Stream
    for method in ("sut", "screen+confirm", "mcnemar.05", "greater"):
        runs = [bench_campaign.run(method, seed) for seed in range(FIRST, FIRST + 120)]
        label, is_ours = f"stream of 40, {method.replace('sut', 'ours')}", method == "sut"
        false = [bad / max(1, good + bad) for good, bad, *_ in runs]
        targets = ("<= 0.10", "<= 0.02", ">= 0.45", "<= 8000") if is_ours else ("",) * 4
        yield _mean(f"{label}: false discoveries", false, targets[0], scale=1, unit="")
        harmful = [float(run[2]) for run in runs]
        yield _mean(f"{label}: harmful a run", harmful, targets[1], scale=1, unit="")
        captured = sum(run[3] for run in runs) / sum(run[4] for run in runs)
        yield Measure(name=f"{label}: captured gain", value=captured, unit="", target=targets[2])
        most = float(max(run[5] for run in runs))
        yield Measure(name=f"{label}: most calls", value=most, unit="calls", target=targets[3])


def _drift() -> Iterable[Measure]:
    seeds = range(FIRST, FIRST + 400)
    healthy = [run_stream(seed, [0.85] * 1000) for seed in seeds]
    alarms = [float(count) for count, _ in healthy]
    yield _mean("drift: false alarms in 1,000 runs", alarms, "<= 0.5", scale=1, unit="")
    false = [float(at is not None) for _, at in healthy]
    yield _mean("drift: false rollbacks in 1,000 runs", false, "<= 0.05", scale=1, unit="")
    for rate, target in ((0.6, "<= 30"), (0.3, ""), (0.75, "")):
        found = [run_stream(seed, [0.85] * 100 + [rate] * 400)[1] or 500 for seed in seeds]
        delays = sorted(at - 100 for at in found if at > 100)
        yield Measure(
            name=f"drift: runs from 0.85 to {rate} until the rollback, median",
            value=delays[len(delays) // 2],
            unit="runs",
            target=target,
            detail=f"90 %: {delays[int(0.9 * len(delays))]}",
        )


def _traps() -> Iterable[Measure]:
    bench_traps = _shared("bench_traps")
    cases = [(case, bench_traps.gold(case)) for case in (*bench_traps.CASES, *bench_traps.HOLD)]
    sealed = len(bench_traps.HOLD)
    verdict = program_world.judge(
        lambda folder: program_world.write(folder, bench_traps.BASE, cases, sealed)
    )
    groups = {"public traps": bench_traps.TRAPS, "own traps": own_traps.TRAPS}
    with TemporaryDirectory() as place:
        os.chdir(place)
        for name, traps in groups.items():
            fooled = [trap for trap, source in traps.items() if verdict(source)[0] == "promote"]
            detail = f"of {len(traps)}: {', '.join(fooled) or 'none'}"
            count = float(len(fooled))
            yield Measure(
                name=f"{name} promoted", value=count, unit="", target="<= 0", detail=detail
            )
        honest = {**bench_traps.HONEST, "right": own_traps.RIGHT}
        refused = [name for name, source in honest.items() if verdict(source)[0] != "promote"]
        os.chdir(ROOT)
    detail = f"of {len(honest)}: {', '.join(refused) or 'none'}"
    yield Measure(
        name="honest controls refused", value=len(refused), unit="", target="<= 0", detail=detail
    )
