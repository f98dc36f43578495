"""Pinned text, which compaction keeps verbatim: rules, the goal of the task, constraints."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from mainspring.core.content import Block, plain_text
from mainspring.harness.context.messages import media_placeholder

WORDS_CHARS = 16_000
"""The limit for the user's other messages, newest first. Rules and goals have no limit."""
LONGEST_WORDS = 4_000  # characters of a user's message that is pinned; longer ones are not
_CONSTRAINT_WORDS = (
    *("do not", "don't", "don’t", "never", "always", "must", "only", "until", "unless", "without"),
    *("ask me", "ask first", "ask before", "wait for", "from now on", "make sure", "no matter"),
    *("nicht", "niemals", "immer", "nur ", "erst wenn", "bevor", "ohne ", "ab jetzt", "kein"),
    *("jamais", "toujours", "ne pas", "sans ", "avant de", "nunca", "siempre", "sin ", "antes de"),
    *("不要", "不能", "必须", "永远", "しないで", "必ず", "нельзя", "никогда", "всегда"),
)


class Pin(Struct, frozen=True):
    seq: int
    blocks: tuple[Block, ...]


def is_lasting_constraint(words: Iterable[Block]) -> bool:
    """Whether this may be a constraint beyond its task. Deliberately errs on the side of yes."""
    text = plain_text(tuple(words)).lower()
    return any(phrase in text for phrase in _CONSTRAINT_WORDS)


class Pins(Struct):
    """Rules stay pinned; the goal of a task and messages about it do until the task is done."""

    _rules: list[Pin] = []
    _goal: list[Pin] = []
    _words: list[Pin] = []
    _is_begun: bool = False
    _is_done: bool = False
    _inherited: int = 0
    """How many goals belong to the parent thread."""

    def add_rule(self, seq: int, blocks: tuple[Block, ...]) -> None:
        self._rules.append(Pin(seq, blocks))

    def add_words(self, seq: int, blocks: tuple[Block, ...]) -> None:
        """Add a message of the user: it is the goal if the model has not started on the task."""
        if self._is_done:
            self._words = [
                pin for pin in (*self._words, *self._goal) if is_lasting_constraint(pin.blocks)
            ]
            self._goal, self._is_begun, self._is_done = [], False, False
            self._inherited = 0
        (self._words if self._is_begun else self._goal).append(Pin(seq, blocks))

    def take_back(self, seq: int) -> None:
        self._goal = [pin for pin in self._goal if pin.seq != seq]
        self._words = [pin for pin in self._words if pin.seq != seq]

    def begin(self) -> None:
        """The model was called: later messages belong to a task in progress."""
        self._is_begun = True

    def finish(self) -> None:
        """The task is done; the next message starts a new one."""
        self._is_done = True

    def active(self) -> list[Pin]:
        """All pinned blocks, in the order of the conversation."""
        active_pins: list[Pin] = []
        room = WORDS_CHARS
        for pin in sorted(self._words, key=lambda pin: -pin.seq):
            size = len(plain_text(pin.blocks))
            if size <= min(room, LONGEST_WORDS):
                active_pins.append(pin)
                room -= size
        return sorted((*self._rules, *self._goal, *active_pins), key=lambda pin: pin.seq)

    def blocks(self) -> list[Block]:
        """The pinned blocks in order, each once."""
        return list(dict.fromkeys(block for pin in self.active() for block in pin.blocks))

    @property
    def goal(self) -> str:
        """The messages of the current task; empty before the model has started on it."""
        if not self._is_begun or self._is_done:
            return ""
        own = self._goal[self._inherited :]
        return plain_text(tuple(block for pin in own for block in pin.blocks))

    def drop_media(self, first_seq: int, last_seq: int) -> None:
        """Remove pinned media that the provider does not accept; text stays."""
        for pins in (self._goal, self._words):
            pins[:] = [
                Pin(pin.seq, tuple(map(media_placeholder, pin.blocks)))
                if first_seq <= pin.seq <= last_seq
                else pin
                for pin in pins
            ]

    def copy(self) -> Pins:
        return replace(self, _rules=[*self._rules], _goal=[*self._goal], _words=[*self._words])

    def branch(self) -> Pins:
        """The pins of a thread that branches off here with a task of its own."""
        twin = self.copy()
        twin._is_begun, twin._inherited = False, len(twin._goal)
        return twin
