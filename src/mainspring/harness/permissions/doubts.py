"""What a rule that forbids may be about, though the text of a command does not tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mainspring.harness.permissions import bash
from mainspring.harness.permissions.bash import Verdict
from mainspring.harness.permissions.judged import Judged
from mainspring.harness.permissions.names import READING
from mainspring.harness.permissions.paths import Roots, is_hit, may_be_in
from mainspring.harness.permissions.rules import Rule


@dataclass(frozen=True, slots=True)
class Doubt:
    text: str
    is_program: bool = False
    """About what a program may do: a rule that allows this very program settles it."""


def doubts(
    judged: Judged, rules: Sequence[tuple[Rule, Roots]], *, is_sandboxed: bool
) -> Iterator[Doubt]:
    """Rules: those that deny or ask. From programs in a sandbox files that may not be read are
    hidden; git's objects are not, and what is plainly named is not left to that."""
    verdict, command = judged.verdict, judged.command
    if verdict is None or command is None:
        return
    commands = [rule.specifier for rule, _ in rules if rule.tool == "bash" and rule.specifier]
    files = [
        (rule.specifier, roots)
        for rule, roots in rules
        if rule.tool in READING and rule.specifier is not None
    ]
    if commands:
        yield from _about_programs(commands, command, verdict)
    if files:
        yield from _about_files(files, judged, verdict)
    if files and verdict.reads_anything and not is_sandboxed:
        yield Doubt("it may read files that rules forbid to read", is_program=True)
    for rule, _ in rules:
        host = (rule.specifier or "").removeprefix("domain:").removeprefix("*.")
        if rule.tool == "web_fetch" and host.casefold() in command.casefold() and host:
            yield Doubt(f"it names {host}, which the rule {rule} is about")


def _about_programs(patterns: Sequence[str], command: str, verdict: Verdict) -> Iterator[Doubt]:
    if verdict.unclear:
        yield Doubt(f"what it runs cannot be told, and rules forbid some: {verdict.reason}")
    for pattern in patterns:
        if bash.might_match(pattern, command):
            yield Doubt(f"once it is expanded, the rule Bash({pattern}) may be about it")
    if verdict.runs:
        yield Doubt(f"rules forbid some programs, and {verdict.runs}", is_program=True)


def _about_files(
    rules: Sequence[tuple[str, Roots]], judged: Judged, verdict: Verdict
) -> Iterator[Doubt]:
    if verdict.shows_history:
        yield Doubt(
            "git would show files that rules may forbid to read; name the paths (`-- src`) or ask"
            " for `--stat`"
        )
    if verdict.hides_reads:
        yield Doubt("which files it reads cannot be told before it runs")
    for specifier, roots in rules:
        for folder in judged.trees:
            if may_be_in(specifier, folder, roots):
                yield Doubt(f"it reads all of {folder.link}, where {specifier} may be")
        for file in judged.guesses:
            if is_hit(specifier, file, roots):
                yield Doubt(f"it may read {file.link}, which a rule is about")
