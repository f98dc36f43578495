"""The size and naming limits that no linter has; silent when all of them hold."""

import sys
from collections.abc import Iterator
from pathlib import Path

FOLDERS = ("src", "tests", "tools", "bench", "demo")
CORE = Path("src/mainspring/core")
MAX_LINES = 400
MAX_CORE_LINES = 3000  # the closed vocabulary of events is half of it
BANNED_NAMES = {"base", "common", "helper", "helpers", "manager", "managers", "util", "utils"}
BANNED_ENDINGS = ("_helpers", "_manager", "_utils")


def main(root: Path) -> int:
    found = list(violations(root))
    for violation in found:
        print(violation)
    return 1 if found else 0


def violations(root: Path) -> Iterator[str]:
    core_lines = 0
    for path in sources(root):
        place = path.relative_to(root)
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > MAX_LINES:
            yield f"{place}: {lines} lines, at most {MAX_LINES}: one idea a file"
        for name in (*place.parts[:-1], place.stem):
            if is_banned(name):
                yield f"{place}: no module is called {name!r}: name the noun it is about"
        if place.is_relative_to(CORE):
            core_lines += lines
    if core_lines > MAX_CORE_LINES:
        yield f"{CORE}: {core_lines} lines in all, at most {MAX_CORE_LINES}"


def sources(root: Path) -> Iterator[Path]:
    for folder in FOLDERS:
        yield from sorted((root / folder).rglob("*.py"))


def is_banned(name: str) -> bool:
    bare = name.strip("_")
    return bare in BANNED_NAMES or bare.endswith(BANNED_ENDINGS)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
