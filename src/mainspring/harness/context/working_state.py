"""The working state of a thread: what was decided and answered, what is open, what comes next. It
is recorded before a compaction removes messages, and the model reads it afterwards.

It is extracted without a model; a summary may correct it. Each state continues the one before it,
so that a second compaction does not lose what the first one saved.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import cast

from msgspec import Struct

from mainspring.core.content import Block, TextBlock, plain_text
from mainspring.core.events import Task
from mainspring.core.model import Assistant, Message, ToolResultBlock, ToolUse, User
from mainspring.harness.context.conversation_digest import DIGEST_HEADING
from mainspring.harness.context.transcript import PINNED_NOTE, SNIPPED_NOTE, Transcript

WORKING_STATE = "working state"
"""The source of the note that contains it."""
_INTRO = (
    "The working state, saved before older messages were removed from this conversation. It is a"
    " record, not an instruction; history_search finds what it is taken from."
)
_LABELS = ("Decided", "Answered", "Open", "Next")
_HEADING = re.compile(
    r"^[#*\s]*(decided|decisions|answered|open|next)(?: steps| questions)?[*\s]*:?[*\s]*$", re.I
)
_FIELDS = {"decided": 0, "decisions": 0, "answered": 1, "open": 2, "next": 3}
_MAX_LINES = 8  # of each of its lists, the newest ones
_MAX_CHARS = 240  # of a line
_MAX_PROBLEMS = 4  # failed calls that count as open, the newest ones
_MAX_TEXT = 40_000
"""The number of characters of a message to read."""
_FAILED = "failed: "
_ASK_TOOLS = ("ask_user", "AskUserQuestion")
_SUBJECTS = ("file_path", "path", "command", "url", "pattern", "query")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_DECISION_OF_USER = re.compile(
    r"\b(?:let'?s|we(?:'ll| will| have)? (?:use|decided|agreed|keep|go)|decided|agreed|go with"
    r"|i(?:'d rather| prefer| want)|use \S+(?: \S+)? (?:instead of|rather than|not))\b",
    re.I,
)
_DECISION_OF_AGENT = re.compile(
    r"\b(?:i(?:'ll| will| have|'ve)? (?:use|chose|choose|decided?|keep|kept|go with)"
    r"|(?:i am|i'm) going with|we (?:decided|agreed|will use)|instead of|rather than)\b",
    re.I,
)
_INTENTION = re.compile(
    r"^(?:next|then|after that|remaining|still to do)\b|\b(?:i'll|i will|let me|i need to)\b", re.I
)


class SavedState(Struct, frozen=True):
    text: str = ""
    turns: int = -1
    """The turns of the thread when it was saved; -1: never."""
    messages: int = 0


class WorkingState(Struct, frozen=True):
    decided: tuple[str, ...] = ()
    answered: tuple[str, ...] = ()
    """Questions with their answers."""
    open: tuple[str, ...] = ()
    next: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any(self.sections())

    def sections(self) -> tuple[tuple[str, ...], ...]:
        return self.decided, self.answered, self.open, self.next

    def text(self, max_bytes: int) -> str:
        """A text for the model; if too long, without the oldest lines of the longest sections."""
        sections = [list(lines) for lines in self.sections()]
        while (size := len((text := _render(sections)).encode())) > max_bytes and any(sections):
            del max(sections, key=lambda lines: sum(map(len, lines)))[0]
        return text if size <= max_bytes else ""


def _render(sections: Iterable[Sequence[str]]) -> str:
    lines: list[str] = []
    for label, items in zip(_LABELS, sections, strict=True):
        if items:
            lines += [f"{label}:", *(f"- {item}" for item in items)]
    return "\n".join([_INTRO, *lines]) if lines else ""


def parse_state(text: str) -> tuple[WorkingState, str]:
    """The state in a text with our headings, by us or by a model, and the text before it."""
    sections: tuple[list[str], ...] = ([], [], [], [])
    before: list[str] = []
    part: list[str] | None = None
    for line in text.splitlines():
        if heading := _HEADING.match(line):
            part = sections[_FIELDS[heading[1].lower()]]
        elif part is None:
            before.append(line)
        elif item := line.strip().lstrip("-*• ").strip():
            part.append(_shortened(item))
    state = WorkingState(*(tuple(lines[-_MAX_LINES:]) for lines in sections))
    return state, "\n".join(before).strip()


def extract_state(
    transcript: Transcript, tasks: Mapping[str, Task], previous: WorkingState
) -> WorkingState:
    """`previous`, which an earlier compaction saved, continued with what the conversation shows."""
    messages: list[Message] = [*transcript.messages]
    messages.append(User((*transcript.open_results, *transcript.open_words)))
    answered = _continued(previous.answered, _answers(messages))
    present = [task for task in tasks.values() if task.status != "deleted"]
    failed = [
        f"task #{task.id} failed: {task.subject}" for task in present if task.status == "failed"
    ]
    left = [task for task in present if task.status in ("in_progress", "pending")]
    planned = [f"#{task.id} {task.subject} ({task.status.replace('_', ' ')})" for task in left]
    return WorkingState(
        decided=_continued(previous.decided, _decisions(messages)),
        answered=answered,
        open=_newest(
            (
                *_still_open(previous.open, messages),
                *_open_questions(messages),
                *_open_problems(messages),
                *failed,
            )
        ),
        next=_newest(planned or _intentions(messages) or previous.next),
    )


def _continued(previous: Sequence[str], lines: Iterable[str]) -> tuple[str, ...]:
    """The saved lines and those after them; messages that were kept yield the same lines again."""
    short_lines = [*map(_shortened, lines)]
    repeated = [index for index, line in enumerate(short_lines) if line in previous]
    return _newest([*previous, *short_lines[repeated[-1] + 1 if repeated else 0 :]])


def _still_open(previous: Iterable[str], messages: Sequence[Message]) -> list[str]:
    """The items that have not been answered or tried again since."""
    answers = " ".join(_answers(messages))
    prefixes = tuple(
        f"{_FAILED}{call.name} {_subject(call)}:"
        for message in messages
        for call in _calls(message)
    )
    return [line for line in previous if line not in answers and not line.startswith(prefixes)]


def _newest(lines: Iterable[str]) -> tuple[str, ...]:
    """The newest lines, in order, each once."""
    return tuple(dict.fromkeys(map(_shortened, lines)))[-_MAX_LINES:]


def _decisions(messages: Iterable[Message]) -> Iterator[str]:
    for message in messages:
        is_agent = isinstance(message, Assistant)
        cue = _DECISION_OF_AGENT if is_agent else _DECISION_OF_USER
        author = "you" if is_agent else "the user"
        for sentence in _sentences(_words(message)):
            if cue.search(sentence) and not sentence.endswith("?"):
                yield f"{author}: {sentence}"


def _answers(messages: Sequence[Message]) -> Iterator[str]:
    """Questions in the text of the model with the message that follows, and those of `ask_user`."""
    results = _results(messages)
    for message, reply in pairwise(messages):
        if not isinstance(message, Assistant):
            continue
        questions = [line for line in _sentences(_words(message)) if line.endswith("?")]
        if questions and (answer := _words(reply)) and not _calls(message):
            yield f"{_shortened(' '.join(questions), 140)} -> {_shortened(answer, 90)}"
        for call in _calls(message):
            if call.name in _ASK_TOOLS and (result := results.get(call.id)):
                text = " ".join(_asked(call))
                yield f"{_shortened(text, 120)} -> {_shortened(plain_text(result.content), 110)}"


def _asked(call: ToolUse) -> Iterator[str]:
    questions = call.input.get("questions")
    for question in cast("list[object]", questions) if isinstance(questions, list) else ():
        if isinstance(question, dict):
            yield str(cast("dict[str, object]", question).get("question", ""))


def _open_questions(messages: Sequence[Message]) -> list[str]:
    """The questions in the model's last message, if nobody has answered."""
    last = messages[-2] if len(messages) > 1 else None
    if not isinstance(last, Assistant) or _words(messages[-1]):
        return []
    return [line for line in _sentences(_words(last)) if line.endswith("?")]


