"""The tool `write`."""

from pathlib import Path

import pytest
from tests.tools.desk import FileDesk, desk_over


@pytest.fixture
def desk(tmp_path: Path) -> FileDesk:
    return desk_over(tmp_path)


async def test_a_new_file_is_made_with_its_folders(desk: FileDesk):
    assert (
        await desk.do("write", file_path="a/b.py", content="x\ny\n") == "Made a/b.py with 2 lines."
    )
    assert (desk.root / "a/b.py").read_text() == "x\ny\n"


async def test_a_file_must_be_read_before_it_is_replaced(desk: FileDesk):
    (desk.root / "a").write_text("old\n")
    told = await desk.fail("write", file_path="a", content="new\n")
    assert told == "a has not been read in this session: read it first"
    await desk.do("read", file_path="a")
    told = await desk.do("write", file_path=str(desk.root / "a"), content="new\n")
    assert "-old\n+new" in told
    await desk.do("write", file_path="a", content="newer\n")


async def test_a_file_that_changed_since_is_not_replaced(desk: FileDesk):
    (desk.root / "a").write_text("old\n")
    await desk.do("read", file_path="a")
    (desk.root / "a").write_text("theirs\n")
    assert "changed since it was read" in await desk.fail("write", file_path="a", content="new\n")
    assert (desk.root / "a").read_text() == "theirs\n"


async def test_after_a_crash_a_file_is_read_again(desk: FileDesk):
    await desk.do("write", file_path="a", content="1\n")
    later = desk.restarted()
    assert "not been read" in await later.fail("write", file_path="a", content="2\n")
    await later.do("read", file_path="a")
    await later.do("write", file_path="a", content="2\n")


async def test_another_thread_of_the_session_has_to_read_for_itself(desk: FileDesk):
    (desk.root / "a").write_text("old\n")
    await desk.do("read", file_path="a")
    other = desk.call("write", file_path="a", content="new\n")
    object.__setattr__(other, "thread_id", "sthr_2")
    assert not (await desk.tools["write"].run(other)).ok


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"a\r\nb\r\n", "ü\r\nc\r\n".encode()),
        ("\ufeffa\n".encode("utf-16-le"), "\ufeffü\nc\n".encode("utf-16-le")),
        (b"\xef\xbb\xbfa\n", "\ufeffü\nc\n".encode()),
        (b"\xe4\n", "ü\nc\n".encode("latin-1")),
        (b"\0\1\2", "ü\nc\n".encode()),
    ],
)
async def test_encoding_and_line_ends_are_kept(desk: FileDesk, before: bytes, after: bytes):
    (desk.root / "a").write_bytes(before)
    await desk.tools["read"].run(desk.call("read", file_path="a"))
    await desk.do("write", file_path="a", content="ü\nc\n")
    assert (desk.root / "a").read_bytes() == after
    assert await desk.probe("write", file_path="a", content="ü\nc\n") is not None


async def test_what_the_old_encoding_lacks_makes_the_file_utf_8(desk: FileDesk):
    (desk.root / "a").write_bytes(b"\xe4\n")
    await desk.do("read", file_path="a")
    await desk.do("write", file_path="a", content="€\n")
    assert (desk.root / "a").read_bytes() == "€\n".encode()


async def test_the_preview_is_a_diff_and_does_nothing(desk: FileDesk):
    (desk.root / "a").write_text("1\n2\n3\n")
    await desk.do("read", file_path="a")
    told = await desk.preview("write", file_path="a", content="1\n2\nthree\n")
    assert told == "--- a\n+++ a\n@@ -1,3 +1,3 @@\n 1\n 2\n-3\n+three"
    assert await desk.preview("write", file_path="/etc/x", content="") is None
    assert (desk.root / "a").read_text() == "1\n2\n3\n"


async def test_after_a_crash_the_file_itself_says_whether_it_was_written(desk: FileDesk):
    wanted = {"file_path": "a", "content": "1\n"}
    assert await desk.probe("write", **wanted) is None
    await desk.do("write", **wanted)
    found = await desk.probe("write", **wanted)
    assert found is not None
    assert found.ok
    (desk.root / "a").write_text("other")
    assert await desk.probe("write", **wanted) is None


async def test_no_way_leads_out(desk: FileDesk):
    (desk.root / "link").symlink_to("/etc")
    for path in ("../a", "/etc/a", "link/a", "~/a", ".mainspring/a", "."):
        await desk.fail("write", file_path=path, content="")
    assert "half characters" in await desk.fail("write", file_path="a", content="\ud800")
