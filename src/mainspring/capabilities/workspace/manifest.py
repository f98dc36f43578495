"""What a snapshot says: every path with its kind, mode and content, and how two of them differ."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from mainspring.core.hands import Changed

Kind: TypeAlias = Literal["file", "folder", "link", "unreadable"]

FOLDER = b"folder"


class Item(Struct, frozen=True, array_like=True, gc=False):
    path: bytes
    kind: Kind
    """`unreadable`: it was there and we may not read it; a restore leaves it as it is."""
    mode: int = 0
    content: bytes = b""
    """The hash of a file's content, in hexadecimal; where a link leads; `FOLDER` of an unreadable
    folder."""

    @property
    def is_folder(self) -> bool:
        return self.kind == "folder" or (self.kind == "unreadable" and self.content == FOLDER)


Items: TypeAlias = dict[bytes, Item]
"""By path."""

_DECODER = msgspec.msgpack.Decoder(list[Item])


def packed(items: Iterable[Item]) -> tuple[str, bytes]:
    """The id of a snapshot, which says all that is in it, and its bytes."""
    plain = msgspec.msgpack.encode(sorted(items, key=lambda item: item.path))
    return hashlib.sha256(plain).hexdigest(), zlib.compress(plain, 1)


def unpacked(name: str, stored: bytes) -> Items:
    """Raises ValueError if these are not the bytes of that snapshot."""
    try:
        plain = zlib.decompress(stored)
    except zlib.error as error:
        raise ValueError("not compressed") from error
    if hashlib.sha256(plain).hexdigest() != name:
        raise ValueError("not what was written")
    return {item.path: item for item in _DECODER.decode(plain)}


def changes(older: Mapping[bytes, Item], newer: Mapping[bytes, Item]) -> list[Changed]:
    """What differs, sorted by path; a folder that comes or goes with what is in it is not told."""
    differing = sorted(
        path for path in older.keys() | newer.keys() if older.get(path) != newer.get(path)
    )
    telling = {parent for path in differing for parent in _parents(path)}
    return [
        _changed(path, older.get(path), newer.get(path))
        for path in differing
        if path not in telling or (path in older and path in newer)
    ]


def _parents(path: bytes) -> Iterable[bytes]:
    while path := path.rpartition(b"/")[0]:
        yield path


def _changed(path: bytes, older: Item | None, newer: Item | None) -> Changed:
    told = path.decode("utf-8", "backslashreplace")
    if older is None:
        return Changed(told, "added")
    return Changed(told, "removed" if newer is None else "modified")
