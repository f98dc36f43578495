"""What a docstring tells a model: a summary, and a line about each parameter."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

_PARAMETER_SECTIONS = frozenset(("Args:", "Arguments:", "Parameters:", "Params:"))
_OTHER_SECTION = re.compile(
    r"(Returns?|Raises|Yields?|Examples?|Notes?|Attributes|See Also|Warnings?|Todo):"
)
_ENTRY = re.compile(
    r"(?:[-*] )?(?::param (?:\w+ )?)?[`*]{0,2}(\w+)[`*]{0,2}"  # the name
    r"(?: ?\([^)]*\))? ?(?::|-{1,2} |[–—]) ?(.*)"  # perhaps a type, then what it is
)


@dataclass(frozen=True, slots=True)
class Docstring:
    summary: str
    """The first paragraph, on one line."""
    parameters: Mapping[str, str]


def read_docstring(text: str, parameters: Collection[str]) -> Docstring:
    """Take a docstring apart; Google's `Args:`, `:param name:` and plain `name: text` are read."""
    lines = inspect.cleandoc(text).splitlines()
    end = next((at for at, line in enumerate(lines) if _ends_summary(line)), len(lines))
    summary = " ".join(line.strip() for line in lines[:end])
    return Docstring(summary, _described(lines[end:], parameters))


def _ends_summary(line: str) -> bool:
    bare = line.strip()
    return not bare or _is_section(bare) or bare.startswith(":param ")


def _is_section(line: str) -> bool:
    return line in _PARAMETER_SECTIONS or _OTHER_SECTION.fullmatch(line) is not None


def _described(lines: Iterable[str], parameters: Collection[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    current, indent, is_about_parameters = "", 0, True
    for line in lines:
        bare = line.strip()
        if _is_section(bare):
            current, is_about_parameters = "", bare in _PARAMETER_SECTIONS
            continue
        if not is_about_parameters:
            continue
        entry = _ENTRY.fullmatch(bare)
        depth = len(line) - len(line.lstrip())
        if current and bare and depth > indent:
            found[current] = f"{found[current]} {bare}".strip()
        elif entry is not None and entry[1] in parameters and entry[1] not in found:
            current, indent = entry[1], depth
            found[current] = entry[2].strip()
        else:
            current = ""
    return {name: description for name, description in found.items() if description}
