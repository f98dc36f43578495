"""Text in files: how it is encoded, how its lines end, and a change that keeps both."""

from __future__ import annotations

import codecs
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CONTROLS = bytes({*range(32), 127} - {*b"\t\n\r\f\b\x1b"})
_MAX_CONTROLS = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    text: str
    """Its lines end as they do in the file."""
    encoding: str = "utf-8"
    mark: bytes = b""
    """What the file begins with to say how it is encoded."""

    @property
    def newline(self) -> str:
        """How most lines end."""
        ends = self.text.count("\n")
        return "\r\n" if ends and self.text.count("\r\n") * 2 > ends else "\n"

    @property
    def plain(self) -> str:
        """With lines that end as models write them."""
        return self.text.replace("\r\n", "\n")

    def encoded(self, text: str) -> bytes:
        """Another text as this one is encoded.

        Raises:
            UnicodeEncodeError: it has characters that the encoding has not.
        """
        return self.mark + text.encode(self.encoding)

    def spelled(self, text: str) -> str:
        """A model's text with the line ends of this one; other than LF is never made LF."""
        return text if self.newline == "\n" else plain(text).replace("\n", self.newline)


def plain(text: str) -> str:
    return text.replace("\r\n", "\n")


def text_of(content: bytes) -> Text | None:
    """Read a file's content; `None` if it is no text."""
    for mark, encoding in _MARKS:
        if content.startswith(mark) and not content.startswith(codecs.BOM_UTF32_LE):
            try:
                text = content[len(mark) :].decode(encoding)
            except UnicodeDecodeError:
                return None
            return Text(text=text, encoding=encoding, mark=mark)
    if b"\0" in content:
        return None
    try:
        return Text(text=content.decode())
    except UnicodeDecodeError:
        pass
    # Any bytes are Latin-1, and come back as the same bytes; those of programs and pictures tell.
    controls = len(content) - len(content.translate(None, _CONTROLS))
    is_text = controls <= len(content) * _MAX_CONTROLS
    return Text(text=content.decode("latin-1"), encoding="latin-1") if is_text else None


def occurrences(text: str, wanted: str) -> Iterator[int]:
    at = text.find(wanted)
    while at >= 0:
        yield at
        at = text.find(wanted, at + len(wanted))


def replaced(source: Text, old: str, new: str, *, everywhere: bool) -> str:
    """The text with `new` for `old`, the first or every one; both have plain line ends.

    Nothing else is touched, also in a file whose lines end one way here and another there.
    """
    ends = [at - number for number, at in enumerate(occurrences(source.text, "\r\n"))]
    written = new.replace("\n", source.newline)
    pieces: list[str] = []
    done = 0
    for at in list(occurrences(source.plain, old))[: None if everywhere else 1]:
        pieces += [source.text[done : at + bisect_left(ends, at)], written]
        done = at + len(old) + bisect_left(ends, at + len(old))
    return "".join([*pieces, source.text[done:]])
