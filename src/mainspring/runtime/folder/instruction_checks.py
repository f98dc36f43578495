"""What `validate` says about instruction files that are read and still serve badly: too long, or
with two rules that contradict each other. A heuristic over the text; no model is asked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mainspring.harness.context.instructions import Section
from mainspring.runtime.folder.finding import Finding

LONG_CHARS = 40_000
_RULE = re.compile(
    r"^[\s>*+\-\d.)]*(?:\*\*)?"
    r"(?P<verb>always|must|never|do not|don't|must not|avoid|prefer)\b[\s:*]*(?P<rest>.{3,200})$",
    re.IGNORECASE,
)
_NEGATIVE = frozenset(("never", "do not", "don't", "must not", "avoid"))
_NOT_A_WORD = re.compile(r"[^\w/.+#-]+")
_FILLERS = frozenset(("use", "using", "the", "a", "an", "to", "any", "all", "be"))


def check_instructions(sections: Sequence[Section]) -> Iterator[Finding]:
    first: dict[tuple[frozenset[str], bool], tuple[Section, int]] = {}
    for section in sections:
        if len(section.text) > LONG_CHARS:
            yield Finding(
                level="warning",
                file=section.source,
                what=f"has {len(section.text):,} characters, all of them in every request",
                fix="move what is about certain files into rules with `paths`, or into skills",
            )
        for line, (topic, is_negative) in _rules(section.text):
            opposite = first.get((topic, not is_negative))
            first.setdefault((topic, is_negative), (section, line))
            if opposite is not None:
                other, other_line = opposite
                yield Finding(
                    level="warning",
                    file=section.source,
                    line=line,
                    what=f"contradicts {other.source}:{other_line}",
                    fix="keep one of the two, or say when each applies",
                )


def _rules(text: str) -> Iterator[tuple[int, tuple[frozenset[str], bool]]]:
    """Lines such as "Never use tabs": what they are about, and whether they forbid it."""
    for number, line in enumerate(text.splitlines(), 1):
        rule = _RULE.match(line)
        if rule is None:
            continue
        words = frozenset(word.strip(".").lower() for word in _NOT_A_WORD.split(rule["rest"]))
        topic = words - _FILLERS - {""}
        if topic:
            yield number, (topic, rule["verb"].lower() in _NEGATIVE)
