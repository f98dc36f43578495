"""Text of others inside tags of ours: it must not end the tags around it, or begin others."""

from __future__ import annotations

import re

_ESCAPED = "\\u003c"


def without_tags(text: str, *names: str) -> str:
    """The text with the `<` of these tags escaped, however they are spaced or written."""
    if "<" not in text:
        return text
    tag = rf"<(?=\s*/?\s*(?:{'|'.join(map(re.escape, names))})\b)"
    return re.sub(tag, lambda _: _ESCAPED, text, flags=re.IGNORECASE)
