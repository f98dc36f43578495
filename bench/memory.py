"""How well memory finds evidence, without a model: in LoCoMo, and in notes of one fact."""

from __future__ import annotations

import gzip
import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import memory_utility
from report import Measure, note, percentile

from mainspring.core.sender import Sender
from mainspring.retrieval.passage_index import Container, Passage, PassageIndex
from mainspring.runtime.memory.memory_folder import MemoryFolder
from mainspring.runtime.memory.memory_index import MemoryIndex
from mainspring.runtime.memory.memory_versions import Change
from mainspring.runtime.memory.note import Note, note_path

DATA = "shared/data/locomo/locomo7.json.gz"
ADVERSARIAL = 5
BYTES_PER_TOKEN = 4.2  # of this text, as WordPiece cuts it
NOTE_TOKENS = 8  # for where a note comes from and its date


@dataclass(frozen=True, slots=True)
class Turn:
    id: str
    session: int
    speaker: str
    text: str
    time: datetime


@dataclass(frozen=True, slots=True)
class Evidence:
    question: str
    turns: frozenset[str]


@dataclass(frozen=True, slots=True)
class Conversation:
    turns: list[Turn]
    questions: list[Evidence]


async def measure() -> list[Measure]:
    return [*_conversation_measures(), *_note_measures(), *await memory_utility.measure()]


def _conversation_measures() -> list[Measure]:
    file = next((at / DATA for at in Path(__file__).parents if (at / DATA).exists()), None)
    if file is None:
        note(f"skipped LoCoMo: {DATA} is in no folder above this one")
        return []
    conversations = list(_conversations(file))
    found = [ranked for each in conversations for ranked in _answers(each)]
    seconds = [ranked.seconds for ranked in found]
    detail = f"{len(found):,} questions, 7 conversations; the weights were fitted on them"
    return [
        Measure(
            name="memory, LoCoMo R@10",
            value=_recall(found, 10),
            unit="%",
            target=">= 78",
            detail=detail,
        ),
        Measure(name="memory, LoCoMo R@5", value=_recall(found, 5), unit="%", target=">= 71"),
        Measure(
            name="memory, LoCoMo MRR",
            value=100 * sum(ranked.reciprocal for ranked in found) / len(found),
            unit="%",
            target=">= 63",
        ),
        *(
            Measure(
                name=f"memory, evidence in {tokens:,} tokens",
                value=100 * sum(ranked.within(tokens) for ranked in found) / len(found),
                unit="%",
                target=target,
            )
            for tokens, target in ((500, ">= 78"), (1000, ">= 84"))
        ),
        Measure(name="memory, search p50", value=1000 * percentile(seconds, 50), unit="ms CPU"),
        Measure(name="memory, search p99", value=1000 * percentile(seconds, 99), unit="ms CPU"),
    ]


@dataclass(frozen=True, slots=True)
class Ranked:
    evidence: frozenset[str]
    turns: list[str]
    tokens: list[float]
    seconds: float

    def recall(self, limit: int) -> float:
        return len(self.evidence & set(self.turns[:limit])) / len(self.evidence)

    @property
    def reciprocal(self) -> float:
        places = (1 / at for at, turn in enumerate(self.turns, 1) if turn in self.evidence)
        return next(places, 0.0)

    def within(self, tokens: int) -> float:
        fitting, left = 0, float(tokens)
        for size in self.tokens:
            left -= size
            if left < 0:
                break
            fitting += 1
        return self.recall(fitting)


def _recall(found: Sequence[Ranked], limit: int) -> float:
    return 100 * sum(ranked.recall(limit) for ranked in found) / len(found)


def _answers(conversation: Conversation) -> Iterator[Ranked]:
    sessions: dict[str, list[Turn]] = {}
    for turn in conversation.turns:
        sessions.setdefault(str(turn.session), []).append(turn)
    index = PassageIndex(None)
    index.put(
        *(
            Container(
                scope="agent",
                name=name,
                hash="",
                passages=[
                    Passage(title=turn.speaker, text=turn.text, author=turn.speaker, time=turn.time)
                    for turn in turns
                ],
            )
            for name, turns in sessions.items()
        )
    )
    for item in conversation.questions:
        began = time.process_time()
        hits = index.search(item.question, ["agent"], 60)
        spent = time.process_time() - began
        turns = [sessions[hit.container][hit.position] for hit in hits]
        sizes = [
            len(f"{turn.speaker}: {turn.text}".encode()) / BYTES_PER_TOKEN + NOTE_TOKENS
            for turn in turns
        ]
        yield Ranked(item.turns, [turn.id for turn in turns], sizes, spent)


