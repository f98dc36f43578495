"""artifact: files of the workspace, published."""

import hashlib
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.function_tools.samples import call

from mainspring.capabilities.tools.artifact import artifact, media_type_of
from mainspring.capabilities.workspace.folder_workspace import FolderWorkspace
from mainspring.core.content import BlobSource, plain_text
from mainspring.core.events import ArtifactPublished
from mainspring.core.tool import Tool, ToolResult


class Shop:
    """A workspace, and where its artifacts go."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "ws"
        self.folder.mkdir()
        self.kept: dict[str, bytes] = {}

    async def keep(self, content: bytes, media_type: str) -> BlobSource:
        digest = hashlib.sha256(content).hexdigest()
        self.kept[digest] = content
        return BlobSource(hash=digest, size=len(content), media_type=media_type)

    @property
    def tool(self) -> Tool:
        return artifact(FolderWorkspace(self.folder), self.keep, max_bytes=1000)

    def put(self, name: str, content: bytes = b"x") -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    async def publish(self, **given: object) -> ToolResult:
        with anyio.fail_after(60):
            return await self.tool.run(call(**given))

    async def names(self, **given: object) -> list[str]:
        outcome = await self.publish(**given)
        assert outcome.ok, outcome
        return [fact.name for fact in outcome.facts if isinstance(fact, ArtifactPublished)]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


async def test_a_file_is_published_with_its_current_content(shop: Shop):
    shop.put("out/report.md", b"# Hi")
    outcome = await shop.publish(path="out/report.md")
    digest = hashlib.sha256(b"# Hi").hexdigest()
    assert outcome.facts == (
        ArtifactPublished(name="out/report.md", hash=digest, size=4, media_type="text/markdown"),
    )
    assert shop.kept[digest] == b"# Hi"
    assert "out/report.md (text/markdown, 4 bytes)" in plain_text(outcome.content)


async def test_several_files_keep_their_relative_paths_under_one_name(shop: Shop):
    shop.put("a/index.html")
    shop.put("b/index.html")
    assert await shop.names(paths=["a/index.html", "b/index.html"], name="site") == [
        "site/a/index.html",
        "site/b/index.html",
    ]
    assert await shop.names(path="a/index.html", name="page.html") == ["page.html"]


async def test_no_two_artifacts_of_a_call_have_one_name(shop: Shop):
    shop.put("a.txt")
    assert await shop.names(paths=["a.txt", "./a.txt"]) == ["a.txt", "a-2.txt"]


async def test_unsafe_characters_in_names_are_replaced(shop: Shop):
    shop.put('odd:"name?.txt')
    assert await shop.names(path='odd:"name?.txt') == ["odd__name_.txt"]


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "link", "nothing", ".", "a" * 5000])
async def test_only_files_of_the_workspace_are_published(shop: Shop, path: str):
    (shop.folder.parent / "secret").write_text("secret")
    (shop.folder / "link").symlink_to(shop.folder.parent / "secret")
    outcome = await shop.publish(path=path)
    assert (outcome.ok, outcome.error, outcome.facts, shop.kept) == (False, "failed", (), {})


def test_normalized_input_has_absolute_paths(shop: Shop):
    judged = shop.tool.normalize_input({"path": "a", "paths": ["b/../c"]})
    assert judged == {"path": str(shop.folder / "a"), "paths": [str(shop.folder / "c")]}
    assert shop.tool.normalize_input({"path": "../x"}) == {"path": "../x"}


async def test_either_all_files_are_published_or_none(shop: Shop):
    shop.put("a", b"x" * 600)
    shop.put("b", b"x" * 600)
    outcome = await shop.publish(paths=["a", "b"])
    assert not outcome.ok
    assert outcome.facts == ()


@pytest.mark.parametrize(
    "name",
    ["../x", "/x", "a/../b", "a//b", "a/", "~/x", "C:\\x", "a\nb", "a\0", " a", "a.", "x" * 300],
)
def test_a_name_that_could_lead_elsewhere_is_refused(shop: Shop, name: str):
    assert "name" in (shop.tool.invalid({"path": "a", "name": name}) or "")


@given(st.text(max_size=30))
def test_an_accepted_name_cannot_leave_its_folder(name: str):
    async def never(content: bytes, media_type: str) -> BlobSource:
        raise AssertionError

    made = artifact(FolderWorkspace(Path(__file__).parent), never)
    if name and made.invalid({"path": "a", "name": name}) is None:
        assert not {"", ".", ".."} & set(name.split("/"))
        assert not set(name) & set("\\:\0\n")


def test_at_least_one_and_at_most_fifty_paths_are_needed(shop: Shop):
    assert "path" in (shop.tool.invalid({}) or "")
    assert "paths" in (shop.tool.invalid({"paths": ["a"] * 51}) or "")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.html", b"", "text/html"),
        ("a.PNG", b"", "image/png"),
        ("a.json", b"{}", "application/json"),
        ("Makefile", b"all:", "text/plain"),
        ("core", b"\x7fELF\0", "application/octet-stream"),
        ("a.unknown", b"\xff", "application/octet-stream"),
    ],
)
def test_the_media_type_is_guessed(name: str, content: bytes, expected: str):
    assert media_type_of(name, content) == expected
