"""What was judged, held against what happened: a text that is allowed runs under a trace."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from msgspec.structs import replace
from tests.permissions.bash.program_grammar import productions
from tests.permissions.bash.program_writer import ProgramWriter
from tests.permissions.bash.trace import Trace, Tracer
from tests.permissions.bash.trap_workspace import CANARY, DENY_RULES, READ_ONLY_RULES, TrapWorkspace

from mainspring.core.events import Permission
from mainspring.core.tool import Traits
from mainspring.harness.permissions.bash import parse_commands
from mainspring.harness.permissions.call_analysis import AnalyzedCall, analyze_call, location_after
from mainspring.harness.permissions.command_location import read_command_location
from mainspring.harness.permissions.decide import decide
from mainspring.harness.permissions.grant_state import GrantState
from mainspring.harness.permissions.policy import Policy, PolicyRule

_NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
# What a program runs that is named in a text: its parts, not somebody else's choice.
_HELPERS = {
    "git": "git git-submodule basename sed uname sh gettext envsubst expr",
    "egrep": "grep",
    "fgrep": "grep",
    "xargs": "echo",
    "zcat": "gzip",
    "zcmp": "gzip cmp bash",
    "zdiff": "gzip diff bash",
    "zgrep": "gzip grep sed bash",
    "gunzip": "gzip",
    "bzcat": "bzip2",
    "xzcat": "xz",
    "zstdcat": "zstd",
    "man": "apropos whatis groff troff grotty preconv tbl nroff locale less",
    "npm": "node",
    "npx": "node",
    "tar": "gzip bzip2 xz zstd",
    "sdiff": "diff",
    "diff3": "diff",
    "ldd": "bash",
    "locale": "gzip",
    "which": "sh dash",
    "dpkg": "dpkg-query",
    "apt-cache": "dpkg",
    "apt": "dpkg",
    "yq": "jq",
}
_HARMLESS_TARGETS = re.compile(
    r"/dev/(?:null|tty|stdout|stderr|fd/\d+|pts/\d+)|/proc/(?:self|\d+)/fd/\d+"
)
_MAX_RUNS = 60


def _is_part_of(path: str, edited: str) -> bool:
    """Also its parents, for `mkdir -p`, and the file that `sed -i` makes beside it."""
    if "/.git/" in f"{path}/":
        return False
    beside = re.fullmatch(r"(.*)/sed\w{6}", path)
    is_copy = beside is not None and beside[1] == os.path.dirname(edited)
    return is_copy or f"{path}/".startswith(f"{edited}/") or edited.startswith(f"{path}/")


def _label(name: str, *, is_sandboxed: bool) -> str:
    return f"{name}{', sandboxed' if is_sandboxed else ''}"


@dataclass(frozen=True, slots=True)
class Violation:
    text: str
    before: str
    """An earlier call, which may have taken the shell elsewhere."""
    rules: str
    kind: str
    detail: str


@dataclass(slots=True)
class Counts:
    texts: int = 0
    executed: int = 0
    opens: int = 0
    timeouts: int = 0
    violations: list[Violation] = field(default_factory=list[Violation])
    reached: set[str] = field(default_factory=set[str])
    """Productions of texts that were executed."""

    def __str__(self) -> str:
        return (
            f"{self.texts} commands judged, {self.executed} allowed and executed"
            f" ({self.timeouts} timed out), {self.opens} opens traced,"
            f" {len(self.reached)} of {len(productions())} productions executed,"
            f" {len(self.violations)} violations"
        )


class Differential:
    """Owns a workspace of traps in `root`, and the rule sets that texts are judged by."""

    def __init__(self, root: Path, path: str | None = None) -> None:
        self.workspace = TrapWorkspace(root)
        self._tracer = Tracer(root, path) if path else Tracer(root)
        plain, denying = self._policy(), self._policy(deny=DENY_RULES)
        self._place = read_command_location(plain)
        self._sets = {
            "none": plain,
            "deny": denying,
            "deny+read-only": self._policy(deny=DENY_RULES, allow=READ_ONLY_RULES),
            "plan": replace(plain, mode="plan"),
            "plan+deny": replace(denying, mode="plan"),
            "acceptEdits": replace(plain, mode="acceptEdits"),
            "deny+Bash": self._policy(deny=DENY_RULES, allow=("Bash",)),
        }
        self.counts = Counts()
        self._told: set[tuple[str, str]] = set()

    def _policy(self, *, allow: tuple[str, ...] = (), deny: tuple[str, ...] = ()) -> Policy:
        folder = str(self.workspace.root)
        held = partial(PolicyRule, scope="project", folder=folder)
        behaviors: tuple[tuple[Permission, tuple[str, ...]], ...] = (
            ("allow", allow),
            ("deny", deny),
        )
        rules = [held(text=text, behavior=each) for each, texts in behaviors for text in texts]
        return Policy(workspace=folder, home=str(self.workspace.home), rules=tuple(rules))

    def fuzz(self, texts: int, writer: ProgramWriter, tell: Callable[[str], None]) -> None:
        """Check this many texts; of each sort of violation, one is told, in its shortest form."""
        for _ in range(texts):
            text, executed = writer.text(), self.counts.executed
            found = self.check(text, writer.before)
            is_executed = self.counts.executed > executed
            writer.learn(is_executed=is_executed)
            if is_executed:
                self.counts.reached |= writer.used
            for kind in dict.fromkeys(item.kind for item in found):
                if (kind, text.split()[0]) not in self._told:
                    self._told.add((kind, text.split()[0]))
                    tell(self._telling([item for item in found if item.kind == kind]))

    def _telling(self, alike: list[Violation]) -> str:
        rules = " / ".join(dict.fromkeys(item.rules for item in alike))
        first = alike[0]
        where = f" after {first.before!r}" if first.before else ""
        shortest = self.minimized(first)
        return f"VIOLATION {first.kind} {first.detail[:200]}: {shortest!r}{where} [{rules}]"

    def judged(self, text: str, before: str = "") -> AnalyzedCall:
        place = location_after([before], self._place) if before else self._place
        return analyze_call("bash", {"command": text}, Traits(), place)

    def allowing(self, text: str, before: str = "") -> list[tuple[str, bool]]:
        """The rule sets that let `text` run, out of a sandbox and in one."""
        judged = self.judged(text, before)
        return [
            (name, i)
            for name, policy in self._sets.items()
            for i in (False, True)
            if decide(judged, policy, GrantState(), now=_NOW, is_sandboxed=i).decision == "allow"
        ]

    def check(self, text: str, before: str = "") -> list[Violation]:
        """Execute `text` if any rule set allows it; what it did that none of them may."""
        allowing = self.allowing(text, before)
        self.counts.texts += 1
        if not allowing:
            return []
        trace = self.run(text, before)
        self.counts.executed += 1
        self.counts.opens += len(trace.reads) + len(trace.silent_reads)
        self.counts.timeouts += trace.timed_out
        judged = self.judged(text, before)
        found = [
            Violation(text, before, _label(name, is_sandboxed=is_sandboxed), kind, detail)
            for name, is_sandboxed in allowing
            for kind, detail in self.found(name, trace, judged, is_sandboxed=is_sandboxed)
        ]
        self.counts.violations.extend(found)
        return found

    def run(self, text: str, before: str = "", *, seconds: float = 10) -> Trace:
        whole = f"{before}\n{text}" if before else text
        return self._tracer.run(whole, self.workspace.root, seconds=seconds)

    def found(
        self, name: str, trace: Trace, judged: AnalyzedCall, *, is_sandboxed: bool = False
    ) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        if "deny" in name:
            found += self._denied_reads(trace)
        if name == "deny+Bash":
            return found + self._denied_runs(trace)
        found += self._changes(trace, judged if name == "acceptEdits" else None)
        if is_sandboxed and judged.analysis and not judged.analysis.read_only:
            inside = f" {self.workspace.root}/"  # the sandbox is to hold the rest
            return [(k, detail) for k, detail in found if k != "changes" or inside in detail]
        found += [("runs", u) for u in self._unnamed_runs(trace, judged.command or "")]
        found += [("sends", send) for send in trace.sends]
        found += [("kills", kill) for kill in trace.kills]
        if not is_sandboxed and name != "deny+read-only":  # which has rules for any file
            found += [("reads", u) for u in self._unjudged_reads(trace, judged)]
        return found

    def _denied_reads(self, trace: Trace) -> list[tuple[str, str]]:
        searches = any("grep" in argv for path, argv in trace.execs if path.endswith("/git"))
        reads = [*trace.reads, *(trace.silent_reads if searches else ())]
        denied = [path for path in reads if path in self.workspace.denied]
        found = [("reads a denied file", path) for path in denied]
        shown = [item for item in trace.written if CANARY in item]
        found += [("shows a denied file", item) for item in shown[:1]]
        return found

    def _denied_runs(self, trace: Trace) -> list[tuple[str, str]]:
        return [
            ("runs what is denied", " ".join(argv))
            for path, argv in trace.execs
            if os.path.basename(path) == "rm"
            or (os.path.basename(path) == "git" and "push" in argv[1:2])
        ]

    def _changes(self, trace: Trace, edit: AnalyzedCall | None) -> list[tuple[str, str]]:
        scratch, home = str(self._tracer.scratch), f"{self.workspace.home}/.config"
        told = [] if edit is None else [e for e in edit.paths if e.access == "write"]
        edited = [path for touched in told for path in touched.both]
        return [
            ("changes", f"{call} {path}")
            for call, path in trace.changes
            if not path.startswith((scratch, home))  # `top` looks for its settings
            and not _HARMLESS_TARGETS.fullmatch(path)
            and not path.endswith("/.git/index.lock")
            and not any(_is_part_of(path, item) for item in edited)
        ]

    def _unnamed_runs(self, trace: Trace, text: str) -> list[str]:
        commands = parse_commands(text).commands
        named = {os.path.basename(command.name) for command in commands}
        named |= {os.path.basename(w.split()[0]) for c in commands for w in c.wrappers}
        named |= {helper for name in named for helper in _HELPERS.get(name, "").split()}
        inside = str(self.workspace.root)
        return [
            path
            for path, _ in trace.execs[1:]
            if os.path.basename(path) not in named or path.startswith(inside)
        ]

    def _unjudged_reads(self, trace: Trace, judged: AnalyzedCall) -> list[str]:
        if judged.analysis is None or judged.analysis.opaque:
            return []
        told = [item for touched in judged.paths for item in touched.both]
        return [path for path in trace.reads if not self._is_told(path, told)]

    def _is_told(self, path: str, told: list[str]) -> bool:
        """The machine's own files are everybody's, and so are a user's settings."""
        private = path == f"{self.workspace.home}/private.txt"
        ours = (self.workspace.root, self.workspace.outside)
        if not private and not any(path.startswith(f"{our}/") for our in ours):
            return True
        if path.endswith(("/.git/info/exclude", "ignore")):
            return True  # searches ask them what to leave out
        return any(path == item or path.startswith(f"{item.rstrip('/')}/") for item in told)

    def minimized(self, violation: Violation) -> str:
        """A shorter text that does the same."""
        text, runs = violation.text, 0
        shrunk = True
        while shrunk and runs < _MAX_RUNS:
            shrunk = False
            pieces = re.split(r"( +)", text)
            for at in range(0, len(pieces), 2):
                shorter = "".join(pieces[:at] + pieces[at + 2 :]).strip()
                runs += 1
                if shorter != text and self._does(shorter, violation):
                    text, shrunk = shorter, True
                    break
        return text

    def _does(self, text: str, violation: Violation) -> bool:
        before = violation.before
        for name, is_sandboxed in self.allowing(text, before):
            if _label(name, is_sandboxed=is_sandboxed) == violation.rules:
                trace, judged = self.run(text, before), self.judged(text, before)
                found = self.found(name, trace, judged, is_sandboxed=is_sandboxed)
                return any(kind == violation.kind for kind, _ in found)
        return False
