"""Random shell texts. `python -m tests.permissions.bash.fuzz SECONDS [SEED]` runs them for long.

Three kinds: texts from a grammar of stub commands, also damaged ones, executed by a real bash whose
every executed stub must be among what `split` found; any characters, for crashes; and command lines
of real programs, executed under strace where they are allowed (see `differential`). A third
argument is a PATH of further programs to run.
"""

import os
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.permissions.bash.differential import Counts, Differential
from tests.permissions.bash.oracle import STUBS, Stage, accounted
from tests.permissions.bash.program_writer import ProgramWriter
from tests.permissions.bash.trace import unavailable

from mainspring.harness.permissions.bash import (
    Commands,
    analyze_command,
    parse_commands,
    rule_matches,
    suggest_rule,
)

_PATH = "/usr/local/bin:/usr/bin:/bin"
_PLAIN = (
    "a",
    "b-c",
    "-x",
    "--y=z",
    "1",
    "x.y",
    "=",
    "a=b",
    ",",
    "]",
    "}",
    "done",
    "if",
    "%",
    "@",
    "-",
)
_QUOTED = (
    "'s p'",
    '"d q"',
    "'$x'",
    '"$x"',
    "'`c9`'",
    "'$(c9)'",
    "$'t\\tb'",
    "\\ ",
    "\\'",
    '\\"',
    "''",
)
_EXPANDED = (
    "$x",
    "${x}",
    "${x:-d}",
    '"$@"',
    "$((1+2))",
    "*",
    "{a,b}",
    "~",
    "${#x}",
    "[a]",
    "?",
    "{1..2}",
)
_NOISE = "$`(){}<>|&;'\"\\ \n#!*?[]=-+:,\t012cxEOF@%^"


