"""Each check of `make check` passes on a clean tree and names a violation seeded into it."""

import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import TypeAlias

import pytest

Run: TypeAlias = Callable[..., CompletedProcess[str]]
Seed: TypeAlias = Callable[[str, str], None]

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(sys.executable).parent
UPPER_LAYERS = (
    "events",
    "hooks",
    "tools",
    "edges",
    "testing",
    "wiring",
    "config",
    "error_table",
    "service",
    "improve",
    "runtime",
)
LOWER_LAYERS = ("function_tools", "retrieval", "log", "files", "processes", "core")
LAYERS = (*UPPER_LAYERS, "harness", "capabilities", *LOWER_LAYERS)
DOC = '"""One idea."""\n\n'
BRANCHES = "".join(f"    if n == {n}:\n        return n\n" for n in range(8))

LINT = {
    "asyncio": ("TID251", "import asyncio\n\nasyncio.run(None)\n"),
    "now": ("TID251", "from datetime import datetime\n\nat = datetime.now()\n"),
    "uuid4": ("TID251", "import uuid\n\nid_ = uuid.uuid4()\n"),
    "environ": ("TID251", "import os\n\nhome = os.environ\n"),
    "getenv": ("TID251", "import os\n\nhome = os.getenv('HOME')\n"),
    "time": ("TID251", "import time\n\nat = time.time()\n"),
    "random": ("TID251", "import random\n\nn = random.random()\n"),
    "mock": ("TID251", "from unittest.mock import Mock\n\nm = Mock()\n"),
    "complexity": ("C901", f"def f(n: int) -> int:\n{BRANCHES}    return 0\n"),
    "parameters": (
        "PLR0913",
        "def f(a: int, b: int, c: int, d: int, e: int, f: int, g: int, h: int, i: int): ...\n",
    ),
    "statements": ("PLR0915", "def f() -> None:\n" + "    print()\n" * 41),
    "late import": ("PLC0415", "def f() -> None:\n    import os\n\n    os.sync()\n"),
    "blind except": ("BLE001", "try:\n    x = 1\nexcept Exception:\n    x = 2\n"),
    "no return type": ("ANN201", "def f(n: int):\n    return n\n"),
    "print": ("T201", "print()\n"),
}


@pytest.fixture
def seed(tmp_path: Path) -> Seed:
    def plant(place: str, text: str) -> None:
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    return plant


