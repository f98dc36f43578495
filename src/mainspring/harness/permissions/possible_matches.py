"""Rules that might forbid a command although its text alone does not show it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from mainspring.harness.permissions.call_analysis import AnalyzedCall, bash
from mainspring.harness.permissions.path_rules import PatternRoots, forbids_path, may_forbid_below
from mainspring.harness.permissions.rule import Rule
from mainspring.harness.permissions.tool_names import READ_TOOLS


class PossibleMatch(Struct, frozen=True):
    text: str
    is_program: bool = False
    """It concerns what a program may do: a rule that allows exactly this program settles it."""


def possible_matches(
    call: AnalyzedCall, rules: Sequence[tuple[Rule, PatternRoots]], *, is_sandboxed: bool
) -> Iterator[PossibleMatch]:
    """Matches of `rules`, which deny or ask. A sandbox hides forbidden files from programs, but not
    git's objects; and files that a command names plainly count even there."""
    analysis, command = call.analysis, call.command
    if analysis is None or command is None:
        return
    commands = [rule.specifier for rule, _ in rules if rule.tool == "bash" and rule.specifier]
    files = [
        (rule.specifier, roots)
        for rule, roots in rules
        if rule.tool in READ_TOOLS and rule.specifier is not None
    ]
    if commands:
        yield from _about_programs(commands, command, analysis)
    if files:
        yield from _about_files(files, call, analysis)
    if files and analysis.reads_anything and not is_sandboxed:
        yield PossibleMatch("it may read files that rules forbid to read", is_program=True)
    for rule, _ in rules:
        host = (rule.specifier or "").removeprefix("domain:").removeprefix("*.")
        if rule.tool == "web_fetch" and host.casefold() in command.casefold() and host:
            yield PossibleMatch(f"it names {host}, which the rule {rule} covers")


def _about_programs(
    patterns: Sequence[str], command: str, analysis: bash.CommandAnalysis
) -> Iterator[PossibleMatch]:
    if analysis.unclear:
        reason = f"it is unclear what runs: {analysis.reason}"
        yield PossibleMatch(f"rules forbid some commands, and {reason}")
    for pattern in patterns:
        if bash.might_match(pattern, command):
            yield PossibleMatch(f"after expansion, the rule Bash({pattern}) may cover it")
    if analysis.runs:
        yield PossibleMatch(f"rules forbid some programs, and {analysis.runs}", is_program=True)


def _about_files(
    rules: Sequence[tuple[str, PatternRoots]], call: AnalyzedCall, analysis: bash.CommandAnalysis
) -> Iterator[PossibleMatch]:
    if analysis.shows_history:
        yield PossibleMatch(
            "git would show files that rules may forbid to read; name the paths (`-- src`) or ask"
            " for `--stat`"
        )
    if analysis.hides_reads:
        yield PossibleMatch("which files it reads is unknown until it runs")
    for specifier, roots in rules:
        for folder in call.trees:
            if may_forbid_below(specifier, folder, roots):
                yield PossibleMatch(f"it reads all of {folder.link}, where {specifier} may be")
        for file in call.guesses:
            if forbids_path(specifier, file, roots):
                yield PossibleMatch(f"it may read {file.link}, which a rule covers")
