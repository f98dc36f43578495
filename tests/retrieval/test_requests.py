"""What a request asks for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.retrieval.requests import parse_request


def stems(text: str) -> set[str]:
    return {term.stem for term in parse_request(text).terms}


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("open logo.png", {"open", "file", "imag"}),
        ("what does https://example.com/a?b=c say", {"url", "say"}),
        ("write to #general", {"write", "channel"}),
        ("tell @maria", {"tell", "user"}),
        ("invite ann@example.com", {"invit", "email"}),
        ("close OPS-12", {"close", "issu"}),
        ("the drop-down", {"drop", "dropdown"}),
        ("merge the PR", {"merg", "pr", "pull", "request"}),
    ],
)
def test_values_count_as_what_they_stand_for(text: str, meaning: set[str]):
    assert stems(text) >= meaning
    assert not stems(text) & {"logo", "exampl", "general", "maria", "ann", "op"}


def test_quoted_text_counts_less():
    weights = {term.stem: term.weight for term in parse_request('find the page "Roadmap"').terms}
    assert weights["page"] > weights["roadmap"] > 0


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("which files did I delete", "read"),
        ("please erase it", "delete"),
        ("a picture", ""),
        ("fix the typo", "update"),
    ],
)
def test_the_first_verb_or_a_question_word_says_what_is_to_be_done(text: str, action: str):
    assert parse_request(text).action == action


@given(st.text(max_size=200))
def test_any_text_is_a_request(text: str):
    terms = parse_request(text).terms
    assert len({term.stem for term in terms}) == len(terms)
    assert all(0 < term.weight <= 1 for term in terms)
