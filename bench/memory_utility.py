"""Whether what memories were worth helps to choose among them: a simulated stream of tasks.

Each task has five memories that resemble it, one or two of which help. Similarity is a hint: a
third of those that help are the most similar, one in fifteen is the least. Both choices see the
same tasks and the same luck. Rewards come 20 tasks late, and one in ten is wrong.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from statistics import fmean, stdev

from report import Measure

from mainspring.runtime.utility.ranking import CHOSEN, Utility, choose, reliability, with_reward

SEEDS = 30
TASKS = 1_200
INTENTS = 30
MEMORIES = 5
DELAY = 20
NOISE = 0.1
WITH_HELP, WITHOUT = 0.85, 0.35
T_95 = 2.045  # two-sided, 29 degrees of freedom


@dataclass(frozen=True, slots=True)
class Intent:
    similarity: list[float]
    helps: list[bool]


async def measure() -> list[Measure]:
    honest = [_difference(seed, is_random=False) for seed in range(SEEDS)]
    luck = [_difference(seed, is_random=True) for seed in range(SEEDS)]
    low, high = _interval(honest)
    random_low, random_high = _interval(luck)
    return [
        Measure(
            name="memory, success by utility over similarity",
            value=fmean(honest),
            unit="points",
            target=">= 5",
            detail=f"95 % interval {low:.1f} to {high:.1f}; {SEEDS} seeds, {TASKS:,} tasks each",
        ),
        Measure(name="memory, utility, lower bound", value=low, unit="points", target=">= 0"),
        Measure(
            name="memory, the same with random rewards",
            value=random_high,
            unit="points",
            target=">= 0",
            detail=f"upper bound; mean {fmean(luck):.2f}, lower bound {random_low:.2f}",
        ),
    ]


def _difference(seed: int, *, is_random: bool) -> float:
    """Percentage points of success that utility adds on one stream."""
    draw = random.Random(seed)
    intents = [_intent(draw) for _ in range(INTENTS)]
    tasks = [(draw.randrange(INTENTS), draw.random(), draw.random()) for _ in range(TASKS)]
    learned = _run(intents, tasks, draw, is_random=is_random)
    plain = sum(_succeeds(intents[at], range(CHOSEN), luck) for at, luck, _ in tasks)
    return 100 * (learned - plain) / TASKS


def _intent(draw: random.Random) -> Intent:
    similarity = sorted((draw.uniform(0.5, 1.0) for _ in range(MEMORIES)), reverse=True)
    likely = [at for at in range(MEMORIES) for _ in range(MEMORIES - at)]
    helpful = {draw.choice(likely) for _ in range(draw.choice((1, 2)))}
    return Intent(similarity, [at in helpful for at in range(MEMORIES)])


def _run(
    intents: list[Intent],
    tasks: list[tuple[int, float, float]],
    draw: random.Random,
    *,
    is_random: bool,
) -> int:
    values: dict[tuple[int, int], Utility] = {}
    late: deque[tuple[int, list[tuple[int, int]], float]] = deque()
    successes = 0
    for now, (at, luck, noise) in enumerate(tasks):
        while late and late[0][0] <= now:
            _, subjects, reward = late.popleft()
            for subject in subjects:
                values[subject] = with_reward(values.get(subject, Utility()), reward)
        intent = intents[at]
        candidates = [
            (memory, intent.similarity[memory], values.get((at, memory), Utility()))
            for memory in range(MEMORIES)
        ]
        shown = [memory for memory, _ in choose(candidates, reliability(values.values()))]
        success = _succeeds(intent, shown, luck)
        successes += success
        reward = float(success if noise > NOISE else not success)
        if is_random:
            reward = float(draw.random() < 0.5)
        late.append((now + DELAY, [(at, memory) for memory in shown], reward))
    return successes


def _succeeds(intent: Intent, shown: range | list[int], luck: float) -> bool:
    return luck < (WITH_HELP if any(intent.helps[memory] for memory in shown) else WITHOUT)


def _interval(differences: list[float]) -> tuple[float, float]:
    half = T_95 * stdev(differences) / len(differences) ** 0.5
    return fmean(differences) - half, fmean(differences) + half
