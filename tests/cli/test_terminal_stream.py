"""Replies at a terminal: they appear as they stream, in wide and narrow windows."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.cells import cell_len
from tests.cli.terminal import Chat, Terminal, at_terminal
from tests.cli.upstream import Upstream


@pytest.fixture
def run_at_terminal(upstream: Upstream, place: Path, environ: dict[str, str]) -> Chat:
    """`mainspring run` at a terminal."""

    @contextmanager
    def begin(columns: int = 80) -> Generator[Terminal]:
        env = {**environ, **upstream.variables}
        with at_terminal("run", "go", cwd=place, env=env, columns=columns) as terminal:
            yield terminal

    return begin


def items(first: int, last: int) -> str:
    return "".join(f"{number}. item number {number}\n" for number in range(first, last))


def test_a_list_of_300_items_appears_as_it_streams(run_at_terminal: Chat, upstream: Upstream):
    go_on = threading.Event()
    upstream.says(
        "They are:\n", items(1, 150), "150. item num", go_on, "ber 150\n", items(151, 301)
    )
    with run_at_terminal() as terminal:
        terminal.watch("They are:")
        terminal.watch(" 148 item number 148")  # rendered: the reply is not over
        terminal.watch("150. item")  # as it came: the item is not over, and a word may be a secret
        assert "\x1b[?2026h" in terminal.raw
        go_on.set()
        assert terminal.wait() == 0
        shown = [row.split() for row in terminal.text.splitlines() if " item number " in row]
    assert shown == [[str(number), "item", "number", str(number)] for number in range(1, 301)]


def test_words_of_a_paragraph_appear_before_the_paragraph_ends(
    run_at_terminal: Chat, upstream: Upstream
):
    go_on = threading.Event()
    upstream.says("The **first** words ", go_on, "and the last.\n\nNext.")
    with run_at_terminal() as terminal:
        terminal.watch("The **first** words")
        go_on.set()
        assert terminal.wait() == 0
        assert "The first words and the last.\n\nNext." in terminal.text
        assert "**" not in terminal.text


@pytest.mark.parametrize("columns", [12, 24, 80])
def test_redrawn_rows_fit_into_narrow_windows(
    columns: int, run_at_terminal: Chat, upstream: Upstream
):
    words = "words 世界 that go on and on, with averyveryverylongwordinthemiddle of it. " * 6
    go_on = threading.Event()
    upstream.says(words, go_on, "\n\n- item one of a list that wraps\n- two")
    with run_at_terminal(columns) as terminal:
        terminal.watch("of it.")
        live = terminal.screen(columns)
        go_on.set()
        assert terminal.wait() == 0
        shown = terminal.screen(columns)
    assert all(cell_len(row) <= columns for row in [*live, *shown])
    spoken = "".join("".join(shown).split())
    assert "".join(words.split()) in spoken  # once, whole: nothing of the live rows is left
    assert spoken.count("averyveryvery") == 6


def test_the_light_theme_has_no_dark_backgrounds(
    upstream: Upstream, place: Path, environ: dict[str, str]
):
    colours: dict[str, str] = {}
    for theme in ("dark", "light"):
        upstream.says("Call `price()`.\n\n```py\nx = 1\n```\n")
        env = {**environ, **upstream.variables, "MAINSPRING_THEME": theme}
        with at_terminal("run", "go", cwd=place, env=env) as terminal:
            assert terminal.wait() == 0
            assert "Call price()." in terminal.text
            colours[theme] = terminal.raw
    assert "\x1b[1;36;40mprice()" in colours["dark"]
    assert "\x1b[1;34mprice()" in colours["light"]


def test_enlarging_the_window_duplicates_no_text(run_at_terminal: Chat, upstream: Upstream):
    go_on = threading.Event()
    upstream.says("some words that wrap in a narrow window ", go_on, "and more.\n\nThe end.")
    with run_at_terminal(24) as terminal:
        terminal.watch("window")
        terminal.resize(80)
        go_on.set()
        assert terminal.wait() == 0
        assert terminal.text.count("some words") == 1
        assert "The end." in terminal.text
