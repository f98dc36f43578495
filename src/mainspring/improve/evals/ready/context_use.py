"""Context use: a fact from turn 3 is needed at turn 60; a rule is given at the start, in the
middle, at the end, or before a compaction."""

from __future__ import annotations

from collections.abc import Iterator

from mainspring.improve.evals.graders import Contains, NotContains, Regex, Trajectory
from mainspring.improve.evals.ready.scripts import script
from mainspring.improve.evals.suite import COMPACT, Case, Suite

_TURNS = 60  # long enough for a compaction
_TOPICS = (
    "a comet",
    "bread",
    "a canal lock",
    "the tides",
    "a printing press",
    "frost",
    "a violin",
    "granite",
)
_FACTS = {
    "gate-code": (
        "The code of the north gate is 7319.",
        "What is the code of the north gate?",
        "7319",
    ),
    "supplier": ("Our supplier for hinges is Velmora.", "Who supplies our hinges?", "Velmora"),
    "deadline": ("The audit is on 23 March.", "When is the audit?", "23 March"),
}
_RULE = "From now on, end every answer with the word OVER."
_FOLLOWED = r"OVER\W*$"


def context_use_suite() -> Suite:
    return Suite(
        name="context-use",
        description=f"Facts and rules over {_TURNS} turns, and after a compaction.",
        cases=(*_facts(), *_rules(), *_newest_fact()),
        timeout_seconds=1800,
    )


def _talk(count: int, first: int = 1) -> list[str]:
    """Turns that are not related to the fact."""
    return [
        f"Turn {number}: name one property of {_TOPICS[number % len(_TOPICS)]} that most people"
        " know, in a few words, and one that hardly anybody knows."
        for number in range(first, first + count)
    ]


def _facts() -> Iterator[Case]:
    for name, (fact, question, answer) in _FACTS.items():
        for is_compacted in (False, True):
            talk = [*_talk(2), fact, *_talk(_TURNS - 4, 4)]
            messages = (*talk, *([COMPACT] if is_compacted else []), question)
            yield Case(
                id=f"fact-{name}{'-after-compaction' if is_compacted else ''}",
                input=tuple(messages),
                tier="full",
                tags=("fact of turn 3", "compaction" if is_compacted else "whole"),
                graders=(Contains(text=answer, ignore_case=True), Trajectory(ended="completed")),
                solution=script(f"{answer}, as you told me."),
                failure=script("I do not know that."),
            )


def _rules() -> Iterator[Case]:
    length = 12
    for place, before in (("start", 0), ("middle", length // 2), ("end", length - 1)):
        for is_compacted in (False, True):
            talk = [*_talk(before), _RULE, *_talk(length - before, before + 1)]
            messages = (*talk, *([COMPACT] if is_compacted else []), "What is a hinge for?")
            yield Case(
                id=f"rule-at-the-{place}{'-after-compaction' if is_compacted else ''}",
                input=tuple(messages),
                tags=("rule", place, "compaction" if is_compacted else "whole"),
                graders=(
                    Regex(pattern=_FOLLOWED),
                    Trajectory(in_context="end every answer with the word OVER"),
                ),
                solution=script("It lets a door swing. OVER"),
                failure=script("It lets a door swing."),
            )


def _newest_fact() -> Iterator[Case]:
    """A later statement replaces an earlier one."""
    yield Case(
        id="newest-fact",
        input=(
            "The gate is painted green.",
            *_talk(6),
            "We have painted the gate again: it is blue now.",
            *_talk(6, 7),
            "Which color has the gate? One word.",
        ),
        tags=("newest fact",),
        graders=(
            Contains(text="blue", ignore_case=True),
            NotContains(text="green", ignore_case=True),
        ),
        solution=script("Blue."),
        failure=script("Green."),
    )
