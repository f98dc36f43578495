"""What a request asks for."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.row_checks import for_each

from mainspring.retrieval import request_phrases
from mainspring.retrieval.requests import parse_request
from mainspring.retrieval.stems import stem

PHRASES = Path(request_phrases.__file__).with_suffix(".txt")


def stems(text: str) -> set[str]:
    return {term.stem for term in parse_request(text).terms}


@for_each(
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
def test_values_count_as_their_kind(text: str, meaning: set[str]):
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
def test_the_first_verb_or_question_word_determines_the_action(text: str, action: str):
    assert parse_request(text).action == action


@given(st.text(max_size=200))
def test_any_text_is_parsed_as_a_request(text: str):
    terms = parse_request(text).terms
    assert len({term.stem for term in terms}) == len(terms)
    assert all(0 < term.weight <= 1 for term in terms)


def test_a_phrase_inside_a_longer_one_does_not_count():
    longer = parse_request("who is on call tonight").meanings
    assert any("oncal" in group for meaning in longer for group in meaning.groups)
    assert not any(("profil", "detail") in meaning.groups for meaning in longer)


def test_the_phrase_list_is_sorted_and_every_line_is_used():
    lines = PHRASES.read_text().splitlines()[2:]
    assert lines == sorted(lines)
    for line in lines:
        wanted, phrases = line.split(" = ")
        groups = tuple(tuple(map(stem, group.split("|"))) for group in wanted.split())
        asked = [parse_request(phrase).meanings for phrase in phrases.split("; ")]
        assert all(asked), line
        assert any(meaning.groups == groups for meanings in asked for meaning in meanings), line
