"""Write the programs of the documentation that use our Python API to build/doc_examples, where the
type checker finds them. Fragments and programs for other packages are left out."""

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "build/doc_examples"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def main() -> None:
    shutil.rmtree(TARGET, ignore_errors=True)
    TARGET.mkdir(parents=True)
    for name, program in programs():
        (TARGET / f"{name}.py").write_text(program, encoding="utf-8")


def programs() -> Iterator[tuple[str, str]]:
    """The name and the text of each complete program."""
    for document in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        blocks = BLOCK.findall(document.read_text(encoding="utf-8"))
        for number, program in enumerate(blocks, 1):
            if uses_our_api(program):
                yield f"{document.stem.replace('-', '_').lower()}_{number}", program


def uses_our_api(program: str) -> bool:
    imports = [node for node in ast.parse(program).body if isinstance(node, ast.ImportFrom)]
    return any((node.module or "").partition(".")[0] == "mainspring" for node in imports)


if __name__ == "__main__":
    main()
