"""An example with commands runs to its end wherever a checkout, a project and a home can be."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest
from tests.abilities import require_sandbox, require_sandbox_of_users
from tests.environ import UID, clean_environ, python_of_all
from tests.examples.test_examples import copy_example, offline_commands

FEW_FILES, PRIVATE = "ulimit -n 256", "umask 077"
LONG = "/".join(["a-folder-with-a-name-of-forty-characters"] * 6)
UMLAUTS = "mit Leerzeichen/Übung «1»"
C_LOCALE = {"LC_ALL": "C", "LANG": "C"}
NO_IDENTITY = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
NAME = "repo-maintainer"


@pytest.fixture
def place() -> Generator[Path]:
    """Not below pytest's own folders, which are private and long."""
    with tempfile.TemporaryDirectory(prefix="place-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def run_example(
    folder: Path,
    variables: Mapping[str, str],
    *,
    without: tuple[str, ...] = (),
    shell: tuple[str, ...] = (),
    user: int | None = None,
) -> None:
    require_sandbox()
    python = [sys.executable, "-m", "mainspring"] if user is None else python_of_all()
    if python is None:
        pytest.skip("no Python here that another user can start")
    example = copy_example(NAME, folder / NAME)
    if user is not None:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, user, user)
    environment = {**clean_environ("LC_", "LANG", "XDG_"), "HOME": str(folder), **variables}
    environment = {name: text for name, text in environment.items() if name not in without}
    said = ""
    for command in offline_commands(NAME):
        ended = subprocess.run(
            ["bash", "-c", "; ".join((*shell, 'exec "$@"')), "bash", *python, *command],
            cwd=example,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=110,
            user=user,
            group=user,
        )
        assert ended.returncode == 0, ended.stderr
        said += ended.stderr
        assert "no commands can be run here" not in said
    report = (example / "REPORT.md").read_text(encoding="utf-8")
    assert "6 of 6 tests pass, exit" in report, said


slow = pytest.mark.slow


@pytest.mark.parametrize(
    ("path", "variables", "without", "shell"),
    [
        pytest.param(f"{UMLAUTS}/{LONG}", C_LOCALE, (), (FEW_FILES,), id="path"),
        pytest.param("x", {"TMPDIR": "{}/tmp"} | NO_IDENTITY, ("HOME",), (PRIVATE,), id="home"),
        pytest.param(UMLAUTS, {}, (), (), id="umlauts", marks=slow),
        pytest.param(LONG, {}, (), (), id="long", marks=slow),
        pytest.param("x", {}, ("HOME",), (), id="no home", marks=slow),
        pytest.param("x", {"TMPDIR": "{}/tmp"}, (), (), id="temporary files", marks=slow),
        pytest.param("x", NO_IDENTITY, (), (), id="no git identity", marks=slow),
        pytest.param("x", C_LOCALE, (), (), id="locale C", marks=slow),
        pytest.param("x", {}, (), (PRIVATE,), id="umask 077", marks=slow),
        pytest.param("x", {}, (), (FEW_FILES,), id="few open files", marks=slow),
    ],
)
def test_the_maintainer_works_in_every_place(
    place: Path,
    path: str,
    variables: Mapping[str, str],
    without: tuple[str, ...],
    shell: tuple[str, ...],
):
    folder = place / path
    (folder / "tmp").mkdir(parents=True)
    folder.chmod(0o700)
    run_example(
        folder,
        {name: text.format(folder) for name, text in variables.items()},
        without=without,
        shell=shell,
    )


@pytest.mark.skipif(
    not Path("/dev/shm").is_dir() or os.geteuid() != 0, reason="only root can become another user"
)
def test_the_maintainer_works_for_a_user_who_may_only_read_the_checkout(place: Path):
    """And whose home is on another file system."""
    require_sandbox_of_users()
    home = Path(tempfile.mkdtemp(dir="/dev/shm"))
    os.chown(home, UID, UID)
    try:
        run_example(place, {"HOME": str(home)}, user=UID)
    finally:
        shutil.rmtree(home)
