"""The files that a thread has read, and when: a fold of its log, so it survives a restart."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from mainspring.core import events
from mainspring.core.clock import to_micros
from mainspring.core.envelope import Event, event_types
from mainspring.harness.permissions.tool_names import canonical_name
from mainspring.log.session_log import SessionLog

_WRITE_TOOLS = frozenset({"edit", "write"})
_FILE_TOOLS = _WRITE_TOOLS | {"read"}
"""Tools after which the model knows the content of a file."""
_EVENT_TYPES = event_types(
    events.AgentToolUse,
    events.AgentToolResult,
    events.ToolCallAuthorized,
    events.ToolCallStarted,
    events.SessionImported,
    events.SessionReceived,
)


async def file_read_times(log: SessionLog, session_id: str, thread_id: str) -> dict[str, int]:
    """The last time, in nanoseconds, at which the model knew each file, by the path it used.

    A file that has changed later must be read again."""
    fold = _FileReadFold()
    for event in await log.read(session_id, types=_EVENT_TYPES, threads=[thread_id]):
        fold.take(event)
    return {path: to_micros(time) * 1000 for path, time in fold.known.items()}


class _FileReadFold(Struct):
    known: dict[str, datetime] = {}
    _calls: dict[str, tuple[str, str, datetime]] = {}
    """Open calls: the tool, the path and the start time."""

    def take(self, event: Event) -> None:
        match event.payload:
            case events.AgentToolUse(name=name, input=args) if canonical_name(name) in _FILE_TOOLS:
                path = str(args.get("file_path", ""))
                self._calls[event.id] = (canonical_name(name), path, event.time)
            case events.ToolCallAuthorized(tool_use_id=id_, updated_input=dict(args)):
                if call := self._calls.get(id_):
                    self._calls[id_] = (call[0], str(args.get("file_path", "")), call[2])
            case events.ToolCallStarted(tool_use_id=id_):
                if call := self._calls.get(id_):
                    self._calls[id_] = (call[0], call[1], event.time)
            case events.AgentToolResult(tool_use_id=id_, is_error=is_error):
                self._settle(id_, event.time, is_error=is_error)
            case events.SessionImported() | events.SessionReceived():
                # the same path may be another file here
                self.known.clear()
                self._calls.clear()
            case _:
                pass

    def _settle(self, call_id: str, time: datetime, *, is_error: bool) -> None:
        """After a read, the model knows the file as of its start; after a write, as of its end."""
        call = self._calls.pop(call_id, None)
        if call is not None and call[1] and not is_error:
            name, path, started_at = call
            self.known[path] = time if name in _WRITE_TOOLS else started_at
