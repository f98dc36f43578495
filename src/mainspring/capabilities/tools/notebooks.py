"""Jupyter notebooks as text: cells, what is in them and what came out of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import msgspec
from msgspec import Struct, field

_MAX_OUTPUT_CHARS = 4000


class _Output(Struct, frozen=True):
    text: str | list[str] = ""
    data: dict[str, object] = field(default_factory=dict[str, object])
    ename: str = ""
    evalue: str = ""


class _Cell(Struct, frozen=True):
    cell_type: str
    source: str | list[str] = ""
    outputs: list[_Output] = field(default_factory=list[_Output])


class _Notebook(Struct, frozen=True):
    cells: list[_Cell]


def notebook_text(content: str) -> str | None:
    """The cells one after the other; `None` if it is no notebook after all."""
    try:
        notebook = msgspec.json.decode(content, type=_Notebook)
    except msgspec.DecodeError:
        return None
    return "\n".join(_lines(notebook))


def _lines(notebook: _Notebook) -> Iterator[str]:
    for number, cell in enumerate(notebook.cells, 1):
        yield f"[cell {number}: {cell.cell_type}]"
        yield _joined(cell.source)
        for output in cell.outputs:
            if shown := _shown(output):
                yield f"[output of cell {number}]"
                yield shown[:_MAX_OUTPUT_CHARS]


def _shown(output: _Output) -> str:
    if output.ename:
        return f"{output.ename}: {output.evalue}"
    pictures = [kind for kind in output.data if kind.startswith("image/")]
    said = _joined(output.text) or _joined(output.data.get("text/plain", ""))
    return f"{said} [{', '.join(pictures)}]" if pictures else said


def _joined(text: object) -> str:
    """As the format has it: a text, or its lines."""
    return "".join(map(str, cast("list[object]", text))) if isinstance(text, list) else str(text)
