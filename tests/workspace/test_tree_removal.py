"""A folder that a session has filled is removed, however it was filled."""

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from mainspring.capabilities.sandbox.readonly_mounts import remove_tree

NOBODY = 65_534


@contextmanager
def unprivileged_folder() -> Generator[Path]:
    """A folder of somebody whom modes bind."""
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as folder:
        if user == 0:
            os.chown(folder, NOBODY, NOBODY)
            os.seteuid(NOBODY)
        try:
            yield Path(folder)
        finally:
            os.seteuid(user)


def make_deep(folder: Path, depth: int) -> None:
    opened = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=opened)
        inner = os.open("d", os.O_RDONLY, dir_fd=opened)
        os.close(opened)
        opened = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=opened))
    os.close(opened)


def test_a_folder_is_removed_whatever_its_modes_and_depth():
    with unprivileged_folder() as above:
        top = above / "top"
        for name in ("locked/inner", "unwritable/inner", "a", "b/c"):
            (top / name).mkdir(parents=True)
            (top / name / "file").touch()
        make_deep(top, 1100)
        (top / "locked" / "inner").chmod(0)
        (top / "locked").chmod(0)
        (top / "unwritable").chmod(0o500)
        top.chmod(0)
        assert remove_tree(above, "top")
        assert list(above.iterdir()) == []
        assert remove_tree(above, "top")


def test_links_are_not_followed_and_a_failed_removal_is_reported(tmp_path: Path):
    (tmp_path / "other").mkdir(mode=0o500)
    (tmp_path / "other" / "file").touch()
    (tmp_path / "top" / "inner").mkdir(parents=True)
    for folder in ("top", "top/inner"):
        (tmp_path / folder / "link").symlink_to(tmp_path / "other")
    assert remove_tree(tmp_path, "top")
    (tmp_path / "link").symlink_to(tmp_path / "other")
    assert not remove_tree(tmp_path, "link")
    assert not remove_tree(tmp_path / "link", "file")
    assert (tmp_path / "other").stat().st_mode & 0o777 == 0o500
    assert (tmp_path / "other" / "file").exists()
