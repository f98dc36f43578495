"""`mainspring environment setup`: an agent's plan is proven by the repository's tests in the
sandbox, with a registry on loopback, and sessions start from what was proven."""

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from anyio import to_thread
from tests.cli.conftest import Run
from tests.mcp.package_registry import running_registry, wheel
from tests.repositories import git

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's"),
]
TESTS = """
import pathlib, unittest, urllib.request
import acme_notes

class AppTest(unittest.TestCase):
    def test_it_has_all_that_it_needs(self):
        page = urllib.request.urlopen("http://127.0.0.1:7788/README", timeout=5).read()
        self.assertEqual(page, b"hello")
        self.assertEqual(pathlib.Path("made/text").read_text(), "made by setup\\n")
"""
TEST = "python -m unittest -v test_app"
SERVICE = {
    "name": "web",
    "command": "python -m http.server 7788 --bind 127.0.0.1",
    "ready": "python -c \"import socket; socket.create_connection(('127.0.0.1', 7788))\"",
}
PLAN = {
    "test": TEST,
    "pip": ["acme-notes==1.0.0"],
    "services": [SERVICE],
    "setup": ["mkdir made && echo made by setup > made/text"],
}
PATH = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"


def script(place: Path, name: str, *steps: dict[str, object]) -> str:
    (place / name).write_text(json.dumps([{"steps": steps}]))
    return f"scripted:{name}"


def tries_plan(plan: Mapping[str, object], expects: str = "") -> dict[str, object]:
    call = {"tool": "environment_test", "input": {"plan": plan}}
    return {"calls": [call], "expects": expects}


@pytest.fixture
def repository(place: Path) -> Path:
    files = {"test_app.py": TESTS, "README": "hello", ".gitignore": "made/\n.mainspring/\n*.yaml\n"}
    for name, text in files.items():
        (place / name).write_text(text)
    git(place, "init", "-q")
    git(place, "add", ".")
    git(place, "commit", "-qm", "first")
    return place


async def test_a_plan_proven_by_the_tests_is_saved_and_sessions_start_from_it(
    mainspring: Run, repository: Path
) -> None:
    without = {name: value for name, value in PLAN.items() if name != "services"}
    model = script(
        repository,
        "setup.yaml",
        tries_plan({"test": TEST, "pip": ["no-such-thing"]}),
        tries_plan(without, expects="no-such-thing"),
        tries_plan(PLAN, expects="Connection refused"),
        {"says": "It needs one package and one service.", "expects": "is saved"},
    )
    use = script(
        repository,
        "use.yaml",
        {"calls": [{"tool": "bash", "input": {"command": f"with-services {TEST}"}}]},
        {"says": "done", "expects": "OK"},
    )
    async with running_registry() as registry:
        registry.python["1.0.0"] = wheel("acme-notes", "1.0.0")
        variables = {**registry.environ, "PATH": PATH}

        def run(*words: str) -> subprocess.CompletedProcess[str]:
            return mainspring(*words, **variables)

        done = await to_thread.run_sync(run, "environment", "setup", "-m", model)
        assert done.returncode == 0, done.stderr
        assert "Ran 1 test" in done.stdout
        assert git(repository, "status", "--short", "--branch", "--ignored").splitlines()[1:] == [
            "!! .mainspring/",
            "!! setup.yaml",
            "!! use.yaml",
        ], "proofs leave nothing in the repository"
        assert "environment" not in git(repository, "branch", "--list", "mainspring/*")
        assert "environment" not in git(repository, "worktree", "list")
        view = json.loads(mainspring("environment", "ls", "--json").stdout)
        assert view["plan"]["pip"] == PLAN["pip"]
        assert view["config"]["packages"] == {"pip": PLAN["pip"]}
        assert view["files"] == ["made"]

        mode = ("--mode", "bypassPermissions")
        used = await to_thread.run_sync(run, "run", "go", "-m", use, *mode)
        assert used.returncode == 0, (used.stdout, used.stderr)
    assert (repository / "made/text").read_text() == "made by setup\n"
    assert mainspring("environment", "rm").returncode == 0
    assert mainspring("environment", "show").returncode == 1


def test_a_plan_whose_tests_fail_is_not_saved(mainspring: Run, repository: Path) -> None:
    model = script(
        repository,
        "setup.yaml",
        tries_plan({"test": TEST}),
        {"says": "It is all set up and the tests pass!", "expects": "acme_notes"},
    )
    done = mainspring("environment", "setup", "-m", model)
    assert done.returncode == 1
    assert "nothing was saved" in done.stderr
    assert mainspring("environment", "show").returncode == 1


def test_a_killed_setup_is_continued_by_the_next_one(
    mainspring: Run, repository: Path, environ: dict[str, str]
) -> None:
    waits = "touch started; until [ -e go ]; do sleep 0.05; done"
    model = script(
        repository,
        "setup.yaml",
        tries_plan({"test": waits}),
        {"says": "proven", "expects": "is saved"},
    )
    words = ["environment", "setup", "-m", model]
    process = subprocess.Popen(
        [sys.executable, "-m", "mainspring", *words],
        cwd=repository,
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not any(repository.glob(".mainspring/worktrees/*/started")):
        assert time.monotonic() < deadline
        assert process.poll() is None
    process.kill()
    process.wait()
    (repository / "go").touch()
    git(repository, "add", "go")
    git(repository, "commit", "-qm", "go")
    done = mainspring(*words)
    assert done.returncode == 0, done.stderr
    assert "continuing the interrupted run" in done.stderr
    assert len(mainspring("sessions", "ls", "--all", "--json").stdout.splitlines()) == 1
    assert not list((repository / ".mainspring/worktrees").glob("environment-*"))


def test_setup_outside_a_git_repository_is_refused(mainspring: Run, place: Path) -> None:
    done = mainspring("environment", "setup")
    assert done.returncode == 1
    assert "not a git repository" in done.stderr
