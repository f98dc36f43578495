"""What the pages for contributors say about the code is true: layers, limits."""

import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
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


def test_the_layers_are_those_of_the_import_contract():
    line = next(line for line in read("AGENTS.md").splitlines() if "point down this list" in line)
    assert re.findall(r"`([^`]+)`", line) == layers()
    table = read("docs/architecture.md").partition("## Layers")[2].partition("##")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == layer_names()


def test_the_limits_are_those_that_are_checked():
    pylint, mccabe = (SETTINGS["tool"]["ruff"]["lint"][name] for name in ("pylint", "mccabe"))
    assert (
        f"{LIMITS['MAX_LINES']} lines per file, {LIMITS['MAX_CORE_LINES']:,} lines in `core`,"
        f" {pylint['max-statements']} statements and complexity {mccabe['max-complexity']} per"
        f" function, {pylint['max-args']} parameters"
    ) in read("AGENTS.md")