class Writer:
    """Writes texts from a grammar; what it writes need not be valid."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._documents: list[str] = []

    def text(self) -> str:
        self._documents = []
        return self._list(self._chance.randint(0, 3)) + "".join(self._take_documents())

    def damaged(self) -> str:
        text = list(self.text())
        for _ in range(self._chance.randint(1, 4)):
            at = self._chance.randint(0, len(text))
            if self._chance.random() < 0.5:
                text.insert(at, self._chance.choice(_NOISE))
            elif text:
                del text[min(at, len(text) - 1)]
        return "".join(text)

    def noise(self) -> str:
        pieces = (
            "c1",
            "rm -rf /",
            "$(",
            "${",
            "<<E",
            "\nE\n",
            "case x in",
            "esac",
            "é",
            "\u200b",
            "\0",
            "ls",
        )
        return "".join(
            self._chance.choice(pieces) if self._chance.random() < 0.3 else self._char()
            for _ in range(self._chance.randint(0, 60))
        )

    def _char(self) -> str:
        if self._chance.random() < 0.9:
            return self._chance.choice(_NOISE)
        return chr(self._chance.randint(0, 0x10FFFF))

    def _take_documents(self) -> list[str]:
        taken, self._documents = self._documents, []
        return ["\n" + item for item in taken]

    def _list(self, depth: int) -> str:
        count = self._chance.choice((1, 1, 1, 2, 3))
        parts = [self._command(depth)]
        for _ in range(count - 1):
            join = self._chance.choice(
                (" && ", " || ", "; ", " | ", " |& ", " & ", "\n", ";", "|", "&&")
            )
            documents = self._take_documents() if "\n" in join else []
            if documents:
                join = "".join(documents) + "\n"
            parts += [join, self._command(depth)]
        return "".join(parts)

    def _body(self, depth: int) -> str:
        held, self._documents = self._documents, []
        text = self._list(depth)
        documents = "".join(self._take_documents())
        self._documents = held
        return text + documents + ("\n" if documents else "")

    def _command(self, depth: int) -> str:
        if depth <= 0 or self._chance.random() < 0.6:
            return self._simple(depth)
        inner = self._body(depth - 1)
        other = self._body(depth - 1)
        word = self._word(depth - 1)
        name = self._chance.choice("xyz")
        return self._chance.choice(
            (
                f"( {inner} )",
                f"({inner})",
                f"{{ {inner}; }}",
                f"{{ {inner}\n}}",
                f"if {inner}; then {other}; fi",
                f"if {inner}\nthen {other}\nelse {inner}\nfi",
                f"while c2; do {inner}; done",
                f"for {name} in {word} b; do {inner}; done",
                f"for {name} in a {word}\ndo\n{inner}\ndone",
                f"case {word} in a) {inner};; *) {other};; esac",
                f"case {word} in (a|b) {inner} ;; *) {other}\nesac",
                f"f{name}() {{ {inner}; }}; f{name} {word}",
                f"! {inner}",
                f"eval '{inner}'",
                f"bash -c '{inner}' {word}",
                f'sh -c "{inner}"',
                f"[[ -n {word} ]] && {inner}",
                f"{{ {inner}; }} > f1",
                f"({inner}) 2>&1",
                f"trap '{inner}' EXIT",
                f"{inner} # {other}",
                f"until c1; do {inner}; done",
                f"if c2; then {other}; elif {inner}; then {other}; fi",
                f"case {word} in a|{word}) {inner} ;;& *) {other} ;& b) {inner};; esac",
                f"function f{name} {{ {inner}; }}; f{name}",
                f"function f{name}() {{\n{inner}\n}}\nf{name} a",
                f"{name}=({word} {word}); {inner}",
                f"{name}+=({word}\n{word}); {inner}",
                f"declare {name}={word}; {inner}",
                f"local {name}={word}; {inner}",
                f"[ -n {word} ] && {inner}",
                f"[[ {word} == {word} || ! -f {word} ]] || {inner}",
                f"[[ {word} =~ {word} ]]; {inner}",
                f"{{ {inner}; }} | {other}",
                f"({inner}) & {other}",
                f"{{ {inner}; }} < /dev/null 2>&1; {other}",
                f"time -p {inner}",
                f"{inner} <<-E\n\t{word}\n\tE\n",
                f"for {name}; do {inner}; done",
                f"for {name} in {word} # {other}\ndo {inner}; done",
                f"set -e; {inner}",
                f"{inner};# {other}\n{other}",
            )
        )

    def _simple(self, depth: int) -> str:
        words = [self._head(), *(self._word(depth) for _ in range(self._chance.randint(0, 3)))]
        if self._chance.random() < 0.15:
            words.insert(0, f"{self._chance.choice(('v', 'w+', 'u'))}={self._word(depth)}")
        if self._chance.random() < 0.15:
            words.insert(self._chance.randint(0, len(words)), self._redirect(depth))
        if self._chance.random() < 0.1:
            words.insert(
                0,
                self._chance.choice(
                    (
                        "timeout 4",
                        "nice",
                        "env",
                        "env A=1",
                        "command",
                        "time",
                        "nohup",
                        "exec",
                        "nice -n 3",
                        "xargs",
                        "xargs -n 1",
                    )
                ),
            )
        return self._chance.choice((" ", " ", " ", "  ", " \\\n ")).join(words)

    def _head(self) -> str:
        name = self._chance.choice(STUBS)
        spellings = (
            name,
            name,
            name,
            name,
            f'"{name}"',
            f"'{name}'",
            f"\\{name}",
            f"{name[0]}''{name[1]}",
            f"$'\\x63'{name[1]}",
            f"{name[0]}\\{name[1]}",
        )
        return self._chance.choice(spellings)

    def _word(self, depth: int) -> str:
        return "".join([self._part(depth) for _ in range(self._chance.choice((1, 1, 1, 2, 3)))])

    def _part(self, depth: int) -> str:
        if depth <= 0 or self._chance.random() < 0.75:
            return self._chance.choice(self._chance.choice((_PLAIN, _QUOTED, _EXPANDED)))
        inner = self._body(depth - 1)
        usual = (f"$({inner})", f'"$({inner})"', f"`{inner}`", f"<({inner})", f"$(\n{inner}\n)")
        odd = (
            f'"`{inner}`"',
            f"${{x:-$({inner})}}",
            f'"${{x:-$({inner})}}"',
            f'"a ${{x:-"$({inner})"}} b"',
            f"${{x:-'$({inner})'}}",
            f"\"${{x:-'$({inner})'}}\"",
            f">({inner})",
            f"$(({inner}))",
            f"$(( 1 + $({inner}) ))",
            f"'{inner}'",
            f"$( # it's\n{inner})",
        )
        return self._chance.choice(usual if self._chance.random() < 0.8 else odd)

    def _redirect(self, depth: int) -> str:
        kind = self._chance.randint(0, 7)
        if kind < 4:
            operator = self._chance.choice(
                (">", ">>", "2>", "&>", ">|", "<>", "2>&1 >", "< ", "<<<", "3>")
            )
            return f"{operator}{self._chance.choice(('f1', ' f2', '/dev/null'))}"
        if kind == 4:
            return f"<<<{self._word(depth)}"
        end = self._chance.choice(("E", "EOF"))
        body = self._chance.choice(
            (f"{self._word(depth)}\nq", self._simple(0), f"$({self._body(0)})", "`c9`")
        )
        self._documents.append(f"{body}\n{end}")
        return self._chance.choice(
            (f"<<{end}", f"<<'{end}'", f"<<\\{end}", f"<< {end}", f'<<"{end}"', f"<<-{end}")
        )


@dataclass
class Tally:
    texts: int = 0
    executed: int = 0
    clear: int = 0
    ran: int = 0
    noise: int = 0


def check_intact(text: str, stage: Stage, tally: Tally) -> None:
    """And a rule that denies a stub sees it, whether the text is clear or not."""
    for item in check(text, stage, tally):
        assert rule_matches(f"{item[0]} *", text, behavior="deny"), (text, item)


def check(text: str, stage: Stage, tally: Tally) -> list[tuple[str, ...]]:
    """Every stub that bash ran for `text` is among what `split` found, or `split` knew better."""
    found = parse_commands(text)
    ran = stage.run(text)
    tally.texts += 1
    tally.executed += bool(ran)
    if not isinstance(found, Commands):
        return ran
    tally.clear += 1
    tally.ran += len(ran)
    for item in ran:
        assert accounted(item, found.commands), (text, item, [c.text for c in found.commands])
    return ran


def check_noise(text: str) -> None:
    """Whatever the text, there is an answer."""
    parse_commands(text)
    analyze_command(text)
    suggest_rule(text)
    for behavior in ("allow", "ask", "deny"):
        rule_matches("rm *", text, behavior=behavior)


def run(seconds: float, seed: int, more_programs: str) -> tuple[Tally, Counts]:
    """All kinds in turn. What is found by tracing is written out, and the run goes on."""
    chance, tally, reason = random.Random(seed), Tally(), unavailable()
    writer, programs = Writer(chance), ProgramWriter(chance)
    ends = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as stubs, tempfile.TemporaryDirectory() as traps:
        stage = Stage(Path(stubs))
        differential = Differential(Path(traps), ":".join(filter(None, (_PATH, more_programs))))
        while time.monotonic() < ends:
            check_intact(writer.text(), stage, tally)
            check(writer.damaged(), stage, tally)
            for _ in range(5):
                check_noise(writer.noise())
                tally.noise += 1
            differential.fuzz(0 if reason else 15, programs, _tell)
    _tell(f"traced: {reason or 'yes'}")
    return tally, differential.counts


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    given = [*sys.argv[1:], "0", ""] if len(sys.argv) == 2 else [*sys.argv[1:], ""]
    tally, counts = run(int(given[0]), int(given[1]), given[2])
    _tell(f"{tally}\n{counts}, {sum(os.times()[:4]):.0f} s of CPU")
    sys.exit(bool(counts.violations))