def packages_with_a_direction() -> Iterator[str]:
    """What the contracts inside the layers name, after the package that it is in."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for contract in settings["tool"]["importlinter"]["contracts"]:
        for container in contract.get("containers", ()):
            if container != "mainspring":
                yield container.replace(".", "/")
                for layer in contract["layers"]:
                    for name in layer.split(" | "):
                        yield f"{container}.{name}".replace(".", "/")


@pytest.fixture
def run(tmp_path: Path, seed: Seed, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a tool in a small tree that passes every check but for what the test seeds into it."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    for place in ("", *(f"{layer}/" for layer in LAYERS)):
        seed(f"src/mainspring/{place}__init__.py", '"""One package."""\n')
    for module in ("__main__", "tools"):
        seed(f"src/mainspring/{module}.py", '"""One module."""\n')
    for place in packages_with_a_direction():
        seed(f"src/{place}/__init__.py", '"""One package."""\n')
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "src"))

    def call(tool: str, *arguments: str) -> CompletedProcess[str]:
        return subprocess.run(
            [SCRIPTS / tool, *arguments],
            cwd=tmp_path,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=60,
        )

    return call


def rejects(result: CompletedProcess[str], *words: str) -> bool:
    return result.returncode != 0 and all(word in result.stdout for word in words)


def test_the_clean_tree_passes_the_fast_checks(run: Run):
    for command in (
        ("ruff", "format", "--check", "--no-cache", "."),
        ("ruff", "check", "--no-cache", "."),
        ("python", "tools/limits.py"),
    ):
        result = run(*command)
        assert result.returncode == 0, result.stdout


def test_a_badly_formatted_file_fails_the_format_check(run: Run, seed: Seed):
    seed("src/mainspring/log/seeded.py", DOC + "x = {  'a':1 }\n")
    assert rejects(run("ruff", "format", "--check", "--no-cache", "."), "log/seeded.py")


@pytest.mark.parametrize(("rule", "code"), LINT.values(), ids=LINT)
def test_a_seeded_violation_fails_lint_and_is_named(run: Run, seed: Seed, rule: str, code: str):
    seed("src/mainspring/log/seeded.py", DOC + code)
    result = run("ruff", "check", "--no-cache", "--output-format=concise", ".")
    assert rejects(result, "log/seeded.py", rule), result.stdout


@pytest.mark.parametrize("place", ["core/clock.py", "core/ids.py", "config.py"])
def test_allowed_modules_may_use_what_is_banned_elsewhere(run: Run, seed: Seed, place: str):
    seed(
        f"src/mainspring/{place}", DOC + "import os\nimport time\n\nx = (time.time(), os.environ)\n"
    )
    result = run("ruff", "check", "--no-cache", ".")
    assert result.returncode == 0, result.stdout


def test_a_type_error_in_the_source_or_in_a_test_fails_the_type_check(run: Run, seed: Seed):
    seed("src/mainspring/log/seeded.py", DOC + 'n: int = "one"\n')
    seed("tests/test_seeded.py", "def test_it(thing): ...\n")
    result = run("pyright", "--pythonpath", sys.executable)
    assert rejects(result, "log/seeded.py", "reportAssignmentType"), result.stdout
    assert rejects(result, "test_seeded.py", "reportMissingParameterType"), result.stdout


def test_every_import_that_points_up_fails_the_import_check(run: Run, seed: Seed):
    upward = {
        "core.seeded": "mainspring.log",
        "log.ranked": "mainspring.retrieval",
        "files.seeded": "mainspring.log",
        "core.framework": "typer",
        "log.seeded": "mainspring.harness",
        "harness.seeded": "mainspring.capabilities",
        "capabilities.seeded": "mainspring.harness",
        "runtime.seeded": "mainspring.improve",
        "config.seeded": "mainspring.wiring",
        "wiring.seeded": "mainspring.testing",
        "testing.seeded": "mainspring.edges",
    }
    for importer, imported in upward.items():
        seed(f"src/mainspring/{importer.replace('.', '/')}.py", DOC + f"import {imported}\n")
    result = run("lint-imports", "--no-cache")
    for importer, imported in upward.items():
        assert rejects(result, f"mainspring.{importer} -> {imported}"), result.stdout


def test_a_new_top_level_module_fails_until_it_has_a_layer(run: Run, seed: Seed):
    seed("src/mainspring/misplaced.py", DOC)
    assert rejects(run("lint-imports", "--no-cache"), "misplaced")


@pytest.mark.parametrize(
    ("place", "lines", "what"),
    [
        ("src/mainspring/log/seeded.py", 501, "501 lines"),
        ("tests/test_seeded.py", 501, "501 lines"),
        ("src/mainspring/log/utils.py", 1, "'utils'"),
        ("src/mainspring/log/_helpers.py", 1, "'_helpers'"),
        ("src/mainspring/common/thing.py", 1, "'common'"),
        ("src/mainspring/log/base.py", 1, "'base'"),
        ("src/mainspring/log/session_manager.py", 1, "'session_manager'"),
    ],
)
def test_long_or_badly_named_files_fail_the_limits(
    run: Run, seed: Seed, place: str, lines: int, what: str
):
    seed(place, "x = 1\n" * lines)
    assert rejects(run("python", "tools/limits.py"), place, what)


@pytest.mark.parametrize(
    ("place", "code", "what"),
    [
        ("log/desk.py", "x = 1", "module 'desk'"),
        ("shelf/row.py", "x = 1", "module 'shelf'"),
        ("log/seeded.py", "class CrewMember: ...", "'CrewMember'"),
        ("log/seeded.py", "class Stage: ...", "'Stage'"),
        ("log/seeded.py", "def open_purse(): ...", "'open_purse'"),
        ("log/seeded.py", "class A:\n    async def told(self): ...", "'told'"),
        ("log/seeded.py", "class Wanted: ...", "'Wanted'"),
    ],
)
def test_metaphors_and_participles_fail_the_limits(
    run: Run, seed: Seed, place: str, code: str, what: str
):
    seed(f"src/mainspring/{place}", f"{code}\n")
    assert rejects(run("python", "tools/limits.py"), place, what)


def test_technical_terms_private_names_and_qualified_participles_pass(run: Run, seed: Seed):
    names = ("stage", "SessionNotFound", "_told", "known_values", "Keeper", "is_found")
    code = "".join(
        f"class {name}: ...\n" if name[0].isupper() else f"def {name}(): ...\n" for name in names
    )
    seed("src/mainspring/log/seeded.py", code)
    result = run("python", "tools/limits.py")
    assert result.returncode == 0, result.stdout


def test_a_second_class_of_the_same_name_fails_the_limits(run: Run, seed: Seed):
    for layer in ("log", "runtime"):
        seed(f"src/mainspring/{layer}/seeded.py", DOC + "class Seeded:\n    pass\n")
    result = run("python", "tools/limits.py")
    assert rejects(result, "runtime/seeded.py:3: 'Seeded'", "src/mainspring/log/seeded.py")


def test_a_number_without_a_reason_fails_the_limits(run: Run, seed: Seed):
    code = DOC + "_MAX = 3  # tries\n# Seconds.\n_WAIT = 2.5\n_SIZE = 2 << 10\n" + '"""Bytes."""\n'
    seed("src/mainspring/log/seeded.py", code)
    assert run("python", "tools/limits.py").returncode == 0
    seed("src/mainspring/log/seeded.py", code + "_LOW, _HIGH = 1, -2 * 60\n")
    assert rejects(run("python", "tools/limits.py"), "log/seeded.py:8: the number _LOW, _HIGH")


@pytest.mark.parametrize("layer", ["core", "wiring"])
def test_a_layer_that_is_too_large_fails_the_limits(layer: str, run: Run, seed: Seed):
    for part in range(9):
        seed(f"src/mainspring/{layer}/part{part}.py", "x = 1\n" * 350)
    assert rejects(run("python", "tools/limits.py"), f"src/mainspring/{layer}: 3151 lines")


def test_an_unused_dependency_fails_the_dependency_check(run: Run, seed: Seed):
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    seed("pyproject.toml", text.replace("dependencies = [", 'dependencies = [\n    "idna",', 1))
    assert rejects(run("deptry", "src"), "DEP002", "'idna'")


def test_an_undeclared_dependency_fails_the_dependency_check(run: Run, seed: Seed):
    seed("src/mainspring/log/seeded.py", DOC + "import idna\n")
    assert rejects(run("deptry", "src"), "log/seeded.py", "DEP003", "'idna'")
