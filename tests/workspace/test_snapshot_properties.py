"""Whatever becomes of a workspace: a restore makes it what it was."""

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property_examples import examples
from tests.workspace.trees import picture

from mainspring.capabilities.workspace.folder_workspace import FolderWorkspace
from mainspring.capabilities.workspace.snapshots import WorkspaceSnapshots

Deed: TypeAlias = tuple[Callable[[Path, bytes], None], str, bytes]

NAMES = st.sampled_from(["a", "b", "c.txt", ".git", "é", "x y"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def make_folder(path: Path, _: bytes) -> None:
    path.mkdir(parents=True, exist_ok=True)


def link(path: Path, content: bytes) -> None:
    path.symlink_to(["a", "../b", "/etc", "nowhere"][len(content) % 4])


def set_mode(path: Path, content: bytes) -> None:
    """Of folders only such as can be looked into: what cannot be read cannot be kept."""
    modes = [0o700, 0o755, 0o500, 0o1777] if path.is_dir() else [0o644, 0o755, 0o600, 0o400]
    if not path.is_symlink():
        path.chmod(modes[len(content) % 4])


def remove(path: Path, _: bytes) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def hard_link(path: Path, _: bytes) -> None:
    os.link(next(item for item in path.parent.iterdir() if item.is_file()), path)


DEEDS = st.lists(
    st.tuples(
        st.sampled_from([write, write, make_folder, link, set_mode, remove, hard_link]),
        PATHS,
        st.binary(max_size=12),
    ),
    max_size=12,
)


def do(root: Path, deeds: list[Deed]) -> None:
    for deed, path, content in deeds:
        # Only in the tree itself: a deed through a link of its own making is none of ours.
        if not any((root / path).parents[up].is_symlink() for up in range(path.count("/") + 1)):
            with suppress(OSError, StopIteration):
                deed(root / path, content)


@settings(max_examples=examples(0.5))
@given(DEEDS, DEEDS, DEEDS)
def test_a_restore_gives_the_earlier_tree(first: list[Deed], second: list[Deed], third: list[Deed]):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "tree")
        root.mkdir()
        snapshots = WorkspaceSnapshots(FolderWorkspace(root), Path(folder, "store"))

        async def story() -> None:
            do(root, first)
            one = (await snapshots.take())[0], picture(root)
            do(root, second)
            two = (await snapshots.take())[0], picture(root)
            do(root, third)
            for name, look in (one, two, one):
                await snapshots.restore(name)
                assert picture(root) == look
                assert await snapshots.diff(name) == []
            assert bool(await snapshots.diff(one[0], two[0])) == (one[1] != two[1])

        anyio.run(story)
