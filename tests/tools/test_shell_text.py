"""Terminal output as text."""

from hypothesis import given
from hypothesis import strategies as st

from mainspring.capabilities.tools.shell import LiveText, captured_text, strip_escapes
from mainspring.core.ports import CapturedOutput

PIECES = st.lists(
    st.sampled_from(
        [
            "\x1b[31m",
            "\x1b[0m",
            "\x1b]0;t\x07",
            "\x1b]8;;u\x1b\\",
            "\x1bPq\x1b\\",
            "\r\n",
            "\r",
            "\x1b(B",
            "a",
            "é",
            "😀",
            "\n",
            "\x08",
            "\x9b",
            "\x1b",
            "\x1b]",
        ]
    ),
    max_size=20,
)


@given(st.text())
def test_no_control_characters_remain_except_newline_and_tab(text: str):
    assert all(s in "\n\t" or s.isprintable() or ord(s) > 0x9F for s in strip_escapes(text))


@given(st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126)))
def test_printable_text_is_unchanged(text: str):
    assert strip_escapes(text) == text


@given(PIECES, st.integers(1, 7))
def test_live_output_in_chunks_equals_the_whole(pieces: list[str], size: int):
    whole = "".join(pieces) + "\x1b\\end"
    content = whole.encode()
    shown: list[str] = []
    live = LiveText(shown.append)
    for at in range(0, len(content), size):
        live(content[at : at + size])
    assert "".join(shown) == strip_escapes(whole)


def test_the_size_of_omitted_output_is_shown():
    cut = CapturedOutput(head=b"begin", tail=b"end", size=100)
    assert captured_text(cut) == "begin\n[... 92 bytes left out ...]\nend"


def test_a_character_split_between_head_and_tail_is_whole():
    assert captured_text(CapturedOutput(head=b"\xc3", tail=b"\xa9", size=2)) == "é"


def test_an_endless_escape_sequence_does_not_block_output():
    shown: list[str] = []
    live = LiveText(shown.append)
    live(b"\x1b]" + b"x" * 1000)
    assert "".join(shown)
