"""The tables of programs, read from `programs.txt`, which describes its format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mainspring.harness.permissions.bash.command import word_set


def _read_sections(text: str) -> dict[str, dict[str, str]]:
    """The lines of each section, by their names; the first word of a line may be `$NAME`."""
    sections: dict[str, dict[str, str]] = {}
    section: dict[str, str] = {}
    for line in _whole_lines(text):
        if line.startswith("[") and line.endswith("]"):
            section = sections.setdefault(line[1:-1], {})
        else:
            name, _, tokens = line.partition(": ")
            first, blank, rest = tokens.partition(" ")
            shared = sections["shared"].get(first[1:]) if first.startswith("$") else None
            section[name] = f"{shared}{blank}{rest}" if shared else tokens
    return sections


def _whole_lines(text: str) -> Iterator[str]:
    """The lines without comments and blank lines; an indented line goes on with the one before."""
    line = ""
    for part in text.splitlines():
        if part.startswith("    "):
            line += part[3:]
        elif not part.startswith("#"):
            if line:
                yield line
            line = part
    if line:
        yield line


_SECTIONS = _read_sections(Path(__file__).with_name("programs.txt").read_text(encoding="utf-8"))
_ANALYZED, _SETS = _SECTIONS["analyzed"], _SECTIONS["sets"]

PROGRAMS = _SECTIONS["programs"]
SUBCOMMANDS = {tuple(words.split()): tokens for words, tokens in _SECTIONS["subcommands"].items()}
SED, AWK, XARGS = _ANALYZED["sed"], _ANALYZED["awk"], _ANALYZED["xargs"]
FIND_TESTS = word_set(_SETS["find-tests"])
FIND_FILES = word_set(_SETS["find-files"])
VERSIONED = word_set(_SETS["versioned"])
SHORT_VERSIONS = {option: word_set(names) for option, names in _SECTIONS["short-versions"].items()}
SANDBOX_ONLY = word_set(_SETS["sandbox-only"])
LOADING = word_set(_SETS["loading"])
PLAIN = word_set(_SETS["plain"])
COPYING = word_set(_SETS["copying"])
SILENT = word_set(_SETS["silent"])
