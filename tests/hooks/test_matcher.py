import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.hooks.hook_project import ALIASES
from tests.row_checks import for_each

from mainspring.capabilities.hooks.config import compile_matcher, names_with_aliases
from mainspring.core.errors import InvalidInput


@for_each(
    ("matcher", "name", "meant"),
    [
        ("", "bash", True),
        ("*", "anything at all", True),
        ("Bash", "bash", True),
        ("bash", "bash", True),
        ("Bash", "bash_output", False),
        ("BASH", "bash", False),
        ("Edit|Write", "write", True),
        ("Edit, Write", "write", True),
        ("Edit|Write", "read", False),
        ("Task", "agent", True),
        ("Agent", "agent", True),
        ("mcp__memory__.*", "mcp__memory__write", True),
        ("mcp__memory__.*", "mcp__other__write", False),
        ("mcp__memory", "mcp__memory__write", False),
        ("ash$", "bash", True),
        ("^Ba.h$", "bash", True),
        ("^Notebook", "bash", False),
    ],
)
def test_a_matcher_matches_names_in_both_spellings(matcher: str, name: str, meant: bool):
    assert compile_matcher(matcher)(names_with_aliases(name, ALIASES)) is meant


@pytest.mark.parametrize("matcher", ["(", "^(?!Read)", "(a)\\1", "[", ",", " | ", "\ud800"])
def test_a_matcher_that_could_never_run_is_refused(matcher: str):
    with pytest.raises(InvalidInput):
        compile_matcher(matcher)


@given(st.text(max_size=40), st.text(max_size=40))
@example("(a+)+$", "a" * 30 + "!")
def test_any_text_is_a_matcher_or_is_refused(matcher: str, name: str):
    try:
        wants = compile_matcher(matcher)
    except InvalidInput:
        return
    assert wants([name]) in (True, False)


@given(st.lists(st.from_regex(r"[A-Za-z0-9_-]+", fullmatch=True), min_size=1, max_size=5))
def test_a_list_matches_exactly_its_names(names: list[str]):
    wants = compile_matcher("|".join(names))
    assert all(wants([name]) for name in names)
    assert not wants(["x" + "".join(names)])


@given(st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.text("abcdefgh", max_size=20))
def test_an_expression_finds_the_same_as_pythons_re(word: str, text: str):
    assert compile_matcher(f"({word})")([text]) is (re.search(word, text) is not None)


def test_a_pathological_expression_takes_linear_time():
    assert compile_matcher("^(a|a|aa)+$")(["a" * 200_000 + "!"]) is False
