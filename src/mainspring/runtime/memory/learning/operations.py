"""What a model that reads a person's messages wants to change in memory, and why an operation is
refused. Pure.

The model only chooses. A memory consists of words that the person typed (and of those of the memory
that it replaces), a change is about the memory that it names, and what a person wants is not erased
or turned around unless the person says so. Everything else is refused, whatever the model answers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from mainspring.core.envelope import Event
from mainspring.core.events import RefusedOperation
from mainspring.retrieval.stems import STOP_WORDS, stems, words
from mainspring.runtime.memory.learning.absolute_dates import make_dates_absolute
from mainspring.runtime.memory.learning.consolidation import Consolidation
from mainspring.runtime.memory.learning.extraction import MemoryCandidate, MemoryEvidence
from mainspring.runtime.memory.learning.note_changes import StatementStems
from mainspring.runtime.memory.learning.own_words import own_words
from mainspring.runtime.memory.learning.statements import (
    CORRECTION,
    are_same_value,
    frame_of,
    value_in,
    value_kind,
)
from mainspring.runtime.memory.note import Note

MAX_OPERATIONS = 10
"""The most operations of one answer: a run rarely states more facts, and a model that repeats
itself ends."""
_MAX_SHOWN = 300
"""Characters of a refused operation in the log."""

_CHANGE = re.compile(
    r"\b(?:now|instead|no longer|any ?more|from now on|actually|finally|changed?|scrap|correction"
    r"|jetzt|ab sofort|nicht mehr|kein\w* mehr|stattdessen|doch|eigentlich|künftig"
    r"|maintenant|désormais|plutôt|finalement|plus jamais|ne \w+ plus|en fait"
    r"|ahora|ya no|en vez|desde hoy|mejor|en realidad|ora|adesso|non più|invece|d'ora in poi"
    r"|agora|não mais|já não|em vez|a partir de|nu|voortaan|niet meer|geen \w+ meer|in plaats"
    r"|теперь|больше не|вместо|отныне|nie mehr|från och med nu|inte längre|ikke længere)\b"
    r"|今後|もう|代わりに|これから|不再|现在|改为|以后|이제|더 이상",
    re.IGNORECASE,
)
"""How people say that something is otherwise than before."""
_NO = re.compile(
    r"^\W*(?:no|nope|nein|non|nee|não|nej|нет|いいえ|不|아니)(?:\b|[,、，])", re.IGNORECASE
)
"""How a correction begins."""
_RETRACTION = re.compile(
    r"\b(?:forget|no longer|any ?more|never ?mind|scrap|drop|cancel\w*|obsolete|delete the memory"
    r"|vergiss|vergessen|nicht mehr|kein\w* mehr|hinfällig|oublie[rz]?|ne \w+ plus|annule\w*"
    r"|olvida\w*|ya no|dimentica\w*|non \w+ più|esque[çc]\w*|já não|não \w+ mais|vergeet|niet meer"
    r"|забудь\w*|больше не|glöm|inte längre|glem|ikke længere)\b"
    r"|忘れて|忘记|忘掉|不再|もう.{0,20}ない|잊어",
    re.IGNORECASE,
)
"""How people ask to forget something."""
_LINKING = frozenset(("user", "person", "prefers", "wants", "called", "named", "says", "said"))
"""Words that a model may add to those of the person: they say who speaks, never what to do."""
_NEGATING = frozenset(("not", "no", "nor", "don", "t", "never", "without"))


class MemoryOperation(Struct, frozen=True, kw_only=True):
    op: Literal["add", "replace", "retract", "merge", "conflict", "nothing"]
    event: Annotated[str, Meta(max_length=100)] = ""
    """The message that it follows from."""
    path: Annotated[str, Meta(max_length=300)] = ""
    """The memory that it changes, as `scope/path`."""
    text: Annotated[str, Meta(max_length=1_000)] = ""
    type: Literal["user", "feedback", "project", "reference"] = "project"
    name: Annotated[str, Meta(max_length=80)] = ""


class _Answer(Struct, frozen=True):
    operations: list[msgspec.Raw] = []


Memories: TypeAlias = Mapping[str, Note]
"""The memories that a model was shown, by `scope/path`."""


@dataclass(frozen=True, slots=True)
class OperationPlan:
    operations: Sequence[MemoryOperation]
    refused: Sequence[RefusedOperation]


def read_operations(
    answer: str, messages: Mapping[str, Event], memories: Memories
) -> OperationPlan:
    """The operations of an answer that may be applied. `messages`: those that it was asked about,
    by id."""
    start, end = answer.find("{"), answer.rfind("}")
    try:
        items = msgspec.json.decode(answer[max(start, 0) : end + 1], type=_Answer).operations
    except msgspec.ValidationError:
        return OperationPlan((), [_refused(answer, "the answer has not a list of operations")])
    except (msgspec.DecodeError, RecursionError):
        return OperationPlan((), [_refused(answer, "the answer has no JSON object")])
    operations: list[MemoryOperation] = []
    refused: list[RefusedOperation] = []
    for number, item in enumerate(items, 1):
        try:
            operation = msgspec.json.decode(item, type=MemoryOperation)
            problem = _problem(operation, messages, memories)
        except (msgspec.MsgspecError, RecursionError) as error:
            operation, problem = None, str(error)
        if number > MAX_OPERATIONS:
            problem = f"more than {MAX_OPERATIONS} operations"
        if operation is None or problem:
            refused.append(_refused(bytes(item).decode(), problem))
        elif operation.op != "nothing":
            operations.append(operation)
    contradicting = _contradicting(operations)
    refused += [
        _refused(msgspec.json.encode(item).decode(), "the operations contradict each other")
        for item in contradicting
    ]
    return OperationPlan([item for item in operations if item not in contradicting], refused)


def apply_operation(
    consolidation: Consolidation, operation: MemoryOperation, message: Event
) -> None:
    """Do to the memories of its scope what an operation says."""
    candidate = _candidate(operation, message)
    path = operation.path.partition("/")[2]
    if path and path not in consolidation.notes:  # an operation before it has moved it
        return
    match operation.op:
        case "add":
            consolidation.add(candidate)
        case "replace":
            consolidation.replace(path, candidate)
        case "merge":
            consolidation.merge(path, candidate)
        case "conflict":
            consolidation.mark_conflict(path, candidate)
        case "retract":
            consolidation.retract(path, candidate)
        case "nothing":
            pass


def _candidate(operation: MemoryOperation, message: Event) -> MemoryCandidate:
    quote = " ".join(own_words(message).split())[:400]
    text = make_dates_absolute(" ".join(operation.text.split()), message.time.date())
    return MemoryCandidate(
        text=text[:1].upper() + text[1:],
        type=operation.type,
        trust="agent",
        time=message.time,
        evidence=(MemoryEvidence(session_id=message.session_id, event_id=message.id, quote=quote),),
        name=" ".join(operation.name.split()),
    )


def _problem(operation: MemoryOperation, messages: Mapping[str, Event], memories: Memories) -> str:
    """Why an operation is refused; empty if it is not."""
    if operation.op == "nothing":
        return ""
    message = messages.get(operation.event)
    if message is None:
        return f"{operation.event or 'nothing'} is not what a person said in these messages"
    said, memory = own_words(message), None
    if operation.op != "add":
        memory = memories.get(operation.path)
        if memory is None:
            return f"there is no memory {operation.path} in the list"
    if operation.op == "retract":
        return "" if memory is None else _retraction_problem(said, memory)
    return _text_problem(operation, said, memory) or (
        "" if memory is None else _change_problem(operation, said, memory)
    )


def _text_problem(operation: MemoryOperation, said: str, memory: Note | None) -> str:
    text = operation.text
    if not text.strip() or not f"{text}{operation.name}".replace("\n", " ").isprintable():
        return "the text is empty or has invisible characters"
    known = f"{said} {'' if memory is None else memory.body}"
    if added := [word for word in _missing(f"{text} {operation.name}", known)]:
        return f"the person did not say {', '.join(map(repr, added[:3]))}"
    return ""


def _missing(text: str, known: str) -> Iterable[str]:
    """The words of a text that are not in another."""
    known_words = frozenset((*words(known), *stems(known)))
    harmless = (STOP_WORDS - _NEGATING) | _LINKING
    for word in dict.fromkeys(words(text)):
        if (
            word not in known_words
            and word not in harmless
            and not (set(stems(word)) & known_words)
        ):
            yield word


def _change_problem(operation: MemoryOperation, said: str, memory: Note) -> str:
    if not _is_about(said, memory):
        return f"the message is not about {operation.path}"
    is_change = _says_change(said)
    if operation.op == "replace" and not set(stems(operation.text)) & set(stems(memory.body)):
        return f"the new text is not about {operation.path}"
    if operation.op == "replace" and memory.type == "feedback" and not is_change:
        is_negated = (StatementStems.of(text).is_negated for text in (operation.text, memory.body))
        turned = len(set(is_negated)) > 1
        what = "its opposite" if turned else "another"
        return f"nobody said that the rule {operation.path} becomes {what}"
    return ""


def _retraction_problem(said: str, memory: Note) -> str:
    if not _RETRACTION.search(said):
        return "nobody asked to forget or end something"
    shared = set(stems(said)) & set(stems(f"{memory.name} {memory.body}"))
    return "" if shared else "the message is not about this memory"


def _says_change(said: str) -> bool:
    return any(form.search(said) for form in (_CHANGE, _NO, CORRECTION, _RETRACTION))


def _is_about(said: str, memory: Note) -> bool:
    """Whether a message is about a memory: by its words, or as a correction of its value."""
    if set(stems(said)) & set(stems(f"{memory.name} {memory.body}")):
        return True
    kind = value_kind(said)
    if kind is None or value_in(memory.body, kind) is None:
        return False
    return kind != "name" or _says_change(said)


def _contradicting(operations: Sequence[MemoryOperation]) -> list[MemoryOperation]:
    """Operations on one memory of which at most one can be meant, and facts that exclude each
    other."""
    counts = Counter(item.path for item in operations if item.path)
    frames = [(item, frame_of(item.text)) for item in operations if item.op == "add"]
    return [
        item
        for item in operations
        if counts[item.path] > 1
        or any(
            (frame := frame_of(item.text)) is not None
            and other is not None
            and item.op == "add"
            and frame.key == other.key
            and not are_same_value(frame, other)
            for _, other in frames
        )
    ]


def _refused(operation: str, problem: str) -> RefusedOperation:
    return RefusedOperation(operation=operation[:_MAX_SHOWN], problem=problem)