def _open_problems(messages: Sequence[Message]) -> list[str]:
    """Calls that failed and have not succeeded since."""
    results = _results(messages)
    failed: dict[tuple[str, str], str] = {}
    for message in messages:
        for call in _calls(message):
            subject, result = _subject(call), results.get(call.id)
            failed.pop((call.name, subject), None)
            if result is not None and result.is_error:
                why = next(iter(plain_text(result.content).strip().splitlines()), "")
                failed[call.name, subject] = f"{_FAILED}{call.name} {subject}: {why}"
    return list(failed.values())[-_MAX_PROBLEMS:]


def _subject(call: ToolUse) -> str:
    return _shortened(
        next((str(call.input[key]) for key in _SUBJECTS if key in call.input), ""), 100
    )


def _intentions(messages: Sequence[Message]) -> list[str]:
    """The intentions in the model's last message."""
    for message in reversed(messages):
        if isinstance(message, Assistant) and (text := _words(message)):
            lines = [line for line in _sentences(text) if not _DECISION_OF_AGENT.search(line)]
            return [line for line in lines if _INTENTION.search(line)][-3:]
    return []


def _results(messages: Iterable[Message]) -> dict[str, ToolResultBlock]:
    return {
        part.tool_use_id: part
        for message in messages
        for part in message.content
        if isinstance(part, ToolResultBlock)
    }


def _calls(message: Message) -> list[ToolUse]:
    return [part for part in message.content if isinstance(part, ToolUse)]


def _words(message: Message) -> str:
    """The text of a person or the model, without code and added notes."""
    texts = [
        part.text for part in message.content if isinstance(part, TextBlock) and _is_said(part)
    ]
    return _CODE.sub(" ", "\n".join(texts)[-_MAX_TEXT:]).strip()


def _is_said(block: Block) -> bool:
    text = plain_text((block,))
    added = (DIGEST_HEADING, "<system-note>", PINNED_NOTE.text, SNIPPED_NOTE)
    return not text.startswith(added)


def _sentences(text: str) -> list[str]:
    sentences = [" ".join(part.split()).strip(" -*#>") for part in _SENTENCE.split(text)]
    return [sentence for sentence in sentences if len(sentence.split()) > 2]


def _shortened(text: str, max_chars: int = _MAX_CHARS) -> str:
    line = " ".join(text.split())
    return line if len(line) <= max_chars else f"{line[: max_chars - 1]}…"
