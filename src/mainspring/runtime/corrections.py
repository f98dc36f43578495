"""Detects when a person corrects the same thing twice, and offers messages that help more than a
third correction: a request for a diagnosis, or a clean start with the goal and the corrections."""

from __future__ import annotations

import re

from mainspring.retrieval.stems import content_words, stem

_CORRECTION = re.compile(
    r"\s*(?:no\b|nope\b|wrong\b|not (?:what|like|that|right|quite)\b|still (?:not|wrong|no)\b"
    r"|that(?:'s| is| was) (?:not|wrong)\b|it(?:'s| is) (?:still|not)\b"
    r"|i (?:said|told|asked|meant)\b"
    r"|again\b|why (?:did|do) you\b|you (?:did|do|have)(?:n't| not)\b|you forgot\b"
    r"|do(?:n't| not)\b|stop\b|undo\b|instead\b|as i said\b)",
    re.IGNORECASE,
)
_WEAK = frozenset(map(stem, ("again", "still", "wrong", "said", "told", "meant", "please", "not")))
_MIN_SHARED = 1  # words that make it a correction of the same thing again


class Corrections:
    """Takes the person's messages in order."""

    def __init__(self) -> None:
        self.goal = ""
        """The last message before the corrections."""
        self._corrections: list[tuple[str, frozenset[str]]] = []

    def note(self, message: str) -> bool:
        """Whether this is the second correction of the same thing, or a later one."""
        if not self.goal or _CORRECTION.match(message) is None:
            self.goal = message
            self._corrections.clear()
            return False
        topic = frozenset(map(stem, content_words(message))) - _WEAK
        is_repeated = any(len(topic & earlier) >= _MIN_SHARED for _, earlier in self._corrections)
        self._corrections.append((message, topic))
        return is_repeated

    def diagnosis_request(self) -> str:
        """The message to send instead of the last correction."""
        return (
            f"{self._list()}\n\nDo not change anything yet. Say what I asked for, what you did"
            " instead and why, citing the lines or commands; name what you assumed that is wrong;"
            " then say what you will do differently, and wait."
        )

    def clean_start(self) -> str:
        """The first message of a new session."""
        return f"{self.goal}\n\nAn earlier attempt went wrong. {self._list()}"

    def clear(self) -> None:
        """Start over: the next message is a goal."""
        self.goal = ""
        self._corrections.clear()

    def _list(self) -> str:
        lines = "\n".join(f"- {message}" for message, _ in self._corrections)
        return f"These corrections apply:\n{lines}"
