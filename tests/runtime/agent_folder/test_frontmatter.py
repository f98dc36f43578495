"""The head of a Markdown file, read as people write it."""

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.row_checks import for_each

from mainspring.harness.context.frontmatter import MAX_CHARS
from mainspring.runtime.definition_files.frontmatter_fields import (
    Fields,
    first_paragraph,
    read_frontmatter,
    split,
)

PLAIN = {"name": "x", "description": "Does it: now"}

# name -> (head, what it says, lines that something is odd about)
HEADS: dict[str, tuple[str, dict[str, object], list[int]]] = {
    "plain": ("a: b\nc: 1\n", {"a": "b", "c": 1}, []),
    "a colon in a value": ("a: b: c\nd: e\n", {"a": "b: c", "d": "e"}, [2]),
    "two lists in a row": ("a: [b] [c]\n", {"a": "[b] [c]"}, [2]),
    "a glob": ("a: **/*.ts\n", {"a": "**/*.ts"}, [2]),
    "reserved signs": ("a: @b\nc: `d`\ne: %f\n", {"a": "@b", "c": "`d`", "e": "%f"}, [2, 3, 4]),
    "text after quotes": ('a: "b" c\n', {"a": '"b" c'}, [2]),
    "a quote in quotes": ("a: 'it's'\nb: c\n", {"a": "it's", "b": "c"}, [2]),
    "a block that is not indented": ("a: >\nb c: d: e\n", {"a": "b c: d: e"}, [2]),
    "tabs": ("a:\n\tb: c\nd: e: f\n", {"a": {"b": "c"}, "d": "e: f"}, [4]),
    "all of it indented": ("  a: b\n  c: d: e\n", {"a": "b", "c": "d: e"}, [3]),
    "a key twice": ("a: b\na: c\n", {"a": "c"}, [3]),
    "numbers": ("a: 1.5\nb: -2\nc: 1.0.0\n", {"a": 1.5, "b": -2, "c": "1.0.0"}, []),
    "what JSON has not": (
        "a: 2025-11-16\nb: 12:30:00\nc: .inf\nd: 0x1f\ne: 99999999999999999999\n",
        {"a": "2025-11-16", "b": "12:30:00", "c": ".inf", "d": "0x1f", "e": "9" * 20},
        [],
    ),
    "truths": ("a: yes\nb: Off\nc: 'true'\n", {"a": True, "b": False, "c": "true"}, []),
    "null": ("a:\nb: ~\n", {"a": None, "b": None}, []),
    "tags": ("a: !!timestamp x\nb: !!int ''\nc: !x y\n", {"a": "x", "b": "", "c": "y"}, []),
    "aliases": ("a: &x [1]\nb: *x\n", {"a": [1], "b": "*x"}, [3]),
    "two documents": ("a: b\n...\nc: d\n", {"a": "b", "c": "d"}, [4]),
    "nothing": ("", {}, []),
    "a comment": ("# later\n", {}, []),
}


@for_each(("written", "fields", "odd"), HEADS.values())
def test_frontmatter_is_parsed_leniently(written: str, fields: dict[str, object], odd: list[int]):
    head = read_frontmatter(f"---\n{written}---\nbody\n")
    assert (head.fields, head.body, head.is_there) == (fields, "body\n", True)
    assert [issue.line for issue in head.issues] == odd


@pytest.mark.parametrize(
    "text",
    [
        "---\nname: x\ndescription: 'Does it: now'\n---\nbody\n",
        "---\r\nname: x\r\ndescription: 'Does it: now'\r\n---\r\nbody\r\n",
        "\ufeff---\nname: x\ndescription: 'Does it: now'\n---\nbody\n",
        "---  \nname: x\ndescription: 'Does it: now'\n--- \t\nbody\n",
        "\n\n---\nname: x\ndescription: 'Does it: now'\n---\nbody\n",
    ],
)
def test_line_endings_and_blanks_around_the_fences_do_not_matter(text: str):
    head = read_frontmatter(text)
    assert (head.fields, head.body, head.issues) == (PLAIN, "body\n", ())


def test_every_key_has_its_line_number():
    head = read_frontmatter("\n---\na: |\n  x\n  y\nb:\n  c: d\ne: f: g\n---\n")
    assert head.lines == {"a": 3, "b": 6, "e": 8}


