"""out/draft.md -> out/report.md and out/report.html: citations are found, and sums are done."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from pathlib import Path

from page import rendered

DOCUMENTS = Path("documents")
OUT = Path("out")
_CITED = re.compile(r"\[\[([\w.-]{1,80}):([^\[\]]{1,300})\]\]")
_SUM = re.compile(r"\{=([^={}|]{1,200})(?:\|([^={}]{1,20}))?=\}")
_DONE: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.Div: lambda left, right: left / right,
}


def read_documents() -> dict[str, list[str]]:
    """The lines of each document, by its name without what stands behind the dot."""
    files = sorted(DOCUMENTS.glob("*.md"))
    return {file.stem: file.read_text(encoding="utf-8").splitlines() for file in files}


class Checking:
    """Goes through a draft; what is wrong with it is kept, so that all is told at once."""

    def __init__(self, documents: dict[str, list[str]]) -> None:
        self.documents = documents
        self.quoted: dict[tuple[str, int], str] = {}
        """The words that were cited, by document and line."""
        self.wrong: list[str] = []

    def cite(self, found: re.Match[str]) -> str:
        name, words = found[1].removesuffix(".md"), found[2].strip().strip('"')
        lines = self.documents.get(name)
        if lines is None:
            return self._refuse(f"there is no {name}; there are {', '.join(self.documents)}")
        places = [number for number, line in enumerate(lines, 1) if words in line]
        if len(places) != 1:
            where = f"in {len(places)} lines" if places else "nowhere"
            return self._refuse(f'"{words}" is {where} in {name}; quote one line exactly')
        self.quoted[(name, places[0])] = words
        return f"[{name}:{places[0]}]"

    def calculate(self, found: re.Match[str]) -> str:
        try:
            value = worked_out(ast.parse(found[1].strip(), mode="eval").body)
            return format(value, (found[2] or ",.6g").strip())
        except (SyntaxError, ValueError, ZeroDivisionError) as error:
            return self._refuse(f"{found[1].strip()}: cannot be worked out ({error})")

    def _refuse(self, why: str) -> str:
        self.wrong.append(why)
        return ""


def worked_out(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _DONE:
        return _DONE[type(node.op)](worked_out(node.left), worked_out(node.right))
    raise ValueError("only numbers, + - * / and parentheses")


def main() -> None:
    checking = Checking(read_documents())
    draft = (OUT / "draft.md").read_text(encoding="utf-8").strip()
    text = _SUM.sub(checking.calculate, _CITED.sub(checking.cite, draft))
    if not checking.quoted:
        checking.wrong.append("nothing is cited")
    if checking.wrong:
        sys.exit("nothing was written:\n" + "\n".join(f"- {item}" for item in checking.wrong))
    quotations = [
        f'- [{name}:{line}] "{words}"' for (name, line), words in sorted(checking.quoted.items())
    ]
    text = "\n".join([text, "", "## Quotations", "", *quotations, ""])
    (OUT / "report.md").write_text(text, encoding="utf-8")
    (OUT / "report.html").write_text(rendered(text, checking.documents), encoding="utf-8")
    print(text)
    print(f"{len(quotations)} quotations, all found; wrote out/report.md and out/report.html")


if __name__ == "__main__":
    main()
