"""How well memory finds evidence in LoCoMo, without a model; in notes of one fact; and at scale."""

from __future__ import annotations

import gzip
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import memory_utility
import numpy as np
from memory_notes import note_measures
from memory_paths import search_past_sessions
from memory_scale import scale_measures
from memory_tool import tool_measures
from memory_weights import Example, fit
from report import Measure, note, percentile

from mainspring.retrieval.passage_index import Container, Passage, PassageIndex
from mainspring.retrieval.passage_vectors import PassageVectors
from mainspring.retrieval.passage_weights import VECTOR_WEIGHTS, WEIGHTS
from mainspring.retrieval.sqlite_passages import SqlitePassages
from mainspring.retrieval.static_vectors import Encoder, read_static_table

DATA = "shared/data/locomo/locomo7.json.gz"
TABLE = "shared/data/vectors/potion-base-8M-int8-128.npz"
CORE_TARGETS = (">= 78", ">= 71", ">= 63", ">= 78", ">= 84")
VECTOR_TARGETS = (">= 82.5", ">= 75.5", ">= 65", ">= 78", ">= 84")
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
class MemoryEvidence:
    question: str
    turns: frozenset[str]


@dataclass(frozen=True, slots=True)
class Conversation:
    turns: list[Turn]
    questions: list[MemoryEvidence]


async def measure() -> list[Measure]:
    return [
        *_conversation_measures(),
        *await _path_measures(),
        *note_measures(_data(TABLE)),
        *scale_measures(_data(TABLE)),
        *tool_measures(_data(TABLE)),
        *await memory_utility.measure(),
    ]


def _data(path: str) -> Path | None:
    file = next((at / path for at in Path(__file__).parents if (at / path).exists()), None)
    if file is None:
        note(f"skipped: {path} is in no folder above this one")
    return file


def _conversation_measures() -> list[Measure]:
    file = _data(DATA)
    if file is None:
        return []
    conversations = list(_conversations(file))
    words = _leave_one_out(conversations, None, WEIGHTS)
    measures = _measures("words", words, CORE_TARGETS)
    if (table := _data(TABLE)) is None:
        return measures
    encoder = read_static_table(table)
    near = _leave_one_out(conversations, encoder, VECTOR_WEIGHTS)
    return [*measures, *_measures("words and vectors", near, VECTOR_TARGETS)]


async def _path_measures() -> list[Measure]:
    """Past sessions as `memory search --scope session` finds them, and the class beside it."""
    if (file := _data(DATA)) is None:
        return []
    found: list[Ranked] = []
    beside: list[Ranked] = []
    for conversation in _conversations(file):
        rows = [
            (turn.id, turn.session, turn.speaker, turn.text, turn.time)
            for turn in conversation.turns
        ]
        asked = [item.question for item in conversation.questions]
        for item, (turns, seconds) in zip(
            conversation.questions, await search_past_sessions(rows, asked), strict=True
        ):
            found.append(Ranked(item.turns, turns, [], seconds))
        beside += _answers(conversation, None, WEIGHTS)
    lost = [
        100 * (one.recall(10) - other.recall(10)) for one, other in zip(found, beside, strict=True)
    ]
    error = 1.96 * stdev(lost) / len(lost) ** 0.5
    return [
        Measure(name="memory, past sessions, R@10", value=_recall(found, 10), unit="%"),
        Measure(name="memory, past sessions, R@5", value=_recall(found, 5), unit="%"),
        Measure(
            name="memory, past sessions beside the class, R@10",
            value=fmean(lost),
            unit="points",
            target=">= -2",
            detail=f"95 % interval {fmean(lost) - error:.1f} to {fmean(lost) + error:.1f}",
        ),
        Measure(
            name="memory, past sessions, p50",
            value=1000 * percentile([item.seconds for item in found], 50),
            unit="ms CPU",
        ),
    ]


def _measures(name: str, found: list[Ranked], targets: Sequence[str]) -> list[Measure]:
    r10, r5, mrr, in_500, in_1000 = targets
    seconds = [ranked.seconds for ranked in found]
    title = f"memory, LoCoMo by {name}"
    return [
        Measure(
            name=f"{title}, R@10",
            value=_recall(found, 10),
            unit="%",
            target=r10,
            detail=f"{len(found):,} questions; each conversation with weights fitted on the others",
        ),
        Measure(name=f"{title}, R@5", value=_recall(found, 5), unit="%", target=r5),
        Measure(
            name=f"{title}, MRR",
            value=100 * sum(ranked.reciprocal for ranked in found) / len(found),
            unit="%",
            target=mrr,
        ),
        *(
            Measure(
                name=f"{title}, evidence in {tokens:,} tokens",
                value=100 * sum(ranked.within(tokens) for ranked in found) / len(found),
                unit="%",
                target=target,
            )
            for tokens, target in ((500, in_500), (1000, in_1000))
        ),
        Measure(name=f"{title}, p50", value=1000 * percentile(seconds, 50), unit="ms CPU"),
        Measure(name=f"{title}, p99", value=1000 * percentile(seconds, 99), unit="ms CPU"),
    ]


def _leave_one_out(
    conversations: list[Conversation], encoder: Encoder | None, names: Iterable[str]
) -> list[Ranked]:
    """Every question, searched with weights that were fitted on the other conversations."""
    wanted = list(names)
    examples = [_examples(each, encoder, wanted) for each in conversations]
    found: list[Ranked] = []
    for at, conversation in enumerate(conversations):
        others = [item for other, several in enumerate(examples) if other != at for item in several]
        found += _answers(conversation, encoder, fit(wanted, others))
    return found


def _examples(
    conversation: Conversation, encoder: Encoder | None, names: list[str]
) -> list[Example]:
    sessions, index = _indexed(conversation, encoder, dict.fromkeys(names, 1.0))
    examples: list[Example] = []
    for item in conversation.questions:
        hits = index.search(item.question, ["agent"], 10_000)
        if hits:
            turns = [sessions[hit.container][hit.position].id for hit in hits]
            features = [[hit.scored.parts.get(name, 0.0) for name in names] for hit in hits]
            examples.append(
                Example(np.array(features), np.array([turn in item.turns for turn in turns]))
            )
    return examples


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


def _indexed(
    conversation: Conversation, encoder: Encoder | None, weights: Mapping[str, float]
) -> tuple[dict[str, list[Turn]], PassageIndex]:
    sessions: dict[str, list[Turn]] = {}
    for turn in conversation.turns:
        sessions.setdefault(str(turn.session), []).append(turn)
    vectors = None if encoder is None else PassageVectors(encoder)
    index = PassageIndex(SqlitePassages(None), vectors=vectors, weights=weights)
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
    return sessions, index


def _answers(
    conversation: Conversation, encoder: Encoder | None, weights: Mapping[str, float]
) -> Iterator[Ranked]:
    sessions, index = _indexed(conversation, encoder, weights)
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
            MemoryEvidence(item["question"], frozenset(ids & known))
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
