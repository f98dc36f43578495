"""Where a conversation may be cut: what is old, what is still referred to, what lies between."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mainspring.core.content import TextBlock
from mainspring.core.model import Assistant, Message, ToolResult, ToolUse
from mainspring.harness.context.sizes import message_bytes
from mainspring.harness.context.transcript import Transcript

_REFERRED_ROUNDS = 4
_SEPARATORS = str.maketrans(dict.fromkeys("\"'`()[]{}<>,;:=", " "))


def newest(transcript: Transcript, *, rounds: int, max_bytes: int) -> int:
    """Index of the first message that stays: as many of the newest rounds as fit, at least one."""
    messages = transcript.messages
    total = transcript.bytes - sum(map(message_bytes, messages))
    start, kept = 0, 0
    for index in reversed(range(len(messages))):
        total += message_bytes(messages[index])
        if not isinstance(messages[index], Assistant):
            continue
        if kept and total > max_bytes:
            break
        start, kept = index, kept + 1
        if kept == rounds:
            break
    return start


def referred(transcript: Transcript, upto: int, *, max_bytes: int) -> frozenset[int]:
    """Indices of older rounds that what comes after `upto` speaks of, by call id or by path.

    Of several rounds with the same path the newest counts: it is what is true now.
    """
    mentioned = _mentions(transcript, upto)
    found: set[int] = set()
    for index in reversed(range(upto - 1)):
        names = set(_names(transcript.messages[index])) & mentioned
        if not names:
            continue
        mentioned -= names
        max_bytes -= sum(map(message_bytes, transcript.messages[index : index + 2]))
        if max_bytes < 0 or len(found) >= 2 * _REFERRED_ROUNDS:
            break
        found |= {index, index + 1}
    return frozenset(found)


def stretches(first: int, upto: int, kept: frozenset[int]) -> list[range]:
    """What lies in `first..upto` between the messages that are kept."""
    found: list[range] = []
    start = first
    for index in range(first, upto + 1):
        if index == upto or index in kept:
            if index > start:
                found.append(range(start, index))
            start = index + 1
    return found


def _mentions(transcript: Transcript, upto: int) -> set[str]:
    texts = [block.text for block in transcript.open_words if isinstance(block, TextBlock)]
    words: set[str] = set()
    for message in transcript.messages[upto:]:
        words.update(_names(message))
        texts += [part.text for part in message.content if isinstance(part, TextBlock)]
    for text in texts:
        words.update(word.strip(".!?") for word in text.translate(_SEPARATORS).split())
    return words


def _names(message: Message) -> Iterator[str]:
    """What a round is known by: its calls' ids and the paths they were given."""
    for part in message.content:
        if isinstance(part, ToolUse):
            yield part.id
            yield from (text for text in _strings(part.input) if _is_path(text))


def _strings(given: Mapping[str, object]) -> Iterator[str]:
    return (value for value in given.values() if isinstance(value, str))


def _is_path(text: str) -> bool:
    is_one_word = 3 < len(text) < 300 and not any(map(str.isspace, text))
    return is_one_word and ("/" in text or "." in text[1:-1])


def results(transcript: Transcript) -> dict[str, ToolResult]:
    """Every result that is shown, by call."""
    found = {
        part.tool_use_id: part
        for message in transcript.messages
        for part in message.content
        if isinstance(part, ToolResult)
    }
    found.update((result.tool_use_id, result) for result in transcript.open_results)
    return found
