"""sed, awk and jq: whether a program text only prints."""

from __future__ import annotations

import re

from mainspring.harness.permissions.bash.command import Word
from mainspring.harness.permissions.bash.option_tables import (
    ParsedArguments,
    literal_word,
    option_table,
    parse_arguments,
)
from mainspring.harness.permissions.bash.program_tables import AWK, SED

# Inside brackets, the delimiter ends the pattern in some versions of sed, but not in GNU sed.
_BRACKETS = r"\[\^?\]?(?:\[:[a-z]+:\]|[^\]\[{d}\n])*\]"
_REGEX = r"(?:[^{d}\\\n\[]|\\[^\n]|{brackets})*"


def _regex(delimiter: str) -> str:
    brackets = _BRACKETS.replace("{d}", delimiter)
    return _REGEX.replace("{d}", delimiter).replace("{brackets}", brackets)


_ADDRESS = rf"(?:[0-9]+(?:~[0-9]+)?|\$|/{_regex('/')}/I?)"
_RANGE = rf"(?:{_ADDRESS}(?:[ \t]*,[ \t]*(?:{_ADDRESS}|\+[0-9]+|~[0-9]+))?[ \t]*!?[ \t]*)?"
# The flags of `s` without e (run) and w (write).
_SUBSTITUTE = "|".join(
    rf"s{d}{_regex(d)}{d}(?:[^{d}\\\n]|\\[^\n])*{d}[gpiIm0-9]*"
    for d in ("/", r"\|", "#", ",", "@", ":", "!")
)
_TRANSLITERATE = r"y/(?:[^/\\\n]|\\.)*/(?:[^/\\\n]|\\.)*/"
_JUMP = r":[A-Za-z0-9_]+|[btT][ \t]*[A-Za-z0-9_]*"
_ONE = re.compile(
    rf"{_RANGE}(?:[pdPDgGhHxnN=lz]|[qQ][0-9]*|{_JUMP}|{_SUBSTITUTE}|{_TRANSLITERATE})"
)
_GROUP = re.compile(rf"{_RANGE}\{{")
_END = re.compile(r"[ \t]*(?:[;\n}]|$)")

# Words that run, read or write elsewhere, load, or call something known only at run time.
_AWK_EFFECT = re.compile(
    r"system|getline|\||@|\binclude\b|\bload\b|ARG[VC]|SYMTAB|FUNCTAB|PROCINFO"
)
_JQ_EFFECT = re.compile(
    r"\b(?:import|include|modulemeta|get_search_list|load\w*|strload|eval|system)\b"
)


def program_texts(spec: str, line: ParsedArguments) -> list[Word]:
    """The program texts: values of options, or else the first operand."""
    return line.values(*option_table(spec).scripts) or line.operands[:1]


def sed_effects(arguments: tuple[Word, ...]) -> list[Word]:
    """The words that do more than print: `-i` and unknown scripts; all words if unclear."""
    line = parse_arguments(arguments, SED + " -i? --in-place?")
    if line is None:
        return list(arguments)
    in_place = [literal_word(name) for name, _ in line.options if name in {"-i", "--in-place"}]
    scripts = program_texts(SED, line)
    return [*in_place, *(script for script in scripts if not is_sed_script_pure(script.value))]


def is_sed_read_only(arguments: tuple[Word, ...]) -> bool:
    line = parse_arguments(arguments, SED)
    scripts = program_texts(SED, line) if line else []
    return bool(scripts) and all(is_sed_script_pure(script.value) for script in scripts)


def is_sed_script_pure(script: str | None) -> bool:
    """Whether all commands of a sed script are known to only print."""
    if script is None:
        return False
    at = 0
    while at < len(script):
        if script[at] in "; \t\n}":
            at += 1
        elif group := _GROUP.match(script, at):
            at = group.end()
        elif (single := _ONE.match(script, at)) and _END.match(script, single.end()):
            at = single.end()
        else:
            return False
    return True


def is_awk_read_only(arguments: tuple[Word, ...]) -> bool:
    line = parse_arguments(arguments, AWK)
    if line is None or not line.operands:
        return False
    script, *files = line.operands
    # Some awks take options after the script, too.
    is_option = any((file.value or "").startswith("-") for file in files)
    return not is_option and is_awk_program_pure(script.value)


def is_awk_program_pure(script: str | None) -> bool:
    """Whether an awk program only prints; strings and patterns in it count like code."""
    if script is None or _AWK_EFFECT.search(script.replace("||", "")):
        return False
    return ">" not in script or "print" not in script


def is_jq_program_pure(script: str | None) -> bool:
    return script is not None and _JQ_EFFECT.search(script) is None
