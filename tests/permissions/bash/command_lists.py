"""Hostile and everyday command lines of programs that the public lists do not name.

`python -m tests.permissions.bash.command_lists [PATH]` runs every hostile line under a trace and
writes down what was seen: `traced` where the trace shows what the kind says; `not installed`; or
`needs more`, by hand: a privilege, a daemon, a peer or a terminal that a trace does not have. A
line that is none of these proves nothing, and is told.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from tests.permissions.bash.differential import Differential
from tests.permissions.bash.trace import Trace

FOLDER = Path(__file__).parents[2] / "fixtures/commands"
_HOSTILE = FOLDER / "hostile.jsonl"
Seen: TypeAlias = Literal["traced", "not installed", "needs more", ""]


class Hostile(msgspec.Struct, frozen=True):
    kind: Literal["x", "rm", "push", "read"]
    """x: executes, writes or sends; rm, push: the same in disguise; read: reads a denied file."""
    command: str
    seen: Seen = ""


class Attack(msgspec.Struct, frozen=True):
    """A line that the fuzzing or its author found to win, or a near relative; it needs the
    workspace of traps to be one."""

    kind: Literal["x", "rm", "read", "outside", "write_outside"]
    """As of `Hostile`; outside: reads a file out of the workspace; write_outside: changes one."""
    command: str


class Everyday(msgspec.Struct, frozen=True):
    command: str


def hostile() -> list[Hostile]:
    return msgspec.json.Decoder(Hostile).decode_lines(_HOSTILE.read_bytes())


def attacks() -> list[Attack]:
    return msgspec.json.Decoder(Attack).decode_lines((FOLDER / "attacks.jsonl").read_bytes())


def everyday() -> list[Everyday]:
    lines = (FOLDER / "everyday.jsonl").read_bytes()
    return msgspec.json.Decoder(Everyday).decode_lines(lines)


def _seen(line: Hostile, differential: Differential) -> Seen:
    trace = differential.run(line.command, seconds=4)
    if _is_shown(line, trace, differential):
        return "traced"
    is_missing = b"command not found" in trace.output or (
        len(trace.execs) == 1 and b"No such file" in trace.output
    )
    if is_missing:
        return "not installed"
    return "needs more" if line.seen == "needs more" else ""


def _is_shown(line: Hostile, trace: Trace, differential: Differential) -> bool:
    by_name = [(os.path.basename(path), argv) for path, argv in trace.execs[1:]]
    match line.kind:
        case "x":
            found = differential.found("none", trace, differential.judged("true"))
            shown = [sort for sort, _ in found if sort in ("changes", "sends", "kills")]
            return bool(shown) or any(name in ("touch", "evil.sh") for name, _ in by_name)
        case "rm":
            removed = any(call in ("unlink", "unlinkat") for call, _ in trace.changes)
            return removed or any(name == "rm" for name, _ in by_name)
        case "push":
            return any("push" in " ".join(argv) for name, argv in by_name if "git" in name)
        case "read":
            found = differential.found("deny+Bash", trace, differential.judged("true"))
            return any("denied file" in sort for sort, _ in found)


def verify(path: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        differential = Differential(Path(folder), f"/usr/local/bin:/usr/bin:/bin:/usr/sbin:{path}")
        lines = [msgspec.structs.replace(h, seen=_seen(h, differential)) for h in hostile()]
    _HOSTILE.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    for line in lines:
        if not line.seen:
            sys.stdout.write(f"not shown: {line.kind}: {line.command}\n")


if __name__ == "__main__":
    verify(":".join(sys.argv[1:]))
