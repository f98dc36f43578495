"""The built wheel, by itself: what is in it, and that it installs where there is nothing else."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from mainspring import __version__

ROOT = Path(__file__).parents[2]
SECONDS = 240
"""For each program; a bound, not a measurement."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `pip wheel .` would, without asking an index for the builder."""
    place = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)]
    run(command, cwd=ROOT)
    [built] = place.glob("*.whl")
    return built


def run(
    command: list[str], *, cwd: Path, env: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    ended = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=SECONDS
    )
    assert ended.returncode == 0, (command, ended.stdout, ended.stderr)
    return ended


def test_the_wheel_contains_all_runtime_files_and_no_tests(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        [points] = [archive.read(name).decode() for name in names if "entry_points" in name]
        [about] = [archive.read(name).decode() for name in names if name.endswith("/METADATA")]
    package = ROOT / "src"
    kept = {
        file.relative_to(package).as_posix()
        for file in (package / "mainspring").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert kept <= names
    docs = {file.relative_to(ROOT).as_posix() for file in (ROOT / "docs").rglob("*.md")}
    assert {f"mainspring/{name}" for name in docs} <= names, "the guide reads them"
    assert {name.partition("/")[0] for name in names} == {
        "mainspring",
        f"mainspring-{__version__}.dist-info",
    }
    assert "mainspring = mainspring.edges.cli.main:main" in points
    assert "Requires-Python: >=3.11" in about


@pytest.fixture(scope="module")
def wheels() -> Path:
    """Those that it needs, fetched when the tests were set up."""
    found = [item for item in (ROOT / ".venv").glob("wheels-*") if item.suffix != ".new"]
    assert found, "there are no wheels to install from; fetch them: make wheels"
    return found[0]


@pytest.fixture
def empty(tmp_path: Path, wheels: Path) -> dict[str, str]:
    """An environment of somebody who has nothing: no index, no key, no settings."""
    home = tmp_path / "home"
    home.mkdir()
    return {
        "HOME": str(home),
        "PATH": os.defpath,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "UV_OFFLINE": "1",
        "UV_NO_INDEX": "1",
        "UV_FIND_LINKS": str(wheels),
        "UV_CACHE_DIR": str(home / "cache"),
        "UV_PYTHON": sys.executable,
        "UV_PYTHON_DOWNLOADS": "never",
        "PIPX_DEFAULT_PYTHON": sys.executable,
        "LANG": "C.UTF-8",
    }


def first_steps(command: Path, place: Path, env: dict[str, str]) -> None:
    """What somebody does who has just installed it, without a key."""
    place.mkdir()
    assert run([str(command), "--version"], cwd=place, env=env).stdout == (
        f"mainspring {__version__}\n"
    )
    said = run([str(command), "run", "Hello?"], cwd=place, env=env)
    assert "You said: 'Hello?'" in said.stdout
    assert "ANTHROPIC_API_KEY" in said.stderr + said.stdout
    assert "ollama:" in said.stderr
    assert "Hello?" in run([str(command), "sessions", "ls"], cwd=place, env=env).stdout
    run([str(command), "replay", "--help"], cwd=place, env=env)
    ask = (
        'eval "$(mainspring completion bash)"; COMP_WORDS=(mainspring ses); COMP_CWORD=1;'
        ' _mainspring_completion mainspring; echo "${COMPREPLY[*]}"'
    )
    path = f"{command.parent}:{env['PATH']}"
    shown = run(["bash", "--norc", "-c", ask], cwd=place, env={**env, "PATH": path})
    assert shown.stdout == "sessions\n"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_pip_installs_the_wheel_into_an_empty_environment(
    wheel: Path, empty: dict[str, str], tmp_path: Path
):
    place = tmp_path / "venv"
    venv.create(place, with_pip=True)
    run([str(place / "bin/pip"), "install", "--quiet", str(wheel)], cwd=tmp_path, env=empty)
    run([str(place / "bin/pip"), "check"], cwd=tmp_path, env=empty)
    first_steps(place / "bin/mainspring", tmp_path / "project", empty)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_uv_tool_installs_the_wheel(wheel: Path, empty: dict[str, str], tmp_path: Path):
    uv = [sys.executable, "-m", "uv"]
    run([*uv, "tool", "install", "--quiet", str(wheel)], cwd=tmp_path, env=empty)
    command = Path(empty["HOME"]) / ".local/bin/mainspring"
    first_steps(command, tmp_path / "project", empty)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_pipx_installs_the_wheel(wheel: Path, empty: dict[str, str], tmp_path: Path):
    place = tmp_path / "venv"
    venv.create(place, with_pip=True)
    run([str(place / "bin/pip"), "install", "--quiet", "pipx"], cwd=tmp_path, env=empty)
    run([str(place / "bin/pipx"), "install", str(wheel)], cwd=tmp_path, env=empty)
    first_steps(Path(empty["HOME"]) / ".local/bin/mainspring", tmp_path / "project", empty)
