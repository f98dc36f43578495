"""The tool `write`."""

from pathlib import Path

import pytest
from tests.tools.file_tools import FileDesk, desk_over


@pytest.fixture
def context(tmp_path: Path) -> FileDesk:
    return desk_over(tmp_path)


async def test_a_new_file_is_created_with_its_folders(context: FileDesk):
    assert (
        await context.do("write", file_path="a/b.py", content="x\ny\n")
        == "Created a/b.py with 2 lines."
    )
    assert (context.root / "a/b.py").read_text() == "x\ny\n"


async def test_a_file_must_be_read_before_it_is_replaced(context: FileDesk):
    (context.root / "a").write_text("old\n")
    told = await context.fail("write", file_path="a", content="new\n")
    assert told == "a has not been read in this session: read it first"
    await context.do("read", file_path="a")
    told = await context.do("write", file_path=str(context.root / "a"), content="new\n")
    assert "-old\n+new" in told
    await context.do("write", file_path="a", content="newer\n")


async def test_a_file_changed_since_it_was_read_is_not_replaced(context: FileDesk):
    (context.root / "a").write_text("old\n")
    await context.do("read", file_path="a")
    (context.root / "a").write_text("theirs\n")
    assert "changed since it was read" in await context.fail(
        "write", file_path="a", content="new\n"
    )
    assert (context.root / "a").read_text() == "theirs\n"


async def test_after_a_restart_a_file_must_be_read_again(context: FileDesk):
    await context.do("write", file_path="a", content="1\n")
    later = context.restarted()
    assert "not been read" in await later.fail("write", file_path="a", content="2\n")
    await later.do("read", file_path="a")
    await later.do("write", file_path="a", content="2\n")


async def test_each_thread_must_read_a_file_itself(context: FileDesk):
    (context.root / "a").write_text("old\n")
    await context.do("read", file_path="a")
    other = context.call("write", file_path="a", content="new\n")
    object.__setattr__(other, "thread_id", "sthr_2")
    assert not (await context.tools["write"].run(other)).ok


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
async def test_encoding_and_line_endings_are_kept(context: FileDesk, before: bytes, after: bytes):
    (context.root / "a").write_bytes(before)
    await context.tools["read"].run(context.call("read", file_path="a"))
    await context.do("write", file_path="a", content="ü\nc\n")
    assert (context.root / "a").read_bytes() == after
    assert await context.probe("write", file_path="a", content="ü\nc\n") is not None


async def test_text_that_the_old_encoding_lacks_makes_the_file_utf_8(context: FileDesk):
    (context.root / "a").write_bytes(b"\xe4\n")
    await context.do("read", file_path="a")
    await context.do("write", file_path="a", content="€\n")
    assert (context.root / "a").read_bytes() == "€\n".encode()


async def test_the_preview_is_a_diff_and_changes_nothing(context: FileDesk):
    (context.root / "a").write_text("1\n2\n3\n")
    await context.do("read", file_path="a")
    told = await context.preview("write", file_path="a", content="1\n2\nthree\n")
    assert told == "--- a\n+++ a\n@@ -1,3 +1,3 @@\n 1\n 2\n-3\n+three"
    assert await context.preview("write", file_path="/etc/x", content="") is None
    assert (context.root / "a").read_text() == "1\n2\n3\n"


async def test_after_a_crash_the_file_shows_whether_it_was_written(context: FileDesk):
    wanted = {"file_path": "a", "content": "1\n"}
    assert await context.probe("write", **wanted) is None
    await context.do("write", **wanted)
    found = await context.probe("write", **wanted)
    assert found is not None
    assert found.ok
    (context.root / "a").write_text("other")
    assert await context.probe("write", **wanted) is None


async def test_paths_outside_the_workspace_are_refused(context: FileDesk):
    (context.root / "link").symlink_to("/etc")
    for path in ("../a", "/etc/a", "link/a", "~/a", ".mainspring/a", "."):
        await context.fail("write", file_path=path, content="")
    assert "half characters" in await context.fail("write", file_path="a", content="\ud800")
