"""The tool `read`."""

import base64
import json
from pathlib import Path

import pytest
from tests.tools.file_tools import FileDesk, desk_over

from mainspring.core.content import Base64Source, ImageBlock

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def context(tmp_path: Path) -> FileDesk:
    return desk_over(tmp_path)


async def test_text_is_returned_with_line_numbers(context: FileDesk):
    (context.root / "a.py").write_text("x = 1\n\ny = 2\n")
    assert await context.do("read", file_path="a.py") == "     1\tx = 1\n     2\t\n     3\ty = 2"


async def test_a_range_of_lines_is_shown(context: FileDesk):
    (context.root / "a").write_text("".join(f"line {n}\n" for n in range(1, 10)))
    assert (
        await context.do("read", file_path="a", view_range=[2, 3])
        == "     2\tline 2\n     3\tline 3"
    )
    assert await context.do("read", file_path="a", view_range=[9, -1]) == "     9\tline 9"
    assert await context.do("read", file_path="a", view_range=[9, 99]) == "     9\tline 9"
    assert "has lines 1 to 9" in await context.fail("read", file_path="a", view_range=[10, 11])
    assert "ends before" in await context.fail("read", file_path="a", view_range=[5, 2])
    assert context.tools["read"].invalid({"file_path": "a", "view_range": [1]}) is not None


async def test_a_long_file_is_shown_in_parts_up_to_its_end(context: FileDesk):
    (context.root / "a").write_text("".join(f"line {n} {'x' * 90}\n" for n in range(1, 3001)))
    shown: set[str] = set()
    first = 1
    while first <= 3000:
        text = await context.do("read", file_path="a", view_range=[first, -1])
        assert len(text) < 81_000
        lines = [line for line in text.split("\n") if "\t" in line]
        shown.update(lines)
        first += len(lines)
    assert len(shown) == 3000
    assert "to continue, view_range [" in await context.do("read", file_path="a")


async def test_long_lines_are_shortened(context: FileDesk):
    (context.root / "a").write_text("x" * 5000 + "\nshort\n")
    text = await context.do("read", file_path="a")
    assert "[3,000 more characters]" in text
    assert text.endswith("\tshort")


@pytest.mark.parametrize(
    "content",
    [
        "grün\r\nblau\r\n".encode(),
        b"\xef\xbb\xbf" + "grün\nblau".encode(),
        "\ufeffgrün\nblau".encode("utf-16-le"),
        "\ufeffgrün\nblau".encode("utf-16-be"),
        "grün\nblau".encode("latin-1"),
    ],
)
async def test_every_encoding_is_read_as_the_same_text(context: FileDesk, content: bytes):
    (context.root / "a").write_bytes(content)
    assert await context.do("read", file_path="a") == "     1\tgrün\n     2\tblau"


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"%PDF-1.7\n\0\xff", "a PDF document"),
        (b"\x7fELF\0\0", "a Linux program"),
        (b"\x01\x02\x03\xff\xfe" * 20, "unknown type"),
        (b"\xff\xfe\x00\xd8", "unknown type"),
    ],
)
async def test_a_file_that_is_not_text_is_refused_with_its_kind(
    context: FileDesk, content: bytes, kind: str
):
    (context.root / "a").write_bytes(content)
    told = await context.fail("read", file_path="a")
    assert kind in told
    assert f"{len(content)} bytes" in told


async def test_an_image_is_shown(context: FileDesk):
    (context.root / "dot.png").write_bytes(PNG)
    outcome = await context.outcome("read", file_path="dot.png")
    source = Base64Source(media_type="image/png", data=base64.b64encode(PNG).decode())
    assert outcome.content[1] == ImageBlock(source=source)
    (context.root / "dot.png").write_bytes(PNG + b"\0" * 5_000_000)
    assert "5,000,000 can be shown" in await context.fail("read", file_path="dot.png")


async def test_a_notebook_is_shown_as_text(context: FileDesk):
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "words"]},
        {
            "cell_type": "code",
            "source": "1 + 1",
            "outputs": [
                {"output_type": "execute_result", "data": {"text/plain": ["2"], "image/png": "x"}},
                {"output_type": "error", "ename": "ValueError", "evalue": "no"},
            ],
        },
    ]
    (context.root / "n.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4}))
    text = await context.do("read", file_path="n.ipynb")
    for part in ("[cell 1: markdown]", "# Title", "[cell 2: code]", "2 [image/png]", "ValueError"):
        assert part in text
    (context.root / "n.ipynb").write_text('{"cells": 3}')
    assert await context.do("read", file_path="n.ipynb") == '     1\t{"cells": 3}'


async def test_a_folder_is_listed_and_an_empty_file_is_reported_as_empty(context: FileDesk):
    (context.root / "d/sub").mkdir(parents=True)
    (context.root / "d/a").write_text("123")
    (context.root / "d/b\nc").write_text("")
    (context.root / "d/l").symlink_to("a")
    (context.root / ".mainspring").mkdir()
    told = await context.do("read", file_path="d")
    assert told == "d is a folder that contains:\na (3 bytes)\n'b\\nc' (0 bytes)\nl (a link)\nsub/"
    assert await context.do("read", file_path=".") == ". is a folder that contains:\nd/"
    assert await context.do("read", file_path="d/sub") == "d/sub is an empty folder"
    assert await context.do("read", file_path="d/b\nc") == "(d/b\nc is empty)"


async def test_unreadable_paths_are_explained(context: FileDesk):
    with (context.root / "huge").open("wb") as file:
        file.truncate(10**11)
    assert "grep finds" in await context.fail("read", file_path="huge")
    assert "no such file" in await context.fail("read", file_path="nothing")
    assert "outside the workspace" in await context.fail("read", file_path="/etc/passwd")
    assert "not accessible to this session" in await context.fail("read", file_path=".mainspring/x")


async def test_normalized_input_has_the_resolved_absolute_path(context: FileDesk):
    root = context.root.resolve()
    (root / "other/deep").mkdir(parents=True)
    (root / "link").symlink_to("other/deep")
    judged = context.tools["read"].normalize_input
    assert judged({"file_path": "./link/new"}) == {"file_path": f"{root}/link/new"}
    assert judged({"file_path": "link/../new"}) == {"file_path": f"{root}/other/new"}
    assert judged({"file_path": "../x", "view_range": None}) == {
        "file_path": f"{root.parent}/x",
        "view_range": None,
    }
    objection = context.tools["read"].objection
    assert objection is not None
    assert "leads out" in str(await objection(context.call("read", file_path="../x")))
    traits = context.tools["read"].traits({})
    assert (traits.read_only, traits.concurrent, traits.in_doubt) == (True, True, "retry")
