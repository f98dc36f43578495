"""A digest of messages, one line for each step, made without a model and always the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set

from msgspec import Struct

from mainspring.core.content import Block, TextBlock, plain_text
from mainspring.core.model import Assistant, Message, ToolResultBlock, ToolUse
from mainspring.harness.context.messages import BEGINNING_LABEL, DROPPED_RESULT_NOTE
from mainspring.harness.context.transcript import PINNED_NOTE, SNIPPED_NOTE

DIGEST_HEADING = "[Earlier in this conversation, in short; history_search finds the whole:]\n"
_SHOWN_ARGUMENTS = ("path", "file_path", "command", "query", "pattern", "url", "name")


class Detail(Struct, frozen=True, kw_only=True):
    """Maximum characters for each kind of line."""

    user_text: int
    agent_text: int
    argument: int
    outcome: int
    whole_outcome: bool = False
    """More than its first line."""

    def halved(self) -> Detail:
        return Detail(
            user_text=self.user_text // 2,
            agent_text=self.agent_text // 2,
            argument=self.argument // 2,
            outcome=self.outcome // 2,
            whole_outcome=self.whole_outcome,
        )


BRIEF = Detail(user_text=300, agent_text=160, argument=60, outcome=100)
FULL = Detail(user_text=4_000, agent_text=2_000, argument=400, outcome=1_500, whole_outcome=True)


def digest(
    messages: Iterable[Message],
    results: Mapping[str, ToolResultBlock],
    *,
    pinned: Set[Block],
    detail: Detail,
) -> list[str]:
    """One line per step of the messages, without pinned text, which stays in the context."""
    lines: list[str] = []
    for message in messages:
        if isinstance(message, Assistant):
            lines += _assistant_lines(message, results, detail)
        else:
            words = [
                part
                for part in message.content
                if not isinstance(part, ToolResultBlock) and part not in pinned
            ]
            lines += _user_lines(words, detail)
    return lines


def earlier_digests(messages: Iterable[Message]) -> list[str]:
    """Summaries of earlier compactions in these messages."""
    return [
        part.text
        for message in messages
        for part in message.content
        if isinstance(part, TextBlock) and part.text.startswith(DIGEST_HEADING)
    ]


def _assistant_lines(
    message: Assistant, results: Mapping[str, ToolResultBlock], detail: Detail
) -> Iterator[str]:
    for part in message.content:
        match part:
            case TextBlock(text) if text.strip():
                yield f"- you said: {_clip(text, detail.agent_text)}"
            case ToolUse():
                keys = [key for key in _SHOWN_ARGUMENTS if key in part.input]
                keys += [key for key in part.input if key not in keys]
                arguments = ", ".join(
                    f"{key}={_clip(str(part.input[key]), detail.argument)}" for key in keys[:3]
                )
                yield f"- {part.name}({arguments}) -> {_outcome(results.get(part.id), detail)}"
            case _:
                pass  # thinking is left out: the digest has what followed from it


def _user_lines(words: Iterable[Block], detail: Detail) -> Iterator[str]:
    for block in words:
        text = plain_text((block,))
        if text.startswith(DIGEST_HEADING):
            yield text.removeprefix(DIGEST_HEADING)
        elif text in (PINNED_NOTE.text, SNIPPED_NOTE) or text.startswith("<system-note>"):
            continue
        else:
            yield f"- the user said: {_clip(text, detail.user_text) if text else '[media]'}"


def _outcome(result: ToolResultBlock | None, detail: Detail) -> str:
    if result is None:
        return "no result"
    text = (
        plain_text(result.content)
        .strip()
        .removeprefix(DROPPED_RESULT_NOTE)
        .removeprefix(BEGINNING_LABEL)
    )
    if not detail.whole_outcome:
        text = next(iter(text.splitlines()), "")
    failed = "failed: " if result.is_error else ""
    return f"{failed}{_clip(text, detail.outcome) or 'ok'}"


def _clip(text: str, chars: int) -> str:
    flat = " ".join(text.split()) if chars <= 300 else text.strip()
    return flat if len(flat) <= chars else f"{flat[: max(0, chars - 1)]}…"
