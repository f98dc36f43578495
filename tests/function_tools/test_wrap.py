"""Tools around tools: each wrapper changes one thing and leaves the rest."""

from collections.abc import Mapping
from dataclasses import replace

import anyio
from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.content import (
    Base64Source,
    BlobBlock,
    BlobSource,
    ImageBlock,
    TextBlock,
    plain_text,
)
from mainspring.core.tool import Call, Tool, ToolResult
from mainspring.function_tools.define import tool
from mainspring.function_tools.wrap import (
    capped,
    filtered,
    head_and_tail,
    read_hint,
    renamed,
    with_approval,
    with_timeout,
)

IMAGE = ImageBlock(source=Base64Source(media_type="image/png", data="AA=="))
CALL = Call(
    id="call_1",
    name="echo",
    input={"text": "hi"},
    idempotency_key="key_1",
    session_id="sesn_1",
    thread_id="sthr_1",
)


@tool(read_only=True)
async def echo(text: str, call: Call) -> str:
    """Say it again."""
    return f"{call.name}: {text}"


def gives(*content: TextBlock | ImageBlock) -> Tool:
    async def run(call: Call) -> ToolResult:
        return ToolResult(content, details="for people")

    return replace(echo, run=run)


class Kept:
    def __init__(self) -> None:
        self.contents: list[bytes] = []

    async def __call__(self, content: bytes) -> BlobSource:
        self.contents.append(content)
        return BlobSource(hash="sha256:ab", size=len(content), media_type="text/plain")


async def test_a_call_within_its_time_limit_is_not_touched():
    assert await with_timeout(echo, 5).run(CALL) == ToolResult.text("echo: hi")


async def test_a_call_over_its_time_limit_fails_in_words():
    async def run(call: Call) -> ToolResult:
        await anyio.sleep_forever()
        return ToolResult.text("never")

    with anyio.fail_after(60):
        outcome = await with_timeout(replace(echo, run=run), 0.01).run(CALL)
    assert not outcome.ok
    assert plain_text(outcome.content).startswith("echo was stopped: it took longer than 0.01 s")


async def test_a_renamed_tool_sees_its_calls_under_its_own_name():
    seen: list[str] = []

    async def probe(call: Call) -> ToolResult | None:
        seen.append(call.name)
        return None

    other = renamed(replace(echo, probe=probe), "say")
    assert (other.spec.name, other.spec.description) == ("say", echo.spec.description)
    assert await other.run(replace(CALL, name="say")) == ToolResult.text("echo: hi")
    assert other.probe is not None
    await other.probe(replace(CALL, name="say"))
    assert seen == ["echo"]
    assert renamed(echo, "say").probe is None


async def test_a_refused_input_is_told_and_not_run():
    def polite(given: Mapping[str, object]) -> str | None:
        return "no shouting" if str(given["text"]).isupper() else None

    quiet = filtered(echo, polite)
    assert await quiet.run(CALL) == ToolResult.text("echo: hi")
    assert quiet.invalid({"text": "HI"}) == "no shouting"
    assert await quiet.run(replace(CALL, input={"text": "HI"})) == ToolResult.text(
        "no shouting", ok=False
    )
    assert quiet.invalid({}) == echo.invalid({})


async def test_a_result_within_the_cap_is_not_touched():
    keep = Kept()
    assert await capped(echo, 8, keep).run(CALL) == ToolResult.text("echo: hi")
    assert keep.contents == []


async def test_a_result_over_the_cap_is_kept_whole_and_previewed():
    keep = Kept()
    text = "first\n" + "é" * 5000 + "\nlast"
    outcome = await capped(gives(IMAGE, TextBlock(text), IMAGE), 1000, keep).run(CALL)
    image, block, after = outcome.content
    assert (image, after) == (IMAGE, IMAGE)
    assert isinstance(block, BlobBlock)
    assert keep.contents == [text.encode()]
    assert (block.hash, block.size) == ("sha256:ab", len(text.encode()))
    assert block.preview.startswith("first\né")
    assert block.preview.endswith("é\nlast")
    assert "5011 characters in all" in block.preview
    assert 'file_path "blob:sha256:ab"' in block.preview
    assert outcome.details == "for people"


async def test_several_texts_are_capped_together():
    keep = Kept()
    parts = (TextBlock("a" * 600), TextBlock("b" * 600))
    assert len((await capped(gives(*parts), 1000, keep).run(CALL)).content) == 1
    assert keep.contents == [b"a" * 600 + b"\n" + b"b" * 600]


@given(st.text(alphabet="ab\n", min_size=301, max_size=2000), st.integers(200, 300))
def test_a_preview_is_a_head_and_a_tail_and_never_over_its_limit(text: str, max_chars: int):
    how = read_hint(BlobSource(hash="sha256:ab", size=1, media_type="text/plain"))
    preview = head_and_tail(text, max_chars, how)
    head, _, rest = preview.partition("\n[... ")
    tail = rest.rpartition(" ...]\n")[2]
    assert len(preview) <= max_chars
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + len(tail) >= (max_chars - (len(preview) - len(head) - len(tail))) // 2


def test_wrappers_keep_what_they_do_not_change():
    wrapped = with_timeout(renamed(filtered(echo, lambda _: None), "say"), 1)
    assert wrapped.traits({}) == echo.traits({})
    assert wrapped.function is echo.function


def test_approval_is_asked_for_where_it_is_needed_and_nothing_else_changes():
    made = _reading()
    asked = with_approval(made, lambda given: given.get("to") == "all")
    assert asked.traits({"to": "all"}) == replace(made.traits({}), needs_person=True)
    assert asked.traits({"to": "me"}) == made.traits({})
    assert with_approval(with_approval(made), lambda _: False).traits({}).needs_person


def _reading() -> Tool:
    @tool(read_only=True, concurrent=True)
    def look(to: str) -> str:
        """Look."""
        return to

    return look