@pytest.mark.parametrize(
    "text",
    [
        "no head\n",
        "---\nname: x\n\nwithout an end\n",
        "---\n\nA rule above, and one below.\n\n---\nbody\n",
        "",
    ],
)
def test_text_without_frontmatter_is_all_body(text: str):
    head = read_frontmatter(text)
    assert (head.fields, head.body, head.is_there) == ({}, text, False)


@pytest.mark.parametrize("written", ["- a", "a: " + "x" * MAX_CHARS, "? [a]\n: b", "[a"])
def test_frontmatter_without_fields_is_ignored_with_an_issue(written: str):
    head = read_frontmatter(f"---\n{written}\n---\nbody\n")
    assert (head.fields, head.body, head.is_there) == ({}, "body\n", False)
    assert len(head.issues) == 1


@pytest.mark.parametrize(
    "deep", ["- " * 40_000, "[" * 40_000, "? " * 40_000, "a: " + "{a: " * 9999]
)
def test_deep_nesting_does_not_crash_the_parser(deep: str):
    assert read_frontmatter(f"---\n{deep}\n---\nbody\n").issues != ()


def test_yaml_aliases_are_not_expanded():
    bomb = "a: &a [x, x]\n" + "".join(
        f"{name}: &{name} [*{before}, *{before}]\n"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert read_frontmatter(f"---\n{bomb}---\n").fields["i"] == "&i [*h, *h]"


@hypothesis_settings(max_examples=60)
@given(st.text())
def test_any_text_is_parsed_without_an_exception(text: str):
    read_frontmatter(text)
    read_frontmatter(f"---\n{text}\n---\n{text}")


PIECES = ("a: b", "a: b: c", " - x", "- y", "\tz: 1", "k: [", "k: {", "'q': |", "* &a", "<<: *a")
LINES = st.lists(st.sampled_from(PIECES))


@hypothesis_settings(max_examples=60)
@given(LINES)
def test_any_mixture_of_yaml_lines_is_parsed_without_an_exception(lines: list[str]):
    head = read_frontmatter("---\n" + "".join(f"{line}\n" for line in lines) + "---\nbody")
    assert head.body == "body"
    assert set(head.lines) == set(head.fields)


@hypothesis_settings(max_examples=50)
@given(st.lists(st.from_regex(r"[a-z]{1,5}(\([a-z:, *]{0,6}\))?", fullmatch=True)))
def test_words_in_parentheses_are_not_split(words: list[str]):
    assert split(", ".join(words), ", ") == split(" ".join(words), ", ") == tuple(words)


def test_spellings_of_a_key_are_equivalent_and_a_second_one_is_reported():
    fields = Fields(
        read_frontmatter("---\nallowed_tools: Read\nallowedTools: Write\n---\n"), "x.md"
    )
    assert fields.words("allowed-tools") == ("Read",)
    assert fields.extra() == {"allowedTools": "Write"}
    assert [finding.line for finding in fields.findings] == [3]


def test_the_first_paragraph_skips_rules_and_empty_lines():
    assert first_paragraph("---\n\n# Make it\nnow.\n\nLater.") == "Make it now."
    assert first_paragraph("\n \n") == ""


VALUES = st.one_of(
    st.text("aZ09 _./()'+-\"\\,:#[]{}&*!|>%@`~=?äß…\u2028\u00a0\u0085漢😀\t", max_size=6),
    st.sampled_from(["true", "No", "null", "1.5", "2026-01-02", "2026-13-99", "on ", "''", "y"]),
)


@given(st.lists(st.tuples(st.sampled_from(["name", "type", "a-b"]), VALUES, st.integers(0, 2))))
def test_plain_lines_are_read_as_yaml_reads_them(lines: list[tuple[str, str, int]]):
    forms = ("{}", '"{}"', '["{}", "b"]')
    head = "".join(f"{key}: {forms[form].format(value)}\n" for key, value, form in lines)
    by_yaml = read_frontmatter(f"---\n# a comment, so that YAML reads it\n{head}---\nbody")
    assert read_frontmatter(f"---\n{head}---\nbody").fields == by_yaml.fields
