"""The size and naming limits that no linter has; silent when all of them hold."""

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import cast

FOLDERS = ("src", "tests", "tools", "bench", "demo")
SOURCE = "src"
MAX_LINES = 500  # lines; above it a file answers more than one question
MAX_PARAMETERS = 6  # of a function; ruff allows the 8 that a constructor may have
MAX_CORE_LINES = 1800  # lines beside `core/events`, which is as large as the log's vocabulary
MAX_WIRING_LINES = 3000  # lines; it assembles, and logic is in the layers below
MAX_FOLDER_LINES = {
    Path("src/mainspring/core"): MAX_CORE_LINES,
    Path("src/mainspring/wiring"): MAX_WIRING_LINES,
}
UNCOUNTED_FOLDERS = {Path("src/mainspring/core/events")}
BANNED_NAMES = {"base", "common", "helper", "helpers", "manager", "managers", "util", "utils"}
BANNED_ENDINGS = ("_helpers", "_manager", "_utils")

# Metaphors make code a private language: nobody searches for them. The word to use instead; a
# technical term of the field (harness, hook, lease, inbox, keeper, vault, worker) is no metaphor.
METAPHORS = {
    "crew": "subagents",
    "desk": "context",
    "drawer": "repository",
    "ear": "subscription",
    "ensemble": "thread tree",
    "gatehouse": "access",
    "house": "service",
    "kit": "toolbox",
    "lookout": "protected paths",
    "offstage": "offline services",
    "outfit": "set-up",
    "outfitter": "builder",
    "premises": "dependencies",
    "purse": "budget",
    "seat": "thread spec",
    "shelf": "catalog",
    "surroundings": "dependencies",
    "teller": "renderer",
    "veil": "redactor",
    "wicket": "route policy",
    "wish": "options",
    "workshop": "assembly",
}
# As a verb, `stage` is the usual word for preparing a commit; as a thing, it is theatre.
METAPHORICAL_THINGS = {"stage": "runner"}
# A bare participle does not say of what. As one word among others it is fine: `NotFound`.
BARE_PARTICIPLES = {
    *("asked", "found", "given", "heard", "kept", "known", "made", "meant"),
    *("said", "seen", "shown", "taken", "told", "wanted"),
}


def main(root: Path) -> int:
    breaches = list(violations(root))
    for violation in breaches:
        print(violation)
    return 1 if breaches else 0


def violations(root: Path) -> Iterator[str]:
    classes: dict[str, Path] = {}
    for path in sources(root):
        place = path.relative_to(root)
        text = path.read_text(encoding="utf-8")
        lines = len(text.splitlines())
        if lines > MAX_LINES:
            yield f"{place}: {lines} lines, at most {MAX_LINES}: one idea a file"
        for name in (*place.parts[:-1], place.stem):
            if is_banned(name):
                yield f"{place}: no module is called {name!r}: name the noun it is about"
        tree = ast.parse(text)
        yield from long_signatures(place, tree, text.splitlines())
        if place.parts[0] == SOURCE:
            yield from unclear_names(place, tree)
            yield from ambiguous_classes(place, tree, classes)
            yield from unexplained_numbers(place, tree, text.splitlines())
    for folder, most in MAX_FOLDER_LINES.items():
        files = [file for file in (root / folder).rglob("*.py") if is_counted(root, file)]
        lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)
        if lines > most:
            yield f"{folder}: {lines} lines in all, at most {most}"


def sources(root: Path) -> Iterator[Path]:
    for folder in FOLDERS:
        yield from sorted((root / folder).rglob("*.py"))


def is_counted(root: Path, file: Path) -> bool:
    return not any(file.is_relative_to(root / folder) for folder in UNCOUNTED_FOLDERS)


