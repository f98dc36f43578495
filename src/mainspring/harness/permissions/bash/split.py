"""From a text to the simple commands in it."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache

from mainspring.harness.permissions.bash.builtins import KNOWN
from mainspring.harness.permissions.bash.command import Command, Commands, Unclear
from mainspring.harness.permissions.bash.hazards import changes_meaning, hazard
from mainspring.harness.permissions.bash.lex import Confusing
from mainspring.harness.permissions.bash.scan import MAX_COMMANDS, Found, scan
from mainspring.harness.permissions.bash.surface import disguise
from mainspring.harness.permissions.bash.tree import signatures
from mainspring.harness.permissions.bash.wrappers import opened

_MAX_WRAPPERS = 8
_MAX_TEXTS = 64


def split(text: str) -> Commands | Unclear:
    """Everything that bash could run for `text`, at any depth, or why that cannot be told.

    Never raises, whatever the text.
    """
    if reason := disguise(text):
        return Unclear(reason)
    return _split(text)


@lru_cache(maxsize=64)
def _split(text: str) -> Commands | Unclear:
    """Kept for a moment, as one decision asks many questions about one text."""
    collector = _Collector()
    try:
        collector.collect(text, _MAX_WRAPPERS)
    except Confusing as error:
        return Unclear(str(error), tuple(collector.commands))
    if collector.exhausted:
        return Unclear("too many commands in one another", tuple(collector.commands))
    return Commands(tuple(collector.commands))


class _Collector:
    def __init__(self) -> None:
        self.commands: list[Command] = []
        self._texts_left = _MAX_TEXTS

    @property
    def exhausted(self) -> bool:
        return self._texts_left < 0 or len(self.commands) > MAX_COMMANDS

    def collect(self, text: str, wrappers_left: int) -> None:
        """Raises:
        Confusing: `commands` has what was found up to there.
        """
        self._texts_left -= 1
        if self.exhausted or wrappers_left < 0:
            raise Confusing("too many commands in one another")
        found = Found()
        problem = _read(text, found)
        for command in found.commands:
            problem = problem or hazard(command)
        for command in found.commands:
            try:
                self._unwrap(command, wrappers_left)
            except Confusing as error:
                problem = problem or str(error)
        if problem:
            raise Confusing(problem)

    def _unwrap(self, command: Command, wrappers_left: int) -> None:
        wrapped = opened(command)
        if not wrapped.transparent:
            self.commands.append(command)
        if self.exhausted or wrappers_left < 0:
            raise Confusing("too many commands in one another")
        problem = wrapped.unclear
        for inner in wrapped.commands:
            problem = problem or hazard(inner)
            self._unwrap(inner, wrappers_left - 1)
        for text in wrapped.texts:
            self.collect(text, wrappers_left - 1)
        for text in wrapped.guesses:
            with suppress(Confusing):  # a guess may be anything; what was found in it counts
                self.collect(text, wrappers_left - 1)
        if problem:
            raise Confusing(problem)


def _read(text: str, found: Found) -> str | None:
    """Both readings; why they cannot be trusted, if so."""
    try:
        scan(text, found)
        by_grammar = signatures(text)
    except Confusing as error:
        return str(error)
    if sorted(by_grammar) != sorted(found.signatures):
        return "the text can be read in two ways"
    if any(name in KNOWN or not name.isidentifier() for name in found.functions):
        return "a function takes the place of a command"
    if any(map(changes_meaning, found.variables)):
        return "a loop sets a variable that changes what commands do"
    return None
