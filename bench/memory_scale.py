"""What search and writing cost with many passages. Each size in a process of its own, so that the
memory it takes is its own.
"""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from report import Measure, percentile

from mainspring.retrieval.passage_index import ARRAYS_FROM, Container, Passage, PassageIndex
from mainspring.retrieval.passage_vectors import PassageVectors
from mainspring.retrieval.sqlite_passages import SqlitePassages
from mainspring.retrieval.static_vectors import read_static_table

SIZES = (10_000, 100_000)
TARGETS = {  # without numpy, with it, and with vectors: p50, p99, indexing
    (10_000, "core"): ("<= 20", "", "<= 5"),
    (100_000, "core"): ("<= 50", "", "<= 45"),
    (10_000, "numpy"): ("<= 5", "<= 15", "<= 5"),
    (100_000, "numpy"): ("<= 30", "", "<= 45"),
    (10_000, "vectors"): ("<= 5", "<= 15", ""),
    (100_000, "vectors"): ("<= 30", "", "<= 90"),
}
PER_CONTAINER = 20
BATCH = 500
WORDS = 20_000
WORDS_A_PASSAGE = 14
FIRST = 2  # the second reads the passages into memory
QUERIES = 200
WRITES = 300
CHANGES = 30


def scale_measures(table: Path | None) -> list[Measure]:
    kinds = [kind for size, kind in TARGETS if size == SIZES[0] and (table or kind != "vectors")]
    return [measure for size in SIZES for kind in kinds for measure in _of_size(size, kind, table)]


def _of_size(size: int, kind: str, table: Path | None) -> list[Measure]:
    command = [sys.executable, __file__, str(size), kind, str(table)]
    printed = subprocess.run(command, check=True, capture_output=True, timeout=1200).stdout
    values: dict[str, float] = json.loads(printed)
    p50, p99, build = TARGETS[size, kind]
    name = f"memory, {size:,} passages, {kind}"
    return [
        Measure(name=f"{name}, search p50", value=values["p50"], unit="ms CPU", target=p50),
        Measure(name=f"{name}, search p99", value=values["p99"], unit="ms CPU", target=p99),
        Measure(name=f"{name}, first searches", value=values["first"], unit="ms CPU"),
        Measure(name=f"{name}, search after a write", value=values["changed"], unit="ms CPU"),
        Measure(name=f"{name}, write p99", value=values["write"], unit="ms CPU", target="<= 5"),
        Measure(name=f"{name}, index", value=values["build"], unit="s CPU", target=build),
        Measure(name=f"{name}, above idle", value=values["rss"], unit="MB", target="<= 150"),
    ]


def _measured(size: int, kind: str, place: Path, table: Path) -> dict[str, float]:
    chance = random.Random(7)
    vocabulary = [f"{chance.choice('bcdfglmnprst')}{number:x}" for number in range(WORDS)]
    vectors = None
    if kind == "vectors":
        vocabulary = _words(table)
        vectors = PassageVectors(read_static_table(table))
    shares = [1 / (rank + 10) for rank in range(len(vocabulary))]  # a few are in most texts

    def text() -> str:
        return " ".join(chance.choices(vocabulary, shares, k=WORDS_A_PASSAGE))

    def container(name: str, count: int) -> Container:
        passages = [Passage(text=text()) for _ in range(count)]
        return Container(scope="agent", name=name, hash="", passages=passages)

    index = PassageIndex(
        SqlitePassages(place / "index.db"),
        vectors=vectors,
        arrays_from=math.inf if kind == "core" else ARRAYS_FROM,
    )
    idle, build, containers = _rss(), 0.0, size // PER_CONTAINER
    for start in range(0, containers, BATCH):
        end = min(containers, start + BATCH)
        batch = [container(str(at), PER_CONTAINER) for at in range(start, end)]
        began = time.process_time()
        index.put(*batch)
        build += time.process_time() - began

    def search_seconds() -> float:
        query = " ".join(chance.choices(vocabulary, shares, k=6))
        began = time.process_time()
        index.search(query, ["agent"], 10)
        return time.process_time() - began

    first = [search_seconds() for _ in range(FIRST)]
    search = [search_seconds() for _ in range(QUERIES)]
    writes: list[float] = []
    for at in range(WRITES):
        new = container(f"new {at}", 1)
        began = time.process_time()
        index.put(new)
        writes.append(time.process_time() - began)
    changed: list[float] = []
    for at in range(CHANGES):
        index.put(container(f"changed {at}", 1))
        changed.append(search_seconds())
    return {
        "first": 1000 * sum(first),
        "changed": 1000 * percentile(changed, 50),
        "p50": 1000 * percentile(search, 50),
        "p99": 1000 * percentile(search, 99),
        "write": 1000 * percentile(writes, 99),
        "build": build,
        "rss": _rss() - idle,
    }


def _words(table: Path) -> list[str]:
    with np.load(table, allow_pickle=False) as stored:
        pieces = bytes(stored["vocab"]).decode().split("\n")
    return [piece for piece in pieces if piece.isalpha()][:WORDS]


def _rss() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        size, kind, table = sys.argv[1:]
        print(json.dumps(_measured(int(size), kind, Path(folder), Path(table))))
