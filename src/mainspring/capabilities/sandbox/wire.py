"""The format of the keeper's messages and files: a list of byte strings, each after its length.
Without JSON, the keeper starts in a few milliseconds."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SOCKET = "keeper.sock"
"""The socket in the keeper's folder."""
READY, HELD = b"ready", b"held"
"""The first message of a new keeper: programs can be run; another keeper already exists."""

GUARD_RECORD, GUARD_LOCK = "guard.json", "guard.lock"
"""In the private folder of a session's sandbox: see `harness/permissions/guard_record.py`."""

CHANGED = "the workspace was changed while its sandbox was set up"
"""A message in the launcher's log: another attempt may succeed."""

_LENGTH = 4  # bytes before each part
MAX_FRAME = 64 * 1024 * 1024  # bytes of one message: a program's input or output


def pack(fields: Iterable[bytes]) -> bytes:
    return b"".join(len(field).to_bytes(_LENGTH, "big") + field for field in fields)


def unpack(packed: bytes) -> list[bytes]:
    """Raises:
    ValueError: it is cut off."""
    fields: list[bytes] = []
    at = 0
    while at < len(packed):
        begin = at + _LENGTH
        at = begin + int.from_bytes(packed[at:begin], "big")
        if at > len(packed):
            raise ValueError("cut off")
        fields.append(packed[begin:at])
    return fields


def pack_map(values: Mapping[str, bytes]) -> bytes:
    return pack(part for name, value in values.items() for part in (name.encode(), value))


def unpack_map(packed: bytes) -> dict[str, bytes]:
    """Raises: ValueError."""
    fields = unpack(packed)
    return {name.decode(): value for name, value in zip(fields[::2], fields[1::2], strict=True)}


def frame(*fields: bytes) -> bytes:
    return pack([pack(fields)])


class Frames:
    """Splits a byte stream into messages."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, piece: bytes) -> list[list[bytes]]:
        """The messages that are complete now.

        Raises:
            ValueError: the bytes are not a valid message.
        """
        self._pending += piece
        whole: list[list[bytes]] = []
        while len(self._pending) >= _LENGTH:
            end = _LENGTH + int.from_bytes(self._pending[:_LENGTH], "big")
            if end > MAX_FRAME:
                raise ValueError("too long")
            if len(self._pending) < end:
                break
            whole.append(unpack(bytes(self._pending[_LENGTH:end])))
            del self._pending[:end]
        return whole
