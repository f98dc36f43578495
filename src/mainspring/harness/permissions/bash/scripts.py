"""sed and awk: whether a script only prints."""

from __future__ import annotations

import re

from mainspring.harness.permissions.bash.command import Word
from mainspring.harness.permissions.bash.options import literal, understood

_SED = "-nErsuz -e= --quiet --silent --expression= --regexp-extended --null-data --separate"
" --posix --debug"
_ADDRESS = r"(?:[0-9]+(?:~[0-9]+)?|\$|/(?:[^/\\\n]|\\.)*/I?)"
_RANGE = rf"(?:{_ADDRESS}(?:\s*,\s*(?:{_ADDRESS}|\+[0-9]+|~[0-9]+))?\s*!?\s*)?"
# The flags of `s` without e (run) and w (write).
_SUBSTITUTE = "|".join(
    rf"s{d}(?:[^{d}\\\n]|\\[^\n])*{d}(?:[^{d}\\\n]|\\[^\n])*{d}[gpiIm0-9]*"
    for d in ("/", r"\|", "#", ",", "@", ":", "!")
)
_TRANSLITERATE = r"y/(?:[^/\\\n]|\\.)*/(?:[^/\\\n]|\\.)*/"
_ONE = re.compile(rf"{_RANGE}(?:[pdPDgGhHxnN=l]|[qQ][0-9]*|{_SUBSTITUTE}|{_TRANSLITERATE})")
_GROUP = re.compile(rf"{_RANGE}\{{")
_END = re.compile(r"\s*(?:[;\n}]|$)")

# Run, read or write elsewhere, load, or call what is only known at run time.
_AWK_EFFECT = re.compile(r"system|getline|\||@|\binclude\b|\bload\b")


def sed_effects(arguments: tuple[Word, ...]) -> list[Word]:
    """What makes it more than printing: `-i`, or scripts that are not understood; or all of it."""
    line = understood(arguments, _SED + " -i? --in-place?")
    if line is None:
        return list(arguments)
    scripts = line.values("-e", "--expression") or line.operands[:1]
    in_place = [literal(name) for name, _ in line.options if name in {"-i", "--in-place"}]
    return [*in_place, *(each for each in scripts if not _only_prints(each.value))]


def sed_only_looks(arguments: tuple[Word, ...]) -> bool:
    line = understood(arguments, _SED)
    if line is None:
        return False
    scripts = line.values("-e", "--expression") or line.operands[:1]
    return bool(scripts) and all(_only_prints(each.value) for each in scripts)


def _only_prints(script: str | None) -> bool:
    """Command by command; one that is not known ends it."""
    if script is None:
        return False
    at = 0
    while at < len(script):
        if script[at] in "; \t\n}":
            at += 1
        elif group := _GROUP.match(script, at):
            at = group.end()
        elif (one := _ONE.match(script, at)) and _END.match(script, one.end()):
            at = one.end()
        else:
            return False
    return True


def awk_only_looks(arguments: tuple[Word, ...]) -> bool:
    line = understood(arguments, "+ -F= -v= --field-separator= --assign=")
    if line is None or not line.operands:
        return False
    script, *files = line.operands
    # Some awks take options after the script, too.
    return not any((each.value or "").startswith("-") for each in files) and _only_computes(
        script.value
    )


def _only_computes(script: str | None) -> bool:
    """Strings and patterns are not told from code: what is in them counts, too."""
    if script is None or _AWK_EFFECT.search(script.replace("||", "")):
        return False
    return ">" not in script or "print" not in script