def long_signatures(place: Path, tree: ast.Module, lines: Sequence[str]) -> Iterator[str]:
    """The functions with more parameters than ruff's limit, which is that of constructors, says."""
    for node in functions(tree):
        arguments = node.args
        names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        count = len(names) - (names[:1] in (["self"], ["cls"]))
        if count <= MAX_PARAMETERS or node.name == "__init__":
            continue
        # Ruff's own mark is for what is above its limit, the other for what is below it.
        if not re.search("PLR0913|# parameters: ", lines[node.lineno - 1]):
            where = f"{place}:{node.lineno}: {node.name!r}"
            yield f"{where} has {count} parameters, at most {MAX_PARAMETERS}"


def functions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions in a block and in its blocks; expressions have none and are not walked."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        statements = getattr(node, field, ())
        if not isinstance(statements, list):
            continue
        for statement in cast("list[ast.AST]", statements):
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                yield statement
            yield from functions(statement)


def is_banned(name: str) -> bool:
    bare = name.strip("_")
    return bare in BANNED_NAMES or bare.endswith(BANNED_ENDINGS)


def unclear_names(place: Path, tree: ast.Module) -> Iterator[str]:
    """The modules, public classes and public functions whose names say nothing to a stranger."""
    for name in (*place.parts[1:-1], place.stem):
        if fault := fault_of(name, is_thing=True):
            yield f"{place}: the module {name!r} is {fault}"
    for node in definitions(tree):
        if fault := fault_of(node.name, is_thing=isinstance(node, ast.ClassDef)):
            yield f"{place}:{node.lineno}: the name {node.name!r} is {fault}"


def ambiguous_classes(place: Path, tree: ast.Module, classes: dict[str, Path]) -> Iterator[str]:
    """The public classes of a module whose name another module has taken already."""
    for node in definitions(tree):
        if isinstance(node, ast.ClassDef) and node in tree.body:
            first = classes.setdefault(node.name, place)
            if first != place:
                yield f"{place}:{node.lineno}: {node.name!r} is the name of a class in {first} too"


def unexplained_numbers(place: Path, tree: ast.Module, lines: Sequence[str]) -> Iterator[str]:
    """The numbers of a module without their unit and reason: a comment beside or above, or the
    string below."""
    for node, following in pairwise([*tree.body, ast.Pass()]):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or not is_number(node.value):
            continue
        around = lines[max(node.lineno - 2, 0) : node.end_lineno]
        is_above = node.lineno > 1 and around[0].startswith("#")
        is_below = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
        if not (is_above or is_below or "#" in around[-1]):
            name = lines[node.lineno - 1].partition(" =")[0]
            yield f"{place}:{node.lineno}: the number {name} has no unit and no reason beside it"


def is_number(node: ast.expr | None) -> bool:
    """A number, or a calculation or tuple of numbers alone."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int | float) and not isinstance(value, bool)
        case ast.UnaryOp(operand=operand):
            return is_number(operand)
        case ast.BinOp(left=left, right=right):
            return is_number(left) and is_number(right)
        case ast.Tuple(elts=parts):
            return bool(parts) and all(map(is_number, parts))
        case ast.Call(func=ast.Name(id="timedelta" | "Decimal")):
            return True
        case _:
            return False


def definitions(
    node: ast.Module | ast.ClassDef,
) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Public classes and functions, and the public methods of the former."""
    for inner in node.body:
        if not isinstance(inner, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if inner.name.startswith("_"):
            continue
        yield inner
        if isinstance(inner, ast.ClassDef):
            yield from definitions(inner)


def fault_of(name: str, *, is_thing: bool) -> str | None:
    if name.lower() in BARE_PARTICIPLES:
        return "a bare participle: name the value (a noun) or the effect (a verb)"
    metaphors = METAPHORS | (METAPHORICAL_THINGS if is_thing else {})
    for word in re.findall(r"[A-Z]*[a-z0-9]+|[A-Z]+", name):
        if instead := metaphors.get(word.lower()):
            return f"a metaphor: the field says {instead!r}"
    return None


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
