"""A session as Markdown. Foreign text keeps its formatting but stays text: it cannot add HTML,
images, links, headings outside its quotation, or end a code block."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Sequence

import msgspec

from mainspring.core.content import Block
from mainspring.runtime.export_sessions.api_blocks import describe_block
from mainspring.runtime.export_sessions.conversation_fold import (
    ConversationFold,
    ExportedCompaction,
    ExportedEntry,
    ExportedMessage,
    ExportedNotice,
    ExportedText,
    ExportedThinking,
    ExportedTitle,
    ExportedToolResult,
    ExportedToolUse,
)
from mainspring.runtime.export_sessions.html_report import strip_control_characters
from mainspring.runtime.session.session_summary import SummaryFact

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([A-Za-z0-9_+.#-]{0,30})[^\n]*")
# All backslashes before a bracket together: half of them would leave it unescaped.
_MARKUP = re.compile(r"<(?=[A-Za-z/!?])|&(?=#?[A-Za-z0-9]{1,32};)|[\[\]]|(?<!\\)\\++(?=[\[\]])")
_FORMATTING = re.compile(r"[\\`*\[\]<>&|~#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_ESCAPED = {"<": "&lt;", "&": "&amp;", "[": "\\[", "]": "\\]"}
_AUTHORS = {"user": "User", "agent": "Another agent", "system": "Note to the model"}


def render_markdown(
    title: str,
    facts: Sequence[SummaryFact],
    entries: Iterable[ExportedEntry],
    conversation: ConversationFold,
    main_thread: str,
) -> Generator[str, None, None]:
    """The file, piece by piece: the main conversation, then a section for each subagent."""
    yield f"# {_line(title)}\n\n"
    yield "".join(f"- {fact.name}: {_line(fact.value)}\n" for fact in facts)
    threads: dict[str, list[ExportedEntry]] = {}
    for entry in entries:
        threads.setdefault(entry.at.thread_id, []).append(entry)
    for entry in threads.pop(main_thread, ()):
        yield _section(entry, "##")
    for thread_id, thread in threads.items():
        agent = conversation.subagents.get(thread_id)
        name = thread_id if agent is None else agent.name
        task = f": {agent.description}" if agent and agent.description else ""
        yield f"\n## Subagent {_line(name + task)}\n"
        for entry in thread:
            yield _section(entry, "###")


def _section(entry: ExportedEntry, level: str) -> str:
    match entry:
        case ExportedToolUse(name=name, input=tool_input):
            input_json = msgspec.json.format(msgspec.json.encode(tool_input), indent=2).decode()
            return f"\n{level} Call of {_line(name)}\n\n{_code_block(input_json, 'json')}"
        case ExportedToolResult(content=content, is_error=is_error):
            heading = "Error" if is_error else "Result"
            return f"\n{level} {heading}\n\n{_code_block(_text(content))}"
        case ExportedTitle():
            return ""
        case (
            ExportedMessage()
            | ExportedText()
            | ExportedThinking()
            | ExportedCompaction()
            | ExportedNotice()
        ):
            heading, text = _heading_and_body(entry)
            return f"\n{level} {heading}\n\n{_quote(text)}" if text.strip() else ""


def _heading_and_body(
    entry: ExportedMessage | ExportedText | ExportedThinking | ExportedCompaction | ExportedNotice,
) -> tuple[str, str]:
    match entry:
        case ExportedMessage(author=author, content=content):
            return _AUTHORS[author], _text(content)
        case ExportedText(content=content):
            return "Agent", _text(content)
        case ExportedThinking(text=text):
            return "Thinking", text
        case ExportedCompaction(summary=summary):
            return "Earlier conversation, summarized", summary
        case ExportedNotice(text=text):
            return "Problem", text


def _text(content: Sequence[Block]) -> str:
    return "\n".join(describe_block(block) for block in content)


def _line(text: str) -> str:
    """Text on one line, without formatting."""
    joined = " ".join(strip_control_characters(text).split())[:500]
    return _FORMATTING.sub(r"\\\g<0>", joined)


def _quote(text: str) -> str:
    """Quote text with its own formatting, so that it cannot end the quotation."""
    lines: list[str] = []
    for language, part in split_fences(strip_control_characters(text)):
        if language is None:
            lines += [_MARKUP.sub(_escape, line) for line in part]
        else:
            lines += _code_block("\n".join(part), language).rstrip("\n").split("\n")
    return "".join(f"> {line}".rstrip() + "\n" for line in lines)


def _escape(match: re.Match[str]) -> str:
    return _ESCAPED.get(match[0], match[0] * 2)


def split_fences(text: str) -> Generator[tuple[str | None, list[str]], None, None]:
    """Yield alternating runs of lines: prose, with `None`, and the code of a fenced block, with
    its language."""
    prose: list[str] = []
    lines = iter(text.split("\n"))
    for line in lines:
        opening = _FENCE.fullmatch(line)
        if opening is None:
            prose.append(line)
            continue
        yield None, prose
        prose, code, fence = [], list[str](), opening[1]
        for inner in lines:
            stripped = inner.strip()
            if stripped.startswith(fence) and not stripped.strip(fence[0]):
                break
            code.append(inner)
        yield opening[2], code
    yield None, prose


def _code_block(text: str, language: str = "") -> str:
    """A code block with exactly this text."""
    code = strip_control_characters(text)
    longest = max((len(run) for run in re.findall(r"`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{code.rstrip(chr(10))}\n{fence}\n"
