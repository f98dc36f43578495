"""What the pages for contributors say about the code is true: paths, layers, limits."""

import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/mainspring"
PAGES = ("docs/architecture.md", "AGENTS.md", "README.md", "CONTRIBUTING.md")
FOLDERS = {"src", "tests", "tools", "bench", "demo", "docs", "examples", "requirements"}
SETTINGS: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LIMITS = runpy.run_path(str(ROOT / "tools/limits.py"))


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def layers() -> list[str]:
    contracts: list[dict[str, Any]] = SETTINGS["tool"]["importlinter"]["contracts"]
    return next(contract["layers"] for contract in contracts if contract["id"] == "layers")


def layer_names() -> list[str]:
    names = [name.strip() for layer in layers() for name in layer.split("|")]
    return [name for name in names if not name.startswith(("(", "__"))]


def named_paths(text: str) -> set[str]:
    """Paths in backticks that begin with a folder of the repository or with a layer."""
    first = FOLDERS | set(layer_names())
    paths = re.findall(r"`([\w.-]+(?:/[\w.-]+)*/?)`", text)
    return {path for path in paths if "/" in path and path.split("/")[0] in first}


@pytest.mark.parametrize("page", PAGES)
def test_every_path_named_by_a_page_exists(page: str):
    paths = named_paths(read(page))
    missing = [p for p in paths if not (ROOT / p).exists() and not (SOURCE / p).exists()]
    assert sorted(missing) == [], f"these files have moved: correct {page}"


def test_documented_layers_match_the_import_contract():
    line = next(line for line in read("AGENTS.md").splitlines() if "point down this list" in line)
    assert re.findall(r"`([^`]+)`", line) == layers()
    table = read("docs/architecture.md").partition("## Layers")[2].partition("##")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == layer_names()


def test_documented_limits_match_the_checked_ones():
    pylint, mccabe = (SETTINGS["tool"]["ruff"]["lint"][name] for name in ("pylint", "mccabe"))
    assert (
        f"{LIMITS['MAX_LINES']} lines per file, {LIMITS['MAX_CORE_LINES']:,} lines in `core` beside"
        f" `core/events`, {LIMITS['MAX_WIRING_LINES']:,} lines in `wiring`,"
        f" {pylint['max-statements']} statements and complexity {mccabe['max-complexity']} per"
        f" function, {LIMITS['MAX_PARAMETERS']} parameters, {pylint['max-args']} in a constructor"
    ) in read("AGENTS.md")
