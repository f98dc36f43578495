"""The tree keeps its promises: locks name no place, settings made for later do not outlive it."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/mainspring"
SETTINGS: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONTRACTS: list[dict[str, Any]] = SETTINGS["tool"]["importlinter"]["contracts"]

IMPORT_NAMES = {"google-re2": "re2", "psycopg-pool": "psycopg_pool", "PyYAML": "yaml"}

# Contracts that come with the modules they are about: kind -> (those modules, what it must name).
LATER = {
    "only wiring names implementations": (
        "forbidden",
        {"runtime", "improve", "capabilities"},
        {"mainspring.runtime", "mainspring.improve", "mainspring.capabilities"},
    ),
    "the interior knows no framework": (
        "forbidden",
        {"core", "log", "harness", "runtime"},
        {"mainspring.harness", "mainspring.runtime", "aiohttp", "starlette", "typer"},
    ),
    "capabilities are independent": (
        "independence",
        {"capabilities"},
        {"mainspring.capabilities.*"},
    ),
    "evolution over evals": (
        "layers",
        {"improve/evolution", "improve/evals"},
        {"evolution", "evals"},
    ),
}


def exists(module: str) -> bool:
    return (SOURCE / module).is_dir() or (SOURCE / f"{module}.py").is_file()


def names(contract: dict[str, Any]) -> set[str]:
    lists = ("source_modules", "forbidden_modules", "modules", "layers")
    layers = [layer for key in lists for layer in contract.get(key, [])]
    return {name for layer in layers for name in layer.split(" | ")}


@pytest.mark.parametrize(
    "lock", sorted((ROOT / "requirements").glob("*.txt")), ids=lambda p: p.name
)
def test_a_lock_file_names_no_host_and_no_local_path(lock: Path):
    text = lock.read_text(encoding="utf-8")
    assert re.findall(r"://|index-url|find-links|(?:^|\s)/\S+|@ ", text) == []


def test_every_locked_package_has_a_hash():
    text = (ROOT / "requirements/dev.txt").read_text(encoding="utf-8")
    assert re.findall(r"^\S+==\S+[^\\]*$", text, re.MULTILINE) == []


def test_a_layer_that_exists_is_not_optional():
    layers = " ".join(CONTRACTS[0]["layers"])
    assert [name for name in re.findall(r"\((\w+)\)", layers) if exists(name)] == []


@pytest.mark.parametrize(("kind", "modules", "named"), LATER.values(), ids=LATER)
def test_a_contract_exists_once_its_modules_do(kind: str, modules: set[str], named: set[str]):
    if not all(map(exists, modules)):
        return
    assert [c["name"] for c in CONTRACTS if c["type"] == kind and named <= names(c)] != []


def test_a_dependency_in_use_is_not_ignored_as_unused():
    excused: list[str] = SETTINGS["tool"]["deptry"].get("per_rule_ignores", {}).get("DEP002", [])
    text = "\n".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    in_use = [
        name
        for name in excused
        if re.search(rf"^\s*(import|from) {IMPORT_NAMES.get(name, name)}\b", text, re.MULTILINE)
    ]
    assert in_use == []


def test_every_dependency_is_explained_in_the_docs():
    project = SETTINGS["project"]
    extras = [line for group in project["optional-dependencies"].values() for line in group]
    declared = [*project["dependencies"], *extras, *SETTINGS["dependency-groups"]["dev"]]
    documented = (ROOT / "docs/dependencies.md").read_text(encoding="utf-8")
    assert [line for line in declared if f"`{re.split(r'[<>=]', line)[0]}`" not in documented] == []