def _conversations(file: Path) -> Iterator[Conversation]:
    with gzip.open(file, "rt") as opened:
        samples: list[dict[str, Any]] = json.load(opened)  # Any: the shape of the data set
    for sample in samples:
        turns = list(_turns(sample["conversation"]))
        known = {turn.id for turn in turns}
        questions = [
            Evidence(item["question"], frozenset(ids & known))
            for item in sample["qa"]
            if item["category"] != ADVERSARIAL
            and (ids := set(_turn_ids(item.get("evidence") or [])))
            and ids & known
        ]
        yield Conversation(turns, questions)


def _turns(conversation: dict[str, Any]) -> Iterator[Turn]:
    for number in count(1):
        turns = conversation.get(f"session_{number}")
        if turns is None:
            if number > 60:  # numbers may be left out
                return
            continue
        written = conversation[f"session_{number}_date_time"].replace(",", "")
        moment = datetime.strptime(written, "%I:%M %p on %d %B %Y").replace(tzinfo=UTC)
        for turn in turns:
            caption = turn.get("blip_caption")
            text = f"{turn['text']} [shared photo: {caption}]" if caption else turn["text"]
            yield Turn(turn["dia_id"], number, turn["speaker"], text, moment)


def _turn_ids(evidence: list[str]) -> Iterator[str]:
    for written in evidence:
        for session, turn in re.findall(r"D:?(\d+):(\d+)", written):
            yield f"D{int(session)}:{int(turn)}"


# A generated project: facts as somebody would note them, and questions in other words.
FACTS = {
    "port": ("{name} listens on port {value}.", "Which number do clients of {name} connect to?"),
    "owner": ("{value} is responsible for {name}.", "Whom do I ask about problems with {name}?"),
    "store": ("{name} keeps its data in {value}.", "Where does {name} save what it knows?"),
    "language": ("{name} is written in {value}.", "What was {name} programmed with?"),
    "window": ("Deploy {name} only on {value}.", "When may a new {name} be rolled out?"),
    "limit": ("{name} accepts {value} requests a second.", "How much traffic can {name} take?"),
    "backup": ("Backups of {name} run at {value}.", "At what hour is {name} copied for safety?"),
    "queue": ("{name} publishes to the queue {value}.", "Where do messages of {name} go?"),
    "region": ("{name} is hosted in {value}.", "In which place does {name} physically run?"),
    "alert": ("Alerts of {name} page {value}.", "Who is called at night if {name} breaks?"),
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


def _note_measures() -> list[Measure]:
    questions: list[tuple[str, str]] = []
    numbers = count(1)
    with TemporaryDirectory() as place:
        folder = MemoryFolder(
            Path(place),
            clock=lambda: datetime(2026, 5, 1, tzinfo=UTC),
            new_id=lambda kind: f"{kind}_{next(numbers):08}",
        )
        change = Change(author=Sender(kind="person", id="bench"), reason="measured")
        for service in NAMES:
            for kind, (fact, question) in FACTS.items():
                value = f"{service[:3]}{kind[:2]}{len(questions)}"
                title = f"{service} {kind}"
                item = Note(
                    path=note_path("project", title),
                    body=fact.format(name=f"the service {service}", value=value),
                    name=title,
                    type="project",
                )
                folder.write(item.path, item.body, change)
                questions.append((question.format(name=f"the {service} service"), item.path))
        index = MemoryIndex({"agent": folder})
        ranks = [_rank(index, question, path) for question, path in questions]
    return [
        Measure(
            name=f"memory, notes of one fact, first {limit}",
            value=100 * sum(rank < limit for rank in ranks) / len(ranks),
            unit="%",
            detail=f"{len(ranks)} notes, questions in other words" if limit == 1 else "",
        )
        for limit in (1, 5, 10)
    ]


def _rank(index: MemoryIndex, question: str, path: str) -> int:
    paths = [hit.note.path for hit in index.search(question, ["agent"], 10)]
    return paths.index(path) if path in paths else len(paths) + 99
