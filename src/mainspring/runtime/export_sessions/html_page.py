"""A session as one HTML page: the conversation, calls with their results, subagents inside the
calls that started them."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Mapping, Sequence

import msgspec

from mainspring.core.content import Block
from mainspring.harness.permissions.tool_names import SHELL_TOOLS
from mainspring.runtime.export_sessions.api_blocks import describe_block, image_of
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
from mainspring.runtime.export_sessions.html_report import (
    Markup,
    escape,
    facts_list,
    join_markup,
    page_end,
    page_head,
)
from mainspring.runtime.export_sessions.markdown_page import split_fences
from mainspring.runtime.session.session_summary import SummaryFact

_IMAGE_TYPES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_CODE = re.compile(r"`([^`\n]{1,400})`|\*\*([^*\n]{1,400})\*\*")
_HEADING = re.compile(r"#{1,6} +(.{1,400})")
_AUTHORS = {"user": "User", "agent": "Another agent", "system": "Note to the model"}
_MAX_CHARS = 200_000
"""The maximum characters of one text, so that browsers can open the page."""
_SUMMARY = 160  # characters of a folded part's first line
_MAX_DEPTH = 32
"""The deepest nesting of subagents."""


class HtmlPage:
    """The page of one session. `media` are its images by hash."""

    def __init__(
        self,
        entries: Iterable[ExportedEntry],
        conversation: ConversationFold,
        media: Mapping[str, bytes],
    ) -> None:
        self._conversation_fold = conversation
        self._media = media
        self._threads: dict[str, list[ExportedEntry]] = {}
        self._results: dict[str, ExportedToolResult] = {}
        self._rendered: set[str] = set()
        self._depth = 0
        for entry in entries:
            self._threads.setdefault(entry.at.thread_id, []).append(entry)
            if isinstance(entry, ExportedToolResult):
                self._results[entry.tool_use_id] = entry

    def write(
        self, title: str, facts: Sequence[SummaryFact], main_thread: str, version: str
    ) -> Generator[str, None, None]:
        yield page_head(title)
        yield facts_list([(fact.name, fact.value) for fact in facts])
        for entry in self._threads.get(main_thread, ()):
            yield self._entry(entry)
        self._rendered.add(main_thread)
        for thread_id in self._threads:
            if thread_id not in self._rendered:
                yield self._subagent(thread_id)
        yield page_end(f"Exported by Mainspring {version}")

    def _entry(self, entry: ExportedEntry) -> Markup:
        match entry:
            case ExportedMessage(author=author):
                kind = "user" if author == "user" else "note"
                return _article(kind, _AUTHORS[author], entry, self._content(entry.content))
            case ExportedText():
                model = entry.exported_reply.model
                name = f"Agent ({model})" if model else "Agent"
                return _article("agent", name, entry, self._content(entry.content))
            case ExportedThinking(text=text):
                return _article(
                    "thinking",
                    "Thinking",
                    entry,
                    _details(_cut_line(text), _format_text(text)),
                )
            case ExportedToolUse():
                return self._call(entry)
            case ExportedCompaction(summary=summary):
                folded = _details("Summary of the earlier conversation", _format_text(summary))
                return _article("note", "Compaction", entry, folded)
            case ExportedNotice(text=text):
                return _article("error", "Problem", entry, _format_text(text))
            case ExportedToolResult() | ExportedTitle():
                return Markup("")  # a result is shown with its call

    def _call(self, entry: ExportedToolUse) -> Markup:
        result = self._results.get(entry.id)
        failed = result is not None and result.is_error
        input_json = msgspec.json.format(msgspec.json.encode(entry.input), indent=2).decode()
        parts = [_code(input_json)]
        if result is not None:
            parts.append(self._result(result))
        if (agent := self._conversation_fold.started_by.get(entry.id)) in self._threads:
            parts.append(self._subagent(agent or ""))
        summary = Markup(f"<b>{escape(entry.name)}</b> <code>{escape(_call_summary(entry))}</code>")
        body = Markup(f"<details><summary>{summary}</summary>{join_markup(parts)}</details>")
        kind = "tool error" if failed else "tool"
        return _article(kind, "Call failed" if failed else "Call", entry, body)

    def _result(self, result: ExportedToolResult) -> Markup:
        images = [self._block(block) for block in result.content if self._image(block)]
        text = "\n".join(describe_block(item) for item in result.content if not self._image(item))
        return join_markup([_code(text or "(no output)"), *images])

    def _subagent(self, thread_id: str) -> Markup:
        if (
            thread_id in self._rendered or self._depth >= _MAX_DEPTH
        ):  # these go to the end of the page
            return Markup("")
        self._rendered.add(thread_id)
        agent = self._conversation_fold.subagents.get(thread_id)
        name = thread_id if agent is None else agent.name
        task = f": {agent.description}" if agent and agent.description else ""
        self._depth += 1
        inner = join_markup(self._entry(entry) for entry in self._threads[thread_id])
        self._depth -= 1
        return _details(f"Subagent {name}{task}", inner)

    def _content(self, blocks: Sequence[Block]) -> Markup:
        return join_markup(self._block(block) for block in blocks)

    def _block(self, block: Block) -> Markup:
        if (image := self._image(block)) is not None:
            return image
        return _format_text(describe_block(block))

    def _image(self, block: Block) -> Markup | None:
        media = image_of(block, self._media)
        if media is None or media[0] not in _IMAGE_TYPES or not _BASE64.fullmatch(media[1]):
            return None
        return Markup(f'<p><img alt="image" src="data:{media[0]};base64,{media[1]}"></p>')


def _article(kind: str, name: str, entry: ExportedEntry, body: Markup) -> Markup:
    moment = f"{entry.at.time:%Y-%m-%d %H:%M:%S}"
    head = f"<header><b>{escape(name)}</b><time>{escape(moment)}</time></header>"
    return Markup(f'<article class="{kind}">{head}{body}</article>\n')


def _details(summary: str, body: Markup) -> Markup:
    return Markup(f"<details><summary>{escape(summary)}</summary>{body}</details>")


def _code(text: str) -> Markup:
    return Markup(f'<pre dir="auto">{escape(_cut(text))}</pre>')


def _call_summary(entry: ExportedToolUse) -> str:
    """The summary of a call before it is expanded."""
    first = "command" if entry.name in SHELL_TOOLS else next(iter(entry.input), "")
    value = entry.input.get(first, "")
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return _cut_line(text)


def _cut_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SUMMARY else f"{line[: _SUMMARY - 1]}…"


def _format_text(text: str) -> Markup:
    """Format code blocks, headings, inline code and bold words; show everything else literally."""
    return join_markup(
        _paragraph(lines) if language is None else _code("\n".join(lines))
        for language, lines in split_fences(_cut(text))
    )


def _paragraph(lines: Sequence[str]) -> Markup:
    text = "\n".join(lines).strip("\n")
    if not text.strip():
        return Markup("")
    lines_html = "\n".join(_inline(line) for line in text.split("\n"))
    return Markup(f'<div class="text" dir="auto">{lines_html}</div>')


def _inline(line: str) -> Markup:
    if heading := _HEADING.fullmatch(line):
        return Markup(f"<b>{escape(heading[1])}</b>")
    parts: list[Markup] = []
    end = 0
    for match in _CODE.finditer(line):
        parts.append(escape(line[end : match.start()]))
        tag, words = ("code", match[1]) if match[1] is not None else ("b", match[2])
        parts.append(Markup(f"<{tag}>{escape(words)}</{tag}>"))
        end = match.end()
    return join_markup([*parts, escape(line[end:])])


def _cut(text: str) -> str:
    if len(text) <= _MAX_CHARS:
        return text
    return f"{text[:_MAX_CHARS]}\n[{len(text) - _MAX_CHARS} more characters are in the log]"
