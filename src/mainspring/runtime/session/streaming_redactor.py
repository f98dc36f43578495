"""Redacts text while it is streamed, as the log redacts it later."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from mainspring.core.content import TextBlock, plain_text
from mainspring.core.errors import MalformedEvent
from mainspring.core.events import AgentMessage
from mainspring.log.event_chain import Scrub, encode_scrubbed

BOUNDARIES = " \t\n\r\f\u3000、。！，？：；"
"""No secret contains one of these, so a word is complete once one of them follows it."""
_LONG_WORD_CHARS = 16  # a word that may become a secret is held back until it ends
_LINE_END = "\\$^M"
"""Characters that tools print for the end of a line; white space is allowed, too."""
_LONG_WORD = re.compile(rf"[A-Za-z0-9+/_=.-]{{{_LONG_WORD_CHARS}}}[{re.escape(_LINE_END)}\s]*$")
"""The end of a line that may be part of a key, or the beginning of a token."""
_OPEN_SECRET = re.compile(
    r"(?i)(?:pass|pwd|pw|contrase)[^\n]{0,40}[:=][^\n]{0,200}\Z"
    r"|\b(?:echo|printf)\b[^\n]{0,200}\Z"
    r"|<[^<>\n]{0,40}(?:pass|pwd|pw|secret|token|credential|key)[^<>\n]{0,40}>[^<]{0,200}\Z"
)
"""An unfinished passphrase; text that may be piped to a program as its password
(`echo ... | sudo -S`); an XML element without its end."""
_SECRET_WORDS = ("pass", "pw", "contrase", "echo", "printf", "<")
"""Every ASCII text that `_OPEN_SECRET` matches contains one of these, in lower case."""
_OPEN_CHARS = 300  # of an unfinished secret that are held back
_RECHECK_CHARS = 250
"""A check scans the whole text: the longer it is, the more must be added before the next check."""


class StreamingRedactor(Struct):
    """Streams the part of one message that the log is certain to contain unredacted.

    A word is held back until it is complete, because only then can a secret be recognized. Text is
    also held back if it may be the beginning of a known secret of several words (`passages`), of a
    passphrase, or of a key or token that continues on the next line. Text is redacted as the log
    does it, together with everything before it. After the first secret nothing more is streamed:
    the text after it may belong to it, and the complete event follows soon.
    """

    scrub: Scrub
    passages: Sequence[str] = ()
    _said: str = ""
    _shown: int = 0
    _is_shut: bool = False

    def add(self, text: str) -> str:
        """Add text; returns the text that may be shown now."""
        self._said += text
        if self._is_shut:
            return ""
        end = len(self._said)
        if end - self._shown <= self._shown // _RECHECK_CHARS:
            return ""
        begin = end - len(text)
        while end > begin and self._said[end - 1] not in BOUNDARIES:
            end -= 1
        if end == begin:
            return ""
        passage_starts = (_passage_start(self._said, passage, end) for passage in self.passages)
        return self._show(end, min(passage_starts, default=end))

    def close(self) -> str:
        """End the message; returns the rest of the text."""
        end = len(self._said)
        return "" if self._is_shut else self._show(end, end, is_whole=True)

    def whole(self) -> str:
        """End the message; returns all of it, redacted."""
        try:
            return _redacted(self._said, self.scrub)
        except MalformedEvent:
            return ""

    def _show(self, end: int, safe: int, *, is_whole: bool = False) -> str:
        """Show the text up to `safe`, without an end that may be part of an unfinished secret; the
        text up to `end` is checked."""
        text, begin = self._said[:end], self._shown
        visible = safe if is_whole else min(safe, _before_open_lines(text), _before_secret(text))
        if visible <= begin:
            return ""
        try:
            clean = _redacted(text, self.scrub)
        except MalformedEvent:  # a lone surrogate: the log will not have it either
            self._is_shut = True
            return ""
        self._is_shut = clean != text
        if not self._is_shut:
            self._shown = visible
            return text[begin:visible]
        pairs = enumerate(zip(clean, text, strict=False))
        unchanged = next((at for at, (clean_char, char) in pairs if clean_char != char), begin)
        return clean[begin:unchanged]


def _before_open_lines(text: str) -> int:
    """The start of the last lines that may be part of a secret of several lines. The last line may
    be unfinished."""
    last = at = text.rfind("\n") + 1
    while True:
        begin = text.rfind("\n", 0, max(at - 1, 0)) + 1
        if begin >= at or not _ends_with_long_word(text, begin, at):
            break
        at = begin
    return at if at < last or _ends_with_long_word(text, last, len(text)) else len(text)


def _ends_with_long_word(text: str, begin: int, end: int) -> bool:
    """Whether `_LONG_WORD` matches in this part. It can only begin a word's length before the line
    end: a search from the beginning would be slow on long lines."""
    word_end = end
    while word_end > begin and (text[word_end - 1] in _LINE_END or text[word_end - 1].isspace()):
        word_end -= 1
    return _LONG_WORD.search(text, max(begin, word_end - _LONG_WORD_CHARS), end) is not None


def _before_secret(text: str) -> int:
    """The start of a secret of several words that may continue after the end; else the end."""
    begin = max(0, len(text) - _OPEN_CHARS)
    tail = text[begin:].lower()
    if tail.isascii() and not any(word in tail for word in _SECRET_WORDS):
        return len(text)
    match = _OPEN_SECRET.search(text, begin)
    return len(text) if match is None else match.start()


def _redacted(text: str, scrub: Scrub) -> str:
    message = AgentMessage(content=(TextBlock(text),))
    payload, _ = encode_scrubbed(message, scrub)
    if payload is message:
        return text
    return plain_text(payload.content) if isinstance(payload, AgentMessage) else ""


def _passage_start(text: str, passage: str, end: int) -> int:
    """The start of a passage, or of its first part, that continues after `end`; else `end`."""
    size = len(passage)
    at = text.find(passage[0], max(0, end - size + 1), end)
    while at != -1 and not passage.startswith(text[at : at + size]):
        at = text.find(passage[0], at + 1, end)
    return end if at == -1 else at
