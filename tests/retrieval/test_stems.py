"""Words and stems: every index and every query cut texts in the same way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.retrieval.stems import name_words, stem, stems, words

PAIRS = """
consign:consign consigned:consign consigning:consign consignment:consign consist:consist
consistency:consist consistently:consist consolation:consol knack:knack
knackeries:knackeri knightly:knight knave:knave dying:die generously:generous
generate:generat communism:communism skies:sky news:news proceed:proceed happy:happi
cried:cri ties:tie gas:gas kiwis:kiwi hopping:hop hoping:hope added:add luxuriated:luxuri
sensational:sensat feed:feed agreed:agre rational:ration relational:relat adoption:adopt
replacement:replac hopefulness:hope controlling:control roll:roll organization:organiz
university:universiti evening:evening yes:yes boy:boy flying:fli
"""


@pytest.mark.parametrize("pair", PAIRS.split())
def test_stems_are_those_of_the_english_snowball_stemmer(pair: str):
    word, expected = pair.split(":")
    assert stem(word) == expected


def test_names_are_cut_at_capitals_and_underscores():
    assert name_words("readFile HTTPServer mcp__git__git_log") == [
        *("read", "file", "http", "server", "mcp", "git", "git", "log")
    ]


def test_accents_do_not_count_and_scripts_without_spaces_are_cut_into_pairs():
    assert words("Café ÉTÉ") == ["cafe", "ete"]
    assert words("記憶検索") == ["記憶", "憶検", "検索"]
    assert words("Привет") == ["привет"]
    assert words("한국어") == ["한국", "국어"]


def test_stop_words_are_left_out():
    assert stems("What is the name of the replies?") == ["name", "repli"]


@given(st.text())
def test_any_text_has_stems(text: str):
    assert all(stems(text)) or stems(text) == []
