"""How long a small program takes in the interpreter: the first one, then others."""

from __future__ import annotations

import time

from report import Measure, median, percentile

from mainspring.capabilities.monty.interpreter import Interpreter

ROUNDS = 1000
CODE = "import json\nsum(json.loads('[1, 2, 3]'))"


async def measure() -> list[Measure]:
    async with Interpreter(processes=1) as interpreter:
        first = await _milliseconds(interpreter)
        warm = [await _milliseconds(interpreter) for _ in range(ROUNDS)]
    p99 = percentile(warm, 99)
    return [
        Measure(name="python, first program", value=first, unit="ms"),
        Measure(
            name="python, warm, p50",
            value=median(warm),
            unit="ms",
            target="<= 1",
            detail=f"p99 {p99:.2f} ms",
        ),
    ]


async def _milliseconds(interpreter: Interpreter) -> float:
    begun = time.perf_counter()
    finished = await interpreter.run(CODE)
    taken = (time.perf_counter() - begun) * 1000
    if finished.value != "6":
        raise AssertionError(finished)
    return taken
