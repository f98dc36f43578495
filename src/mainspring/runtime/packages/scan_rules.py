"""The scan rules, read from `scan_rules.toml`. `scan_text` applies them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import msgspec
import re2
from msgspec import Struct

from mainspring.runtime.packages.scan_rule import ScanRule, Severity, Topic, compile_pattern

_FRAGMENT = re.compile(r"\{([A-Z_]+)\}")


class _RuleEntry(Struct, frozen=True, forbid_unknown_fields=True, rename={"second": "with"}):
    name: str
    topic: Topic
    why: str
    set: str = ""
    """The rules that are applied together; the others are applied one by one, by their names."""
    script: Severity | None = None
    prose: Severity | None = None
    patterns: tuple[str, ...] = ()
    patterns_of: str = ""
    """Another rule with the same patterns."""
    second: str = ""
    """A rule or a pattern: matches of both in one script are worse than either."""


class _RuleFile(Struct, frozen=True, forbid_unknown_fields=True):
    fragments: dict[str, str]
    patterns: dict[str, tuple[str, ...]]
    rules: tuple[_RuleEntry, ...]

    def compiled(self, alternatives: tuple[str, ...]) -> re2.Pattern[bytes]:
        return compile_pattern(*map(self._expanded, alternatives))

    def _expanded(self, text: str) -> str:
        """The text with its fragments, which may have fragments themselves."""
        return _FRAGMENT.sub(lambda match: self._expanded(self.fragments[match[1]]), text)


_FILE = msgspec.convert(
    tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")), _RuleFile
)
_PATTERNS = {name: _FILE.compiled(pattern) for name, pattern in _FILE.patterns.items()}
_ENTRIES = {entry.name: entry for entry in _FILE.rules}
_RULES = {
    entry.name: ScanRule(
        entry.name,
        entry.topic,
        entry.script,
        entry.prose,
        entry.why,
        _FILE.compiled(_ENTRIES[entry.patterns_of or entry.name].patterns),
    )
    for entry in _FILE.rules
}


def _rules_of(set_: str) -> tuple[ScanRule, ...]:
    return tuple(_RULES[entry.name] for entry in _FILE.rules if entry.set == set_)


CODE_RULES = _rules_of("code")
PERSISTENCE_RULES = _rules_of("persistence")
INJECTION = _rules_of("injection")
PAIR_RULES: tuple[tuple[ScanRule, re2.Pattern[bytes]], ...] = tuple(
    (
        _RULES[entry.name],
        _RULES[entry.second].regex_pattern if entry.second in _RULES else _PATTERNS[entry.second],
    )
    for entry in _FILE.rules
    if entry.set == "pair"
)
"""Rules that are worse if the second one matches in the same script."""
PIPED_TO_SHELL = _RULES["piped-to-shell"]
BLOB = _RULES["encoded-blob"]
LONG_LINE = _RULES["long-line"]
LIFECYCLE = _RULES["runs-at-install"]
OUT_OF_SIGHT = _RULES["out-of-sight"]
HIDDEN_STYLE = _RULES["invisible-style"]
AT_ONCE = _RULES["runs-when-read"]
COMMENT = _RULES["comment-for-the-model"]
LINK = _RULES["leads-out"]
KNOWN_INSTALLERS = _PATTERNS["known_installers"]
IMPERATIVE = _PATTERNS["imperative"]
