"""What a search costs through the path of `memory_search`, beside the class in the same run: 10,000
memories in files, an index that the process keeps open, 200 questions."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from report import Measure

from mainspring.core import clock, ids
from mainspring.retrieval.passage_index import Container, Passage, PassageIndex
from mainspring.retrieval.passage_vectors import PassageVectors
from mainspring.retrieval.sqlite_passages import SqlitePassages
from mainspring.retrieval.static_vectors import read_static_table
from mainspring.runtime.memory.memory_folder import MemoryFolder
from mainspring.runtime.memory.search.index_files import IndexFiles

NOTES = 10_000
QUESTIONS = 200
BATCH = 500
FOUND = 10
PASSAGES = 40  # the class is asked for as many as the tool asks it for
WARM_UP = 3


def tool_measures(table: Path | None) -> list[Measure]:
    measures = _measures("words", None)
    return measures if table is None else [*measures, *_measures("words and vectors", table)]


def _measures(name: str, table: Path | None) -> list[Measure]:
    draw = random.Random(3)
    vocabulary = [f"word{number}" for number in range(4_000)]
    bodies = [" ".join(draw.choices(vocabulary, k=14)) for _ in range(NOTES)]
    questions = [" ".join(draw.choices(vocabulary, k=5)) for _ in range(QUESTIONS)]

    def vectors() -> PassageVectors | None:
        return None if table is None else PassageVectors(read_static_table(table))

    with TemporaryDirectory() as place:
        root = Path(place) / "memory"
        root.mkdir()
        for number, body in enumerate(bodies):
            text = f"---\nname: note {number}\ntype: project\n---\n\n{body}\n"
            (root / f"project_{number}.md").write_text(text)
        folder = MemoryFolder(root, clock=clock.now, new_id=ids.new_id)
        files = IndexFiles(Path(place), vectors)
        index = PassageIndex(SqlitePassages(Path(place) / "class.db"), vectors=vectors())
        containers = [
            Container(
                scope="agent",
                name=str(number),
                hash="1",
                passages=[Passage(title=f"note {number}", text=body)],
            )
            for number, body in enumerate(bodies)
        ]
        for start in range(0, NOTES, BATCH):
            index.put(*containers[start : start + BATCH])

        def through_the_tool(question: str) -> object:
            with files.borrow({"agent": folder}) as own:
                return own.search(question, ["agent"], FOUND)

        by_class = _median_ms(
            lambda question: index.search(question, ["agent"], PASSAGES), questions
        )
        by_tool = _median_ms(through_the_tool, questions)
        files.open_indexes.close()
        index.close()
    title = f"memory, {NOTES:,} notes, by {name}"
    return [
        Measure(name=f"{title}, the class, p50", value=by_class, unit="ms CPU"),
        Measure(name=f"{title}, through the tool, p50", value=by_tool, unit="ms CPU"),
        Measure(
            name=f"{title}, through the tool", value=by_tool / by_class, unit="x", target="<= 1.5"
        ),
    ]


def _median_ms(search: Callable[[str], object], questions: Sequence[str]) -> float:
    for question in questions[:WARM_UP]:
        search(question)
    seconds: list[float] = []
    for question in questions:
        began = time.process_time()
        search(question)
        seconds.append(time.process_time() - began)
    return 1_000 * median(seconds)
