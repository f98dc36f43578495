"""Markdown as it streams in: the same blocks however it is cut, in time that grows with it."""

from time import process_time

from hypothesis import given
from hypothesis import strategies as st

from mainspring.edges.cli.markdown_stream import (
    BlockSplitter,
    CodeLine,
    MarkdownBlock,
    MarkdownPiece,
    sanitize_text,
)
from mainspring.edges.cli.renderer import key_argument

LINES = st.sampled_from(
    [
        "",
        "words",
        "- item",
        "1. item",
        "   more",
        "```",
        "```py",
        "~~~",
        "# head",
        "> quote",
        "|a|b|",
    ]
)


def pieces(*chunks: str) -> list[MarkdownPiece]:
    blocks = BlockSplitter()
    return [piece for chunk in chunks for piece in blocks.feed(chunk)] + blocks.close()


def test_blocks_end_at_empty_lines_and_code_comes_line_by_line():
    text = "# Head\n\npara\nmore\n\n```py\nx = 1\n\ny = 2\n```\nafter"
    assert pieces(text) == [
        MarkdownBlock("# Head"),
        MarkdownBlock("para\nmore"),
        CodeLine("x = 1", "py", True),
        CodeLine("", "py", False),
        CodeLine("y = 2", "py", False),
        MarkdownBlock("after"),
    ]


def test_a_list_is_one_block_with_all_that_belongs_to_its_items():
    text = "1. one\n\n   more\n\n   ```\n   code\n\n   ```\n2. two\n\nafter\n"
    whole, after = pieces(text)
    assert whole == MarkdownBlock("1. one\n\n   more\n\n   ```\n   code\n\n   ```\n2. two")
    assert after == MarkdownBlock("after")


def test_what_is_complete_is_given_out_at_once():
    blocks = BlockSplitter()
    assert blocks.feed("a paragraph\n") == []
    assert blocks.tail == "a paragraph "
    assert blocks.feed("\nnext") == [MarkdownBlock("a paragraph")]
    assert blocks.tail == "next"
    assert blocks.feed("\n\n```\ncode\n") == [MarkdownBlock("next"), CodeLine("code", "", True)]


@given(st.lists(LINES, max_size=20), st.integers(1, 9))
def test_how_it_is_cut_does_not_matter(lines: list[str], size: int):
    text = "\n".join(lines)
    chunks = [text[start : start + size] for start in range(0, len(text), size)]
    assert pieces(*chunks) == pieces(text)


@given(st.lists(LINES, max_size=20))
def test_no_word_is_lost(lines: list[str]):
    shown = "\n".join(piece.text for piece in pieces("\n".join(lines)))
    for line in lines:
        if not line.startswith(("```", "~~~")):
            assert line in shown


def test_twice_the_text_takes_about_twice_the_time():
    def seconds(count: int) -> float:
        chunks = ["word "] * count + ["- item\n\n"] * count
        return min(_timed(chunks) for _ in range(3))

    assert seconds(40_000) < 12 * seconds(10_000)


def _timed(chunks: list[str]) -> float:
    began = process_time()
    pieces(*chunks)
    return process_time() - began


def test_what_could_steer_a_terminal_is_replaced():
    assert sanitize_text("a\x1b[2J\tb\r\nc\x07") == "a\ufffd[2J\tb\nc\ufffd"


def test_the_argument_that_tells_most_is_shown():
    assert key_argument({"timeout": 5, "command": "ls"}) == "ls"
    assert key_argument({"note": "x", "path": "a.py"}) == "a.py"
    assert key_argument({"count": 3}) == "3"
    assert key_argument({"files": ["a.pdf", "b.svg"]}) == "a.pdf, b.svg"
    assert key_argument({"prompt": "a long task", "description": "a task"}) == "a task"
    assert key_argument({}) == ""
