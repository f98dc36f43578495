"""What a person typed in a message, without what travels in it: attached files and listings, the
text of a skill, quotes, code, and pasted text. Only this may become a memory.
"""

from __future__ import annotations

import re

from mainspring.core import events
from mainspring.core.content import TextBlock
from mainspring.core.envelope import Event

_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_ATTACHMENT = re.compile(r"<(?P<tag>[a-z][\w-]*)(?:\s[^<>]*)?>.*?(?:</(?P=tag)>|\Z)", re.DOTALL)
"""`<folder path='...'>` and the like: `@folder` in a message attaches a listing as text."""
_QUOTE = re.compile(
    r"\"[^\"\n]+\"|“[^”\n]+”|„[^“”\n]+[“”]|«[^»\n]+»|»[^«\n]+«|「[^」\n]+」|『[^』\n]+』"
)
_MAX_QUOTED_WORDS = 3
"""A quote of more words is a sentence of somebody else; a shorter one is a name."""
_PASTED = re.compile(
    r"\b(?:summari[sz]e|translate|explain|review|proofread|rewrite|shorten|says?|said|wrote|writes"
    r"|reads?|logs?|output|errors?|trace(?:back)?|e-?mails?|mails?|pages?|articles?|readme|texts?"
    r"|messages?|tickets?|issues?|comments?|below|following)\b[^\n]*:\s*(?:\n|\Z)",
    re.IGNORECASE,
)
"""A line that announces a text: what follows it was pasted."""


def own_words(event: Event) -> str:
    """The words of a person in an event; empty if a person did not write it."""
    if event.sender is None or event.sender.kind != "person":
        return ""
    match event.payload:
        case events.UserMessage(content=content, skill=None):
            return typed_words(
                "\n".join(block.text for block in content if isinstance(block, TextBlock))
            )
        case events.UserDefineOutcome(description=description):
            return typed_words(description)
        case _:
            return ""


def typed_words(text: str) -> str:
    """The text without code, attachments, quotes and pasted text."""
    text = _ATTACHMENT.sub(" ", _CODE.sub(" ", text))
    lines = (line for line in text.splitlines() if not line.lstrip().startswith(">"))
    text = _QUOTE.sub(_short_quote, "\n".join(lines))
    pasted = _PASTED.search(f"{text}\n")
    return text if pasted is None else text[: pasted.start()]


def _short_quote(quote: re.Match[str]) -> str:
    return quote[0] if len(quote[0].split()) <= _MAX_QUOTED_WORDS else " "
