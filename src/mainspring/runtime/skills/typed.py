"""How the model is told which skill a user has called, and what the user had typed for it."""

from __future__ import annotations

import re

from mainspring.core.content import Block, TextBlock, plain_text

_CALL = "<command-name>/{name}</command-name>\n<command-args>{arguments}</command-args>"
_CALLED = re.compile(
    r"<command-name>(/[^<\n]{1,200})</command-name>\n<command-args>(.*)</command-args>", re.DOTALL
)


def as_called(name: str, arguments: str) -> TextBlock:
    """What comes before the text of the skill."""
    return TextBlock(_CALL.format(name=name, arguments=arguments))


def as_typed(message: tuple[Block, ...]) -> str:
    """A user's message in the user's own words: of a skill that it calls, the call alone."""
    first = message[0] if message else None
    called = _CALLED.fullmatch(first.text) if isinstance(first, TextBlock) else None
    return f"{called[1]} {called[2]}".rstrip() if called else plain_text(message)
