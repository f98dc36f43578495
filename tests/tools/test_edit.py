"""The tool `edit`."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tools.file_tools import FileDesk, desk_over

from mainspring.capabilities.tools.edit import nearest_match_hint
from mainspring.capabilities.tools.session_files import (
    DecodedText,
    decode_text,
    diff_of,
    replace_text,
    to_lf,
)


@pytest.fixture
def context(tmp_path: Path) -> FileDesk:
    return desk_over(tmp_path)


async def read_into_context(context: FileDesk, content: str | bytes) -> Path:
    file = context.root / "a"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    await context.do("read", file_path="a")
    return file


def edit(old: str, new: str, **more: object) -> dict[str, object]:
    return {"file_path": "a", "old_string": old, "new_string": new, **more}


async def test_a_text_is_replaced_and_the_diff_is_returned(context: FileDesk):
    file = await read_into_context(context, "one\ntwo\nthree\n")
    told = await context.do("edit", **edit("two", "2"))
    assert told == "Changed a:\n--- a\n+++ a\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three"
    await context.do("edit", **edit("2\nthree", "rest"))
    assert file.read_text() == "one\nrest\n"


async def test_an_ambiguous_text_is_refused_unless_replace_all_is_set(context: FileDesk):
    file = await read_into_context(context, "x\ny\nx\n")
    assert "more than once, at lines 1, 3:" in await context.fail("edit", **edit("x", "z"))
    await context.do("edit", **edit("x", "z", replace_all=True))
    assert file.read_text() == "z\ny\nz\n"


async def test_an_edit_without_effect_is_refused(context: FileDesk):
    await read_into_context(context, "x\n")
    assert "nothing would change" in await context.fail("edit", **edit("x", "x"))
    assert "is empty" in await context.fail("edit", **edit("", "x"))
    gone = {"file_path": "gone", "old_string": "x", "new_string": "y"}
    assert "use write to create it" in await context.fail("edit", **gone)


async def test_a_missing_text_is_reported_with_the_nearest_match(context: FileDesk):
    await read_into_context(context, "def run(self):\n\treturn self.total + 1\n")
    spaces = await context.fail("edit", **edit("    return self.total + 1", "pass"))
    assert spaces.endswith(
        "Only spaces and tabs differ at line 2, which has:\n\treturn self.total + 1"
    )
    near = await context.fail("edit", **edit("\treturn self.totals - 1", "pass"))
    assert near.endswith("The nearest is at line 2:\n\treturn self.total + 1")
    assert "leave them out" in await context.fail("edit", **edit("     1\tdef run(self):", "pass"))
    assert await context.fail("edit", **edit("qqqqq", "")) == "old_string is not in a."


async def test_a_file_must_have_been_read_and_be_unchanged(context: FileDesk):
    file = await read_into_context(context, "one\n")
    file.write_text("one!\n")
    assert "changed since" in await context.fail("edit", **edit("one", "two"))
    assert "not been read" in await context.restarted().fail("edit", **edit("one", "two"))
    file.write_bytes(b"\0\1")
    assert "not text" in await context.fail("edit", **edit("one", "two"))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
async def test_encoding_and_line_endings_are_kept(context: FileDesk, encoding: str, newline: str):
    before = newline.join(["grün", "zwei", "drei", ""]).encode(encoding)
    file = await read_into_context(context, before)
    await context.do("edit", **edit("zwei\ndrei", "zwölf\nelf\nzehn"))
    assert file.read_bytes() == newline.join(["grün", "zwölf", "elf", "zehn", ""]).encode(encoding)


async def test_text_that_the_encoding_cannot_represent_is_refused(context: FileDesk):
    file = await read_into_context(context, b"gr\xfcn\n")
    assert "latin-1, which has no" in await context.fail("edit", **edit("gr", "€"))
    assert file.read_bytes() == b"gr\xfcn\n"


async def test_only_the_edited_lines_of_a_mixed_file_change(context: FileDesk):
    file = await read_into_context(context, b"a\r\nb\nc\r\nd\ne\r\n")
    await context.do("edit", **edit("b\nc\nd", "x\ny"))
    assert file.read_bytes() == b"a\r\nx\r\ny\ne\r\n"


async def test_the_preview_is_the_diff(context: FileDesk):
    file = await read_into_context(context, "one\n")
    assert await context.preview("edit", **edit("one", "two")) == (
        "--- a\n+++ a\n@@ -1 +1 @@\n-one\n+two"
    )
    assert file.read_text() == "one\n"


@pytest.mark.parametrize(("old", "new"), [("b", "c"), ("b", ""), ("b", "b b"), ("a b", "b")])
async def test_after_a_crash_the_file_shows_whether_it_was_edited(
    context: FileDesk, old: str, new: str
):
    await read_into_context(context, "a b d\n")
    if new != "b":
        assert await context.probe("edit", **edit(old, new)) is None
    await context.do("edit", **edit(old, new))
    found = await context.restarted().probe("edit", **edit(old, new))
    assert found is not None
    assert found.ok


LINES = st.lists(st.sampled_from(["a", "b", "ab", "", "é"]), max_size=8)
ENDS = st.lists(st.sampled_from(["\n", "\r\n"]), min_size=8, max_size=8)


@given(
    LINES, ENDS, st.sampled_from(["a", "b\na", "\n", "ab\n"]), st.sampled_from(["", "x\ny", "z"])
)
def test_a_replacement_keeps_other_line_endings(
    lines: list[str], ends: list[str], old: str, new: str
):
    source = DecodedText(text="".join(map("".join, zip(lines, ends, strict=False))))
    after = replace_text(source, old, new, everywhere=True)
    assert to_lf(after) == source.plain.replace(old, new)
    if old not in source.plain:
        assert after == source.text


@given(st.binary(max_size=60))
def test_any_text_is_encoded_back_to_the_same_bytes(content: bytes):
    found = decode_text(content)
    assert found is None or found.encoded(found.text) == content


@given(LINES, LINES)
def test_a_diff_counts_added_and_removed_lines(old: list[str], new: list[str]):
    lines = diff_of("f", "\n".join(old), "\n".join(new)).split("\n")[2:]
    gone = sum(line.startswith("-") for line in lines)
    come = sum(line.startswith("+") for line in lines)
    assert come - gone == len("\n".join(new).splitlines()) - len("\n".join(old).splitlines())


@given(LINES, st.text(max_size=20))
def test_a_hint_is_computed_for_any_text(lines: list[str], wanted: str):
    assert isinstance(nearest_match_hint("\n".join(lines), wanted), str)
