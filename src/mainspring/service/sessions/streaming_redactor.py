"""Redacts text while it is streamed, as the log redacts it later."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mainspring.core.content import TextBlock, plain_text
from mainspring.core.errors import MalformedEvent
from mainspring.core.events import AgentMessage
from mainspring.log.event_chain import Scrub, encode_scrubbed

BOUNDARIES = " \t\n\r\f\u3000、。！，？：；"
"""No secret contains one of these, so a word that one of them ends can be judged."""
_LONG_WORD_CHARS = 16
_LINE_END = "\\$^M"
"""What tools show of the end of a line; white space too."""
_LONG_WORD = re.compile(rf"[A-Za-z0-9+/_=.-]{{{_LONG_WORD_CHARS}}}[{re.escape(_LINE_END)}\s]*$")
"""A line that ends so may be part of a key, or a token may begin in it."""
_OPEN_SECRET = re.compile(
    r"(?i)(?:pass|pwd|pw|contrase)[^\n]{0,40}[:=][^\n]{0,200}\Z"
    r"|\b(?:echo|printf)\b[^\n]{0,200}\Z"
    r"|<[^<>\n]{0,40}(?:pass|pwd|pw|secret|token|credential|key)[^<>\n]{0,40}>[^<]{0,200}\Z"
)
"""A passphrase of which the last words are still to come; what a program that takes a password may
be given (`echo ... | sudo -S`); an element that has no end yet."""
_SECRET_WORDS = ("pass", "pw", "contrase", "echo", "printf", "<")
"""One of these is in every ASCII text, in lower case, that `_OPEN_SECRET` matches."""
_OPEN_CHARS = 300
_RECHECK_CHARS = 500
"""The whole text is judged each time: the longer it is, the more must have been added."""


class StreamingRedactor:
    """Of one message, gives out what is certain to stand in the log as it is.

    A word is held back until it is whole, for only then can be told whether it is a secret; and so
    is what may be the beginning of a known secret of several words (`passages`) or of a passphrase,
    or the first lines of a key or of a token that goes on. All is judged as the log judges it, with
    everything that was said before. After the first secret nothing more is given out: what follows
    may belong to it, and the event itself comes soon enough.
    """

    def __init__(self, scrub: Scrub, passages: Sequence[str] = ()) -> None:
        self._scrub = scrub
        self._passages = passages
        self._said = ""
        self._shown = 0
        self._is_shut = False

    def add(self, text: str) -> str:
        """Add text; returns what may be shown now."""
        if self._is_shut:
            return ""
        self._said += text
        end = len(self._said)
        if end - self._shown <= self._shown // _RECHECK_CHARS:
            return ""
        begin = end - len(text)
        while end > begin and self._said[end - 1] not in BOUNDARIES:
            end -= 1
        if end == begin:
            return ""
        begun = (_passage_start(self._said, passage, end) for passage in self._passages)
        return self._show(end, min(begun, default=end))

    def close(self) -> str:
        """The text is complete; returns the rest."""
        end = len(self._said)
        return "" if self._is_shut else self._show(end, end, is_whole=True)

    def _show(self, end: int, safe: int, *, is_whole: bool = False) -> str:
        """Of what was said up to `end`, the part up to `safe`, less lines that may belong to what
        follows."""
        said, begin = self._said[:end], self._shown
        shown = safe if is_whole else min(safe, _before_open_lines(said), _before_secret(said))
        if shown <= begin:
            return ""
        try:
            clean = _redacted(said, self._scrub)
        except MalformedEvent:  # half a character: the log will not have it either
            self._is_shut = True
            return ""
        self._is_shut = clean != said
        if not self._is_shut:
            self._shown = shown
            return said[begin:shown]
        pairs = enumerate(zip(clean, said, strict=False))
        unchanged = next((at for at, (one, other) in pairs if one != other), begin)
        return clean[begin:unchanged]


def _before_open_lines(said: str) -> int:
    """Where the lines begin that a secret of several lines may be made of, at the end. Of a line
    that has no end yet, only what tools put before it may be there."""
    last = at = said.rfind("\n") + 1
    while True:
        begin = said.rfind("\n", 0, max(at - 1, 0)) + 1
        if begin >= at or not _ends_with_long_word(said, begin, at):
            break
        at = begin
    return at if at < last or _ends_with_long_word(said, last, len(said)) else len(said)


def _ends_with_long_word(said: str, begin: int, end: int) -> bool:
    """Whether `_LONG_WORD` is in this part. It can only begin a word's length before the line end:
    a search from the beginning would cost the more, the longer the line is."""
    word_end = end
    while word_end > begin and (said[word_end - 1] in _LINE_END or said[word_end - 1].isspace()):
        word_end -= 1
    return _LONG_WORD.search(said, max(begin, word_end - _LONG_WORD_CHARS), end) is not None


def _before_secret(said: str) -> int:
    """Where a secret of several words begins that may continue after the end."""
    begin = max(0, len(said) - _OPEN_CHARS)
    tail = said[begin:].lower()
    if tail.isascii() and not any(word in tail for word in _SECRET_WORDS):
        return len(said)
    match = _OPEN_SECRET.search(said, begin)
    return len(said) if match is None else match.start()


def _redacted(text: str, scrub: Scrub) -> str:
    message = AgentMessage(content=(TextBlock(text),))
    payload, _ = encode_scrubbed(message, scrub)
    if payload is message:
        return text
    return plain_text(payload.content) if isinstance(payload, AgentMessage) else ""


def _passage_start(said: str, passage: str, end: int) -> int:
    """Where a passage begins, or may begin, that continues after `end`; else `end`."""
    size = len(passage)
    at = said.find(passage[0], max(0, end - size + 1), end)
    while at != -1 and not passage.startswith(said[at : at + size]):
        at = said.find(passage[0], at + 1, end)
    return end if at == -1 else at
