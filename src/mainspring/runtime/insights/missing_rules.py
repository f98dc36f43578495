"""Detects missing rules: corrections and decisions on approvals that people repeat."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from mainspring.core.content import plain_text
from mainspring.core.envelope import Event
from mainspring.core.events import UserMessage
from mainspring.harness.permissions.always_allow import always_allow_rule
from mainspring.harness.permissions.rule import rule_text
from mainspring.harness.permissions.tool_names import claude_code_name
from mainspring.retrieval.bm25 import tokenize
from mainspring.runtime.insights.insight import (
    MAX_KEYS,
    Insight,
    InsightGroup,
    InsightGroups,
    ObservedCall,
    shorten,
)

_CORRECTION = re.compile(
    r"\b(?:don'?t|do not|never|always|stop|instead|must not|should not|shouldn'?t|rather than"
    r"|i (?:said|told)|as i said|not like that|please use|make sure)\b|^no[,.! ]",
    re.IGNORECASE,
)
_NEGATION = re.compile(r"\b(?:don'?t|not|never|no|stop|shouldn'?t)\b", re.IGNORECASE)
_NEGATION_MARK = "¬"
_SENTENCE = re.compile(r"[.!?\n]+")
_MAX_TEXT = 4_000  # characters of a message that are read
_WORDS = range(3, 31)
_FILLERS = frozenset(
    tokenize(
        "a an and are as at be but by for from i in is it its of on or please so that the then"
        " there this to we with you your me my us our now just ok okay well have has had do does"
        " did can could would will here but always instead rather than sure make said told"
        " never not no don dont shouldn shouldnt must should stop t"
    )
)
_MIN_SIMILARITY = 0.6  # of two corrections that ask for the same rule
_MAX_COMPARED = 50  # earlier corrections that a new one is compared with
_MAX_COMMAND = 120  # characters
_SPECIAL = re.compile(r"[*()\\]")
_MIN_SESSIONS, _MIN_TIMES = 2, 3  # in which a rule was missing, or so many times in all
_MIN_ALLOWED, _MIN_DENIED = 3, 2  # times that a person allowed, or denied, the same
_DENIED_ELSEWHERE = "The user doesn't want to proceed with this tool use"
"""The text with which Claude Code records a denial."""


@dataclass(slots=True)
class _Correction:
    words: frozenset[str]
    text: str
    """The shortest wording."""
    insight_group: InsightGroup = field(default_factory=InsightGroup)


@dataclass(slots=True)
class RuleDetector:
    allowed: InsightGroups = field(default_factory=InsightGroups)
    denied: InsightGroups = field(default_factory=InsightGroups)
    corrections: list[_Correction] = field(default_factory=list[_Correction])
    _by_word: dict[str, list[int]] = field(default_factory=dict[str, list[int]])

    def answered(self, call: ObservedCall, event: Event, *, is_allowed: bool) -> None:
        rule = always_allow_rule(call.tool, call.input)
        key = _this_command(call) if rule is None else rule_text(rule)
        if key is not None:
            groups = self.allowed if is_allowed else self.denied
            groups.group(key).add(event.session_id, event.seq)

    def failed(self, call: ObservedCall, event: Event, text: str) -> None:
        if text.startswith(_DENIED_ELSEWHERE):
            self.answered(call, event, is_allowed=False)

    def add_message(self, event: Event, payload: UserMessage) -> None:
        """Check a message sentence by sentence; it counts once for each correction."""
        indexes: set[int] = set()
        for sentence in _SENTENCE.split(plain_text(payload.content)[:_MAX_TEXT]):
            if len(sentence.split()) not in _WORDS or not _CORRECTION.search(sentence.strip()):
                continue
            words = _meaning(sentence)
            index = self._similar(words) if len(words) > 2 else None
            if index is None or index in indexes:
                continue
            indexes.add(index)
            correction = self.corrections[index]
            correction.insight_group.add(event.session_id, event.seq)
            correction.text = min(correction.text or sentence, sentence, key=len)

    def _similar(self, words: frozenset[str]) -> int | None:
        """The index of a similar correction; adds one if there is none and the limit allows it."""
        common_words = Counter(
            index for word in words for index in self._by_word.get(word, ())[:_MAX_COMPARED]
        )
        for index, count in common_words.most_common(_MAX_COMPARED):
            if count / len(words | self.corrections[index].words) >= _MIN_SIMILARITY:
                return index
        if len(self.corrections) >= MAX_KEYS:
            return None
        self.corrections.append(_Correction(words, ""))
        for word in words:
            self._by_word.setdefault(word, []).append(len(self.corrections) - 1)
        return len(self.corrections) - 1

    def insights(self) -> list[Insight]:
        decisions = (
            ("allow", "always_allowed", self.allowed, self.denied, _MIN_ALLOWED),
            ("deny", "always_denied", self.denied, self.allowed, _MIN_DENIED),
        )
        return self._corrected() + [
            group.insight(
                "missing_rule",
                topic,
                title=f"{topic.replace('_', ' ')} by a person: {rule}",
                action=f'add "{rule}" to permissions.{behavior} in .mainspring/settings.local.json',
            )
            for behavior, topic, groups, opposite, min_count in decisions
            for rule, group in groups.by_key.items()
            if group.count >= min_count and rule not in opposite.by_key
        ]

    def _corrected(self) -> list[Insight]:
        return [
            correction.insight_group.insight(
                "missing_rule",
                "correction",
                title=f"said repeatedly: {shorten(correction.text)}",
                action=f"add to AGENTS.md: - {shorten(correction.text)}",
            )
            for correction in self.corrections
            if correction.insight_group.sessions >= _MIN_SESSIONS
            or correction.insight_group.count >= _MIN_TIMES
        ]


def _this_command(call: ObservedCall) -> str | None:
    """A rule for exactly this command, if no wider rule would be safe."""
    command = call.command
    if command is None or len(command) > _MAX_COMMAND or _SPECIAL.search(command):
        return None
    return f"{claude_code_name(call.tool)}({command})"


def _meaning(sentence: str) -> frozenset[str]:
    """The significant words, and whether the sentence forbids something."""
    words = frozenset(tokenize(sentence)) - _FILLERS
    return words | {_NEGATION_MARK} if words and _NEGATION.search(sentence) else words
