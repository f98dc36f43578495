"""Reads Claude Code's session files: `projects/<folder>/<session>.jsonl`, with subagents' files
beside them.

Entries form a tree by `parentUuid`; the conversation is the branch of the last entry. A reply with
several blocks is several lines with one `message.id`. Calls that ran at the same time form small
branches, which also belong to the conversation.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from mainspring.core.content import plain_text
from mainspring.core.errors import InvalidInput
from mainspring.runtime.import_sessions.claude_code_entries import (
    ClaudeCodeEntry,
    conversation,
    result_ids,
)
from mainspring.runtime.import_sessions.foreign_json import (
    JsonLine,
    JsonLines,
    branch_indexes,
    decode_object,
    head_lines,
    mapping,
    read_whole,
    string,
)
from mainspring.runtime.import_sessions.source_session import (
    SourceCall,
    SourcePrompt,
    SourceReply,
    SourceSession,
    SourceSubagent,
)

_MESSAGE_TYPES = ("user", "assistant")
_AGENT_FILE = "agent-"


@dataclass(slots=True)
class _File:
    """The entries of one file, and its data about the session."""

    entries: list[ClaudeCodeEntry] = field(default_factory=list[ClaudeCodeEntry])
    title: str | None = None
    is_titled: bool = False
    """Whether a person wrote the title."""


def is_claude_code(head: list[dict[str, object]]) -> bool:
    return any(
        "sessionId" in item or ("leafUuid" in item and item.get("type") == "summary")
        for item in head
    )


def is_subagent_file(path: Path) -> bool:
    """Whether the file belongs to a session beside it and is imported with that session."""
    return path.name.startswith(_AGENT_FILE)


def source_id(path: Path) -> str:
    """The name of the file, since lines copied from another session may carry that session's id."""
    return path.stem


class ClaudeCodeReader:
    """Reads files one after the other; lists the subagents' files of a folder only once."""

    def __init__(self) -> None:
        self._older_files: dict[Path, dict[str, list[Path]]] = {}

    def read(self, path: Path) -> SourceSession:
        """Raises: InvalidInput, OSError."""
        session = SourceSession(format="claude-code", path=str(path), id=source_id(path))
        lines = JsonLines(path, session.findings)
        file = _read_entries(lines, session)
        session.sha256 = lines.sha256
        session.title = file.title
        main = [entry for entry in file.entries if not entry.is_sidechain]
        side = [entry for entry in file.entries if entry.is_sidechain]
        if not main:  # a subagent's own file
            main, side = side, []
        branch = _branch(main, session, lines)
        _describe(session, branch)
        session.main = conversation(branch, session)
        _add_inline_subagents(session, side)
        started = _started_agents(file.entries)
        if not is_subagent_file(path):
            for item in self._files_of(path, session.id):
                started |= self._add_file(session, item)
        _link_calls(session, started)
        return session

    def _add_file(self, session: SourceSession, path: Path) -> dict[str, str]:
        """Read a subagent's file; return the calls that started further subagents, by their ids."""
        lines = JsonLines(path, session.findings)
        try:
            entries = _read_entries(lines, session).entries
        except (InvalidInput, OSError) as error:
            lines.add_finding(0, f"cannot be read: {error}")
            return {}
        if not entries:
            return {}
        metadata = _metadata(path.with_suffix(".meta.json"))
        agent_id = path.stem.removeprefix(_AGENT_FILE)
        name = string(metadata.get("agentType"))
        description = string(metadata.get("description")) or None
        session.source_subagents.append(
            SourceSubagent(
                id=agent_id,
                name=name,
                call_id=None,
                thread=conversation(entries, session),
                description=description,
            )
        )
        return _started_agents(entries)

    def _files_of(self, path: Path, session_id: str) -> list[Path]:
        folder = path.with_suffix("")
        paths = [*folder.glob("agent-*.jsonl"), *folder.glob("subagents/agent-*.jsonl")]
        older = self._older_files.get(path.parent)
        if older is None:
            older = self._older_files[path.parent] = _by_session(path.parent)
        files = [item for item in paths if item.is_file() and not item.is_symlink()]
        return sorted([*files, *older.get(session_id, ())])


def _by_session(folder: Path) -> dict[str, list[Path]]:
    """The files of subagents by session; older versions wrote them beside their sessions."""
    files: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(folder.glob("agent-*.jsonl")):
        try:
            head = [] if path.is_symlink() else head_lines(path, 1)
        except (InvalidInput, OSError):
            continue
        for item in head:
            files[string(item.get("sessionId"))].append(path)
    return files


def _metadata(path: Path) -> dict[str, object]:
    try:
        return decode_object(read_whole(path)) or {}
    except (InvalidInput, OSError):
        return {}


