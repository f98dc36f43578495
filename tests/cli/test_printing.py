"""What others have written does not steer a terminal, and JSON keeps its value there."""

import json
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.conftest import Run, opened
from tests.cli.terminal import at_terminal

from mainspring.core.content import TextBlock
from mainspring.core.events import SessionCreated, UserMessage
from mainspring.edges.cli.render.printing import escape_json, sanitize_line, sanitize_text

STEERING = "\u009b31m\u0085\u202e\u2066\u200e\u061c\u200b\u2028\ufeff\x1b]0;x\x07\x7f"
CONTROLS = {item for item in STEERING if not item.isprintable()}
FAMILY = (
    "👩\u200d👩\u200d👧 ❤️ 🏳️\u200d🌈 नमस्\u200dते می\u200cخواهم"
    " 🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"
)


@given(st.text())
def test_json_escaped_for_a_terminal_keeps_its_value_without_control_characters(text: str):
    encoded = json.dumps({"a": [text, f"{text}{STEERING}"]}, ensure_ascii=False)
    try:
        shown = escape_json(encoded.encode()).decode()
    except UnicodeEncodeError:  # half a character: no JSON of ours has one
        return
    assert json.loads(shown) == json.loads(encoded)
    assert not set(shown) & CONTROLS


@given(st.text(alphabet=st.sampled_from(f"{STEERING}ab\n\té\u200d\u200c👩\u202e")))
def test_sanitized_text_contains_no_control_characters(text: str):
    for shown in (sanitize_line(text), sanitize_text(text)):
        assert not set(shown) & CONTROLS
    assert "\n" not in sanitize_line(text)


@pytest.mark.parametrize("show", [sanitize_line, sanitize_text])
def test_zero_width_joiners_are_kept_inside_emoji_and_replaced_elsewhere(show: object):
    assert callable(show)
    assert show(FAMILY) == FAMILY
    assert show("a\u200db \u200d") == "a\ufffdb \ufffd"
    assert escape_json(FAMILY.encode()) == FAMILY.encode()


def test_export_and_json_are_exact_in_a_pipe_and_escaped_at_a_terminal(
    mainspring: Run, place: Path, store: Path, environ: Mapping[str, str]
):
    async def tell() -> str:
        async with opened(store) as log:
            session = await log.create(SessionCreated())
            writer = await log.hold(session.id, owner="worker")
            await writer.append(UserMessage(content=(TextBlock(f"{STEERING} {FAMILY}"),)))
            await writer.release()
            return session.id

    session = anyio.run(tell)
    for arguments in (("log", "export", session), ("log", "show", session, "--json")):
        assert "\u009b" in mainspring(*arguments).stdout
        with at_terminal(*arguments, cwd=place, env=environ) as terminal:
            assert terminal.wait() == 0
        shown = terminal.raw
        assert not set(shown) & CONTROLS
        assert "\\u009b31m" in shown
        assert "\\u202e" in shown
