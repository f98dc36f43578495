"""Decodes server-sent events: chunks of bytes in, the data of complete events out."""

from __future__ import annotations

_BOM = b"\xef\xbb\xbf"
_MAX_ID_BYTES = 1_024
"""A limit, since the id is sent back as a header."""


class EventTooLarge(ValueError):
    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"an event of {size} bytes or more; at most {limit} are taken")


class SseDecoder:
    """Splits a stream into events, wherever its chunks begin and end.

    It works on bytes, so a chunk may end within a character, and it touches each byte a fixed
    number of times, however small the chunks are.
    """

    def __init__(self, *, max_event_bytes: int = 64 * 1024 * 1024) -> None:
        self._max_event_bytes = max_event_bytes
        self._tail: list[bytes] = []
        """Pieces of an incomplete line."""
        self._tail_bytes = 0
        self._data: list[bytes] = []
        """Data lines of an incomplete event."""
        self._data_bytes = 0
        self._at_start = True
        self._after_return = False
        self._id = b""
        self.last_id = ""
        """The id of the last event, from which a stream can be resumed."""
        self.retry_ms: int | None = None
        """How long to wait before a stream is resumed, as the server asks."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of every event that this chunk completes.

        Raises:
            EventTooLarge
        """
        if self._after_return or b"\r" in chunk:
            chunk = self._with_plain_line_ends(chunk)
        ended, newline, tail = chunk.rpartition(b"\n")
        events: list[bytes] = []
        if newline:
            if self._tail:
                ended = b"".join((*self._tail, ended))
                self._tail.clear()
                self._tail_bytes = 0
            events = self._events(ended)
        if tail:
            self._tail.append(tail)
            self._tail_bytes += len(tail)
        buffered = self._tail_bytes + self._data_bytes
        if buffered > self._max_event_bytes:
            raise EventTooLarge(buffered, self._max_event_bytes)
        return events

    def _with_plain_line_ends(self, chunk: bytes) -> bytes:
        if self._after_return and chunk:
            chunk = chunk.removeprefix(b"\n")  # the \r has already ended the line
            self._after_return = False
        if chunk.endswith(b"\r"):
            self._after_return = True
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _events(self, lines: bytes) -> list[bytes]:
        if self._at_start:
            self._at_start = False
            lines = lines.removeprefix(_BOM)
        events: list[bytes] = []
        for line in lines.split(b"\n"):
            if line.startswith(b"data:"):
                value = line[6:] if line.startswith(b"data: ") else line[5:]
                self._data.append(value)
                self._data_bytes += len(value)
            elif not line:
                if self._id:
                    self.last_id = self._id.decode("utf-8", "replace")
                    self._id = b""
                if self._data:
                    events.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                    self._data.clear()
                    self._data_bytes = 0
            elif line.startswith((b"id:", b"retry:")):
                self._read_position(line)
            # else a comment or `event:`, which we do not need
        return events

    def _read_position(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"id":
            self._id = value.strip()[:_MAX_ID_BYTES]
        elif value.strip()[:9].isdigit():
            self.retry_ms = int(value.strip()[:9])

    def end(self) -> list[bytes]:
        """The last event, if only the empty line after it is missing; a partial line is dropped."""
        return self._events(b"")
