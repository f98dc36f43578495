"""The tool `grep`, with ripgrep and without: the same."""

import os
import threading
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.property_examples import examples
from tests.tools.file_tools import FileDesk, desk_over
from tests.written_files import write_file

from mainspring.capabilities.tools.file_search import find_ripgreps
from mainspring.core.content import plain_text

RIPGREP = next(iter(find_ripgreps()), None)
needs_ripgrep = pytest.mark.skipif(RIPGREP is None, reason="there is no ripgrep here")
ENGINES = [pytest.param(None, id="ours"), pytest.param(RIPGREP, id="ripgrep", marks=needs_ripgrep)]


def fill_folder(root: Path) -> Path:
    files: dict[str, bytes] = {
        "a.py": b"import os\n\ndef run():\n    return os\n",
        "src/b.py": b"import sys\r\nprint('Os')\r\n",
        "src/c.txt": "grün\nos\n".encode(),
        "wide.txt": "\ufeffwide os\n".encode("utf-16"),
        "latin.txt": "gr\xfcn os\n".encode("latin-1"),
        "marked.txt": b"\xef\xbb\xbfos first\n",
        "binary": b"os\0\1\2",
        "long.txt": b"os " + b"x" * 3000 + b"\n",
        "empty": b"",
        "no_end": b"os",
        ".git/config": b"os\n",
        ".github/ci.yml": b"os: linux\n",
        ".mainspring/key": b"os\n",
        "odd\nname": b"os\n",
    }
    for path, content in files.items():
        write_file(root / path, content)
    (root / "link.py").symlink_to("a.py")
    os.mkfifo(root / "pipe")
    return root


@pytest.fixture(params=ENGINES)
def context(request: pytest.FixtureRequest, tmp_path: Path) -> FileDesk:
    return desk_over(fill_folder(tmp_path), ripgrep=request.param)


async def test_matching_lines_are_found_in_every_text_file(context: FileDesk):
    told = await context.do("grep", pattern=r"\bos\b")
    assert told.replace("x" * 497, "...") == (
        ".github/ci.yml:1:os: linux\n"
        "a.py:1:import os\n"
        "a.py:4:    return os\n"
        "latin.txt:1:gr\ufffdn os\n"
        "long.txt:1:os ... [2,503 more characters]\n"
        "marked.txt:1:os first\n"
        "no_end:1:os\n"
        "'odd\\nname':1:os\n"
        "src/c.txt:2:os\n"
        "wide.txt:1:wide os"
    )


async def test_context_lines_are_shown(context: FileDesk):
    (context.root / "n").write_text("".join(f"{n}\n" for n in range(1, 21)))
    told = await context.do("grep", pattern="^(3|5|15|20)$", path="n", context=1)
    assert told == (
        "n-2-2\nn:3:3\nn-4-4\nn:5:5\nn-6-6\n--\nn-14-14\nn:15:15\nn-16-16\n--\nn-19-19\nn:20:20"
    )


async def test_files_can_be_listed_or_counted(context: FileDesk):
    assert await context.do("grep", pattern="os$", glob="*.py", output_mode="count") == "a.py:2"
    told = await context.do(
        "grep", pattern="OS", ignore_case=True, output_mode="files_with_matches"
    )
    assert told.split("\n")[:3] == [".github/ci.yml", "a.py", "latin.txt"]
    assert await context.do("grep", pattern="import", glob="src/**/*.py") == "src/b.py:1:import sys"
    assert await context.do("grep", pattern="import", path="src") == "src/b.py:1:import sys"
    assert await context.do("grep", pattern="sys$", path="src/b.py") == "src/b.py:1:import sys"
    assert await context.do("grep", pattern="nowhere") == "No line matches."


async def test_a_pattern_is_never_taken_for_an_option(context: FileDesk):
    (context.root / "flags").write_text("--pre=id\n-f x\n")
    assert await context.do("grep", pattern="--pre=id", path="flags") == "flags:1:--pre=id"
    assert await context.do("grep", pattern="-f", path="flags") == "flags:2:-f x"