def _read_entries(lines: JsonLines, session: SourceSession) -> _File:
    file = _File()
    uuids: set[str] = set()
    for line in lines:
        uuid = string(line.value.get("uuid"))
        if not uuid:
            _read_metadata(file, session, lines, line)
        elif uuid not in uuids:  # a resumed session may repeat its beginning
            uuids.add(uuid)
            file.entries.append(_entry(line, uuid))
    return file


def _entry(line: JsonLine, uuid: str) -> ClaudeCodeEntry:
    parent = line.value.get("parentUuid") or line.value.get("logicalParentUuid")
    return ClaudeCodeEntry(line.number, uuid, string(parent) or None, line.value)


def _read_metadata(file: _File, session: SourceSession, lines: JsonLines, line: JsonLine) -> None:
    kind = string(line.value.get("type"))
    match kind:
        case "custom-title":
            file.title, file.is_titled = string(line.value.get("customTitle")) or None, True
        case "summary" | "ai-title" if not file.is_titled:
            title = line.value.get("summary") or line.value.get("aiTitle")
            file.title = string(title) or file.title
        case "user" | "assistant":
            lines.add_finding(line.number, f"a {kind} entry without uuid; it was left out")
        case "":
            lines.add_finding(line.number, "has no type; the line was left out")
        case _:
            session.left_out[kind] += 1


def _branch(
    main: list[ClaudeCodeEntry], session: SourceSession, lines: JsonLines
) -> list[ClaudeCodeEntry]:
    """The entries of the last branch, in file order. Files without parents have no branches."""
    if not any(item.parent for item in main):
        return main
    index_of = {entry.uuid: index for index, entry in enumerate(main)}
    last = max((i for i, entry in enumerate(main) if entry.type in _MESSAGE_TYPES), default=None)
    indexes = branch_indexes(main, index_of, last, lines)
    replies = {main[i].message_id for i in indexes if main[i].type == "assistant"}
    indexes |= {
        i
        for i, entry in enumerate(main)
        if entry.type == "assistant" and entry.message_id in replies
    }
    calls = {string(block.get("id")) for i in indexes for block in main[i].blocks} - {""}
    for i, entry in enumerate(main):
        if i not in indexes and result_ids(entry) and calls.issuperset(result_ids(entry)):
            indexes.add(i)
        elif i not in indexes and entry.type in _MESSAGE_TYPES:
            session.left_out["other branch"] += 1
    return [main[i] for i in sorted(indexes)]


def _describe(session: SourceSession, entries: list[ClaudeCodeEntry]) -> None:
    for entry in entries:
        session.started = session.started or entry.time
        for name, key in (("cwd", "cwd"), ("version", "version"), ("git_branch", "gitBranch")):
            if value := string(entry.value.get(key)):
                session.metadata.setdefault(name, value)


def _add_inline_subagents(session: SourceSession, side: list[ClaudeCodeEntry]) -> None:
    """Older versions wrote subagents' entries into the session's own file."""
    roots: dict[str, str] = {}
    groups: dict[str, list[ClaudeCodeEntry]] = defaultdict(list)
    for entry in side:
        agent_id = string(entry.value.get("agentId"))
        root = agent_id or roots.get(entry.parent or "") or entry.uuid
        roots[entry.uuid] = root
        groups[root].append(entry)
    for root, entries in groups.items():
        thread = conversation(entries, session)
        session.source_subagents.append(
            SourceSubagent(id=root, name="", call_id=None, thread=thread)
        )


def _started_agents(entries: list[ClaudeCodeEntry]) -> dict[str, str]:
    """Calls by the id of the subagent in their result."""
    return {
        agent_id: call_id
        for entry in entries
        if (agent_id := string(mapping(entry.value.get("toolUseResult")).get("agentId")))
        for call_id in result_ids(entry)
    }


def _link_calls(session: SourceSession, started: dict[str, str]) -> None:
    """Match subagents with the calls that started them: by the id in the result, else by the
    prompt."""
    threads = [
        session.main,
        *(source_subagent.thread for source_subagent in session.source_subagents),
    ]
    calls = {
        part.id: part
        for thread in threads
        for item in thread.items
        if isinstance(item, SourceReply)
        for part in item.parts
        if isinstance(part, SourceCall) and "prompt" in part.input
    }
    by_prompt = {string(call.input["prompt"]).strip(): call.id for call in calls.values()}
    for subagent in session.source_subagents:
        first = next((i for i in subagent.thread.items if isinstance(i, SourcePrompt)), None)
        prompt = plain_text(first.content).strip() if first else ""
        subagent.call_id = started.get(subagent.id) or by_prompt.get(prompt)
        call = calls.get(subagent.call_id or "")
        if call is not None:
            subagent.name = subagent.name or string(call.input.get("subagent_type"))
            description = string(call.input.get("description")) or None
            subagent.description = subagent.description or description
