"""Markdown as it streams in: the same blocks however it is cut, in time that grows with it."""

from time import process_time

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from mainspring.edges.cli.render.markdown_blocks import (
    BlockSplitter,
    CodeLine,
    ListItem,
    MarkdownBlock,
    MarkdownPiece,
)
from mainspring.edges.cli.render.markdown_stream import LiveRows
from mainspring.edges.cli.render.printing import sanitize_text
from mainspring.edges.cli.render.renderer import key_argument

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


def test_blocks_end_at_empty_lines_and_code_is_emitted_line_by_line():
    text = "# Head\n\npara\nmore\n\n```py\nx = 1\n\ny = 2\n```\nafter"
    assert pieces(text) == [
        MarkdownBlock("# Head"),
        MarkdownBlock("para\nmore"),
        CodeLine("x = 1", "py", True),
        CodeLine("", "py", False),
        CodeLine("y = 2", "py", False),
        MarkdownBlock("after"),
    ]


def test_list_items_are_emitted_one_by_one_with_their_nested_content():
    text = "1. one\n\n   more\n\n   ```\n   code\n\n   ```\n2. two\n\nafter\n"
    assert pieces(text) == [
        ListItem("1. one\n\n   more\n\n   ```\n   code\n\n   ```", is_first=True),
        ListItem("2. two"),
        MarkdownBlock("after"),
    ]
    nested = "Here:\n- a\n  - b\n    1. c\n  - d\n\n- e"
    assert pieces(nested) == [
        MarkdownBlock("Here:"),
        ListItem("- a", is_first=True),
        ListItem("- b", 1),
        ListItem("1. c", 2),
        ListItem("- d", 1),
        ListItem("- e", has_gap=True),
    ]
    assert pieces("in 2026\n15. of them") == [MarkdownBlock("in 2026\n15. of them")]


def test_a_complete_block_is_emitted_at_once():
    blocks = BlockSplitter()
    assert blocks.feed("a paragraph\n") == []
    assert blocks.pending == "a paragraph\n"
    assert blocks.feed("\nnext") == [MarkdownBlock("a paragraph")]
    assert blocks.pending == "next"
    assert blocks.feed("\n\n```\ncode\n") == [MarkdownBlock("next"), CodeLine("code", "", True)]
    assert blocks.feed("```\n- one\n- tw") == []
    assert blocks.feed("o\n") == [ListItem("- one", is_first=True)]
    assert blocks.pending == "- two\n"


@given(st.text("ab é世\n\t", max_size=200), st.integers(2, 30), st.integers(1, 9))
def test_live_rows_show_the_end_of_the_text_regardless_of_chunking(
    text: str, width: int, size: int
):
    rows = LiveRows()
    for start in range(0, len(text), size):
        rows.append(text[start : start + size], width)
    assert all(cell_len(row) <= width for row in rows.last(100))
    assert "".join(text.split()).endswith("".join("".join(rows.last(100)).split()))


@given(st.lists(LINES, max_size=20), st.integers(1, 9))
def test_blocks_do_not_depend_on_chunking(lines: list[str], size: int):
    text = "\n".join(lines)
    chunks = [text[start : start + size] for start in range(0, len(text), size)]
    assert pieces(*chunks) == pieces(text)


@given(st.lists(LINES, max_size=20))
def test_no_line_of_text_is_lost(lines: list[str]):
    shown = "\n".join(piece.text for piece in pieces("\n".join(lines)))
    for line in lines:
        if not line.startswith(("```", "~~~")):
            assert line in shown


def test_splitting_time_grows_about_linearly_with_the_text():
    def seconds(count: int) -> float:
        chunks = ["word "] * count + ["- item\n\n"] * count
        return min(_measure_seconds(chunks) for _ in range(3))

    assert seconds(40_000) < 12 * seconds(10_000)


def _measure_seconds(chunks: list[str]) -> float:
    began = process_time()
    pieces(*chunks)
    return process_time() - began


def test_control_characters_are_replaced():
    assert sanitize_text("a\x1b[2J\tb\r\nc\x07") == "a\ufffd[2J\tb\nc\ufffd"


def test_the_most_informative_argument_is_shown():
    assert key_argument({"timeout": 5, "command": "ls"}) == "ls"
    assert key_argument({"note": "x", "path": "a.py"}) == "a.py"
    assert key_argument({"count": 3}) == "3"
    assert key_argument({"files": ["a.pdf", "b.svg"]}) == "a.pdf, b.svg"
    assert key_argument({"prompt": "a long task", "description": "a task"}) == "a task"
    assert key_argument({}) == ""
