"""How well memory finds one of 500 notes of one fact each: a generated project without the cues of
a conversation. A question either shares a word with the fact, or only the subject with all ten
notes about it. Without vectors the second kind can find only the subject.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from report import Measure

from mainspring.core.sender import Sender
from mainspring.retrieval.passage_index import Vectors
from mainspring.retrieval.passage_vectors import PassageVectors
from mainspring.retrieval.static_vectors import read_static_table
from mainspring.runtime.memory.memory_folder import MemoryFolder
from mainspring.runtime.memory.memory_versions import Change
from mainspring.runtime.memory.note import Note, note_path
from mainspring.runtime.memory.search.memory_index import MemoryIndex

# a fact as somebody would note it; a question that shares a word with it; one in other words only
FACTS = {
    "port": (
        "{name} listens on port {value}.",
        "What is the port number of {name}?",
        "Which number do clients of {name} connect to?",
    ),
    "owner": (
        "{value} is responsible for {name}.",
        "Who has the responsibility for {name}?",
        "Whom do I ask about problems with {name}?",
    ),
    "store": (
        "{name} keeps its data in {value}.",
        "In which database is the data of {name}?",
        "Where does {name} save what it knows?",
    ),
    "language": (
        "{name} is written in {value}.",
        "Which programming language was {name} written with?",
        "What was {name} programmed with?",
    ),
    "window": (
        "Deploy {name} only on {value}.",
        "On which days is a deployment of {name} fine?",
        "When may a new {name} be rolled out?",
    ),
    "limit": (
        "{name} accepts {value} requests a second.",
        "How many requests per second does {name} handle?",
        "How much traffic can {name} take?",
    ),
    "backup": (
        "Backups of {name} run at {value}.",
        "When is the nightly backup of {name} made?",
        "At what hour is {name} copied for safety?",
    ),
    "queue": (
        "{name} publishes to the queue {value}.",
        "What is the queue called that {name} writes to?",
        "Where do messages of {name} go?",
    ),
    "region": (
        "{name} is hosted in {value}.",
        "Which data centre is the host of {name}?",
        "In which place does {name} physically run?",
    ),
    "alert": (
        "Alerts of {name} page {value}.",
        "Who gets the alert when {name} is down?",
        "Who is called at night if {name} breaks?",
    ),
}
NAMES = (
    *("billing", "checkout", "catalogue", "search", "login", "mailer", "reports", "ledger"),
    *("shipping", "returns", "pricing", "loyalty", "reviews", "gateway", "scheduler", "importer"),
    *("exporter", "archive", "thumbnails", "translations", "notifier", "tax", "fraud", "support"),
    *(
        "analytics",
        "sessions",
        "consent",
        "vouchers",
        "wishlist",
        "inventory",
        "sourcing",
        "labels",
    ),
    *("carriers", "tracking", "refunds", "payouts", "invoices", "dunning", "contracts", "quotas"),
    *("partners", "feeds", "crawler", "ranking", "suggest", "profiles", "avatars", "exchange"),
    *("metering", "audit"),
)


def note_measures(table: Path | None) -> list[Measure]:
    numbers = count(1)
    change = Change(author=Sender(kind="person", id="bench"), reason="measured")
    questions: tuple[list[tuple[str, str]], ...] = ([], [])
    with TemporaryDirectory() as place:
        folder = MemoryFolder(
            Path(place),
            clock=lambda: datetime(2026, 5, 1, tzinfo=UTC),
            new_id=lambda kind: f"{kind}_{next(numbers):08}",
        )
        for service in NAMES:
            for kind, (fact, *asked) in FACTS.items():
                value = f"{service[:3]}{kind[:2]}{next(numbers)}"
                path = note_path("project", f"{service} {next(numbers)}")
                body = fact.format(name=f"the service {service}", value=value)
                folder.write(path, Note(path=path, body=body).body, change)
                for several, question in zip(questions, asked, strict=True):
                    several.append((question.format(name=f"the {service} service"), path))
        measures = _measures("words", folder, None, questions)
        if table is not None:
            vectors = PassageVectors(read_static_table(table))
            measures += _measures("words and vectors", folder, vectors, questions)
    return measures


def _measures(
    name: str,
    folder: MemoryFolder,
    vectors: Vectors | None,
    questions: Sequence[list[tuple[str, str]]],
) -> list[Measure]:
    index = MemoryIndex({"agent": folder}, vectors=vectors)
    measures: list[Measure] = []
    for kind, asked in zip(("a shared word", "other words"), questions, strict=True):
        ranks = [_rank(index, question, path) for question, path in asked]
        measures += [
            Measure(
                name=f"memory, one fact a note by {name}, {kind}, first {limit}",
                value=100 * sum(rank < limit for rank in ranks) / len(ranks),
                unit="%",
                detail=f"{len(ranks)} notes, ten a subject" if limit == 1 else "",
            )
            for limit in (1, 5)
        ]
    return measures


def _rank(index: MemoryIndex, question: str, path: str) -> int:
    paths = [hit.note.path for hit in index.search(question, ["agent"], 10)]
    return paths.index(path) if path in paths else len(paths) + 99
