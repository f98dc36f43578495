"""A flame graph of 64 sessions at work: `python bench/flame.py OUT.svg [TURNS]`.

A thread looks at the event loop's stack every 2 ms. What waits for the network is left out.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from types import FrameType
from zlib import crc32

import anyio
import turns
from report import note

SECONDS = 0.002
WIDTH, ROW = 1600.0, 16
_LEAST = 0.3
"""Pixels below which a frame is not drawn."""


class Sampler(threading.Thread):
    """Stacks of the thread that made it, outermost first, and how often each was seen."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.stacks: Counter[tuple[str, ...]] = Counter()
        self._observed = threading.get_ident()
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(SECONDS):
            stack = _stack(sys._current_frames().get(self._observed))
            if stack and not stack[-1].startswith("select "):
                self.stacks[stack] += 1

    def stop(self) -> None:
        self._stopped.set()
        self.join()


def _stack(frame: FrameType | None) -> tuple[str, ...]:
    names: list[str] = []
    while frame is not None:
        code = frame.f_code
        file = code.co_filename.rpartition("site-packages/")[2].rpartition("/src/")[2]
        names.append(f"{code.co_qualname} ({file})")
        frame = frame.f_back
    return tuple(reversed(names))


@dataclass(slots=True)
class Node:
    count: int = 0
    below: dict[str, Node] = field(default_factory=dict[str, "Node"])

    def add(self, stack: tuple[str, ...], count: int) -> None:
        node = self
        node.count += count
        for name in stack:
            node = node.below.setdefault(name, Node())
            node.count += count


def svg(stacks: Counter[tuple[str, ...]]) -> str:
    root = Node()
    for stack, count in stacks.items():
        root.add(stack, count)
    boxes: list[str] = []
    scale = WIDTH / max(1, root.count)

    def draw(node: Node, left: float, depth: int) -> int:
        deepest = depth
        for name, child in sorted(node.below.items()):
            width = child.count * scale
            if width >= _LEAST:
                boxes.append(_box(name, left, depth * ROW, width, child.count / root.count))
                deepest = max(deepest, draw(child, left, depth + 1))
            left += width
        return deepest

    height = (draw(root, 0.0, 0) + 1) * ROW
    style = "<style>text{font:11px monospace;pointer-events:none}rect{stroke:#fff}</style>"
    frame = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH:.0f}" height="{height}">'
    return "\n".join([frame, style, *boxes, "</svg>"])


def _box(name: str, left: float, top: int, width: float, share: float) -> str:
    hue = crc32(name.encode()) % 50
    shown = escape(name[: int(width / 7)])
    return (
        f'<g><title>{escape(name)}: {share:.1%}</title><rect x="{left:.1f}" y="{top}"'
        f' width="{width:.1f}" height="{ROW}" fill="hsl({hue},80%,65%)"/>'
        f'<text x="{left + 3:.1f}" y="{top + 12}">{shown}</text></g>'
    )


async def sampled(rounds: int) -> Counter[tuple[str, ...]]:
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder, "bench.db"))
        async with turns.serving() as url, turns.runtime_at(url, store) as runtime:
            await turns.one(runtime, 3)
            sampler = Sampler()
            sampler.start()
            for _ in range(rounds):
                await turns.crowd(runtime)
            sampler.stop()
            return sampler.stacks


def main() -> None:
    out = Path(sys.argv[1])
    found = anyio.run(sampled, int(sys.argv[2]) if len(sys.argv) > 2 else 3)
    out.write_text(svg(found), encoding="utf-8")
    note(f"{sum(found.values())} samples in {out}")


if __name__ == "__main__":
    main()