@pytest.mark.parametrize("pattern", ["(", "(?=x)", r"(a)\1", "", "a\nb", r"a\nb", "x" * 6000])
def test_an_invalid_pattern_is_refused(context: FileDesk, pattern: str):
    assert context.tools["grep"].invalid({"pattern": pattern}) is not None
    assert context.tools["grep"].invalid({"pattern": "a", "glob": "{"}) is not None


async def test_inaccessible_paths_are_refused(context: FileDesk):
    for path in ("..", "/etc", ".mainspring", ".mainspring/key", "pipe", "nothing"):
        await context.fail("grep", pattern="root", path=path)


async def test_excessive_output_is_cut(context: FileDesk):
    (context.root / "flood").write_text("same\n" * 5000)
    assert len((await context.do("grep", pattern="same", path="flood")).split("\n")) <= 2001
    assert (
        await context.do("grep", pattern="same", path="flood", output_mode="count") == "flood:5000"
    )


async def test_a_pathological_pattern_is_not_slow(context: FileDesk):
    (context.root / "hard").write_text("a" * 50_000)
    with anyio.fail_after(60):
        assert (
            await context.do("grep", pattern="(a|a)*$b|(a*)*c", path="hard") == "No line matches."
        )


async def test_more_files_than_can_be_open_are_searched(context: FileDesk):
    (context.root / "many").mkdir()
    for number in range(450):
        (context.root / f"many/{number:03}").write_text(f"needle {number}\n")
    before = len(os.listdir("/dev/fd"))
    told = await context.do(
        "grep", pattern="needle .*7$", path="many", output_mode="files_with_matches"
    )
    assert told.split("\n") == [f"many/{number:03}" for number in range(7, 450, 10)]
    assert len(os.listdir("/dev/fd")) == before


async def test_a_broken_ripgrep_is_replaced_by_our_own_search(tmp_path: Path):
    for program in ("/nonexistent/rg", "/bin/sh"):
        context = desk_over(tmp_path, ripgrep=program)
        (tmp_path / "a").write_text("here\n")
        assert await context.do("grep", pattern="here") == "a:1:here"


async def test_a_swapped_folder_reveals_nothing(
    context: FileDesk, tmp_path_factory: pytest.TempPathFactory
):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "f").write_text("needle and secret\n")
    inside, evil, kept = context.root / "inside", context.root / "evil", context.root / "kept"
    write_file(inside / "f", "needle\n")
    evil.symlink_to(outside)
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            with suppress(OSError):
                inside.rename(kept)
                evil.rename(inside)
                inside.rename(evil)
                kept.rename(inside)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(40):
            outcome = await context.tools["grep"].run(context.call("grep", pattern="needle"))
            assert "secret" not in plain_text(outcome.content)
    finally:
        done.set()
        thread.join()


WORDS = st.lists(st.text(alphabet="abc -:1\té", max_size=6), max_size=12)
PATTERNS = st.sampled_from(
    ["a", "^a", "c$", "a|b", "[^a]", "^$", "a.c", "é", r"\d", "a*", "(ab)+", r"\s", r"\Aa", r"b\z"]
)


@needs_ripgrep
@settings(max_examples=examples(0.5), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    words=st.lists(WORDS, min_size=1, max_size=3),
    end=st.sampled_from(["\n", "\r\n"]),
    pattern=PATTERNS,
    ignore_case=st.booleans(),
    context=st.integers(0, 2),
)
def test_ripgrep_and_our_own_search_find_the_same(
    tmp_path: Path, words: list[list[str]], end: str, pattern: str, ignore_case: bool, context: int
):
    for number in range(3):
        lines = words[number] if number < len(words) else []
        (tmp_path / f"f{number}").write_bytes(end.join(lines).encode())

    async def both() -> list[str]:
        wanted = {"pattern": pattern, "ignore_case": ignore_case, "context": context}
        contexts = [desk_over(tmp_path), desk_over(tmp_path, ripgrep=RIPGREP)]
        return [await item.do("grep", **wanted) for item in contexts]

    ours, theirs = anyio.run(both)
    assert ours == theirs
