"""What a token of a reply costs at a terminal: rendering alone, on a real pty, at the beginning of
a long reply and at its end; and how soon the first hits of an `@` completion come.
"""

from __future__ import annotations

import os
import pty
import sys
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import cycle, islice

from report import Measure, median, percentile

from mainspring.config import read_settings
from mainspring.core.model import TextDelta
from mainspring.edges.cli.render.renderer import TerminalRenderer
from mainspring.edges.cli.run.file_index import FileIndex

TOKENS, WINDOW, ROUNDS = 20_000, 1_000, 5
MAX_RATIO = 1.2
PATHS, FIRST_HITS, MAX_HITS_MS = 270_000, 10, 10
TYPED = ("", "s", "se", "serv", "service_12", "src/area3/", "module99/ha", "dler_26999", "_26999")
"""The last two are no beginnings of names: all paths are searched for them."""
_MIXED = (
    "Here is what I found about the **release**, in a paragraph of some length that wraps.\n\n"
    "1. the first item, with `code`\n2. the second item\n   - an inner one\n3. the third\n\n"
    "```py\ndef price(net: float) -> float:\n    return net * 1.19\n```\n\n"
    "| version | what |\n|---|---|\n| 1.4.0 | resuming |\n\n"
)
REPLIES = {
    "mixed blocks": _MIXED,
    "one list": "- an item of a long list, with **some** words in it\n",
    "one paragraph": "word after word of a paragraph that never ends, ",
    "one code block": "    total = total + price(item)  # and so on\n",
}
_OPENINGS = {"one code block": "```py\n"}


async def measure() -> list[Measure]:
    return [*(_ratio(name, text) for name, text in REPLIES.items()), _completion()]


def _completion() -> Measure:
    """With names as a large repository has them; what is typed is found often, rarely or not."""
    index = FileIndex()
    index.add(_paths())
    index.finish()
    seconds: list[float] = []
    for _ in range(ROUNDS):
        for typed in TYPED:
            begun = time.thread_time()
            hits = [*islice(index.search(typed), FIRST_HITS)]
            seconds.append(time.thread_time() - begun)
            assert hits, typed  # of the last two, few
    return Measure(
        name=f"first {FIRST_HITS} hits of an @ completion over {PATHS:,} paths, CPU, p95",
        value=percentile(seconds, 95) * 1000,
        unit="ms",
        target=f"<= {MAX_HITS_MS}",
        detail=f"p50 {median(seconds) * 1000:.2f} ms",
    )


def _paths() -> Iterator[str]:
    kinds = ("service", "handler", "model", "view", "test", "index")
    for number in range(PATHS):
        area, module = number % 37, number // 100
        yield f"src/area{area}/module{module}/{kinds[number % 6]}_{number}.py"


def _ratio(name: str, text: str) -> Measure:
    early, late = zip(*(_windows(name, text) for _ in range(ROUNDS)), strict=True)
    value = median([end / begin for begin, end in zip(early, late, strict=True)])
    return Measure(
        name=f"CPU of a token at a terminal, {TOKENS:,}th to {WINDOW:,}th, {name}",
        value=value,
        unit="x",
        target=f"<= {MAX_RATIO}",
        detail=f"{median([*late]) * 1e6 / WINDOW:.0f} us a token at the end",
    )


def _windows(name: str, text: str) -> tuple[float, float]:
    """CPU seconds of the 1,000 tokens from the 1,000th, and of those before the 20,000th."""
    begun: dict[int, float] = {}
    with _terminal():
        renderer = TerminalRenderer(read_settings(store=None, debug=False))
        renderer.delta(TextDelta(_OPENINGS.get(name, "")))
        for index, token in enumerate(_tokens(text)):
            if index in (WINDOW, 2 * WINDOW, TOKENS - WINDOW):
                begun[index] = time.thread_time()
            renderer.delta(TextDelta(token))
        ended = time.thread_time()
        renderer.close()
    return begun[2 * WINDOW] - begun[WINDOW], ended - begun[TOKENS - WINDOW]


def _tokens(text: str) -> Iterator[str]:
    """About four characters each, as models send them."""
    pieces = [text[start : start + 4] for start in range(0, len(text), 4)]
    return islice(cycle(pieces), TOKENS)


@contextmanager
def _terminal() -> Generator[None]:
    """Standard output is a terminal of 100 columns; a thread reads what comes and drops it."""
    ours, theirs = pty.openpty()
    os.environ["COLUMNS"], os.environ["LINES"] = "100", "40"
    reader = threading.Thread(target=_drain, args=(ours,), daemon=True)
    reader.start()
    before = sys.stdout
    with os.fdopen(theirs, "w") as sys.stdout:
        yield
    sys.stdout = before
    reader.join()
    os.close(ours)


def _drain(handle: int) -> None:
    try:
        while os.read(handle, 1 << 16):
            pass
    except OSError:  # how Linux says that the other end is closed
        pass
