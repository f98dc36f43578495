"""What a shell text does: reads, edits, destroys, reaches out."""

from __future__ import annotations

from dataclasses import dataclass

from mainspring.harness.permissions.bash.command import Command, Redirect, Unclear
from mainspring.harness.permissions.bash.critical import may_remove_critical, removes_critical
from mainspring.harness.permissions.bash.effects import (
    Effects,
    basename,
    destroys,
    edited_files,
    note,
    reaches_out,
)
from mainspring.harness.permissions.bash.hazards import sets_little
from mainspring.harness.permissions.bash.lookers import only_looks
from mainspring.harness.permissions.bash.split import split


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    read_only: bool = False
    """Every command is on the list of those that only look, with options that only look."""
    destructive: bool = False
    """Something in it may destroy what cannot be brought back; also true if that is unclear."""
    critical: bool = False
    """Removes `/`, a home, the workspace or a system folder: never approved without a person."""
    edits: bool = False
    """Nothing but reads and plain file commands (`mkdir`, `cp`, `rm`, ...) on `paths`: what the
    mode acceptEdits may pass, once each of `paths` is found to be in the workspace."""
    paths: tuple[str, ...] = ()
    """Files named by arguments and redirections, as far as they are literal; `~` not expanded."""
    writes: tuple[str, ...] = ()
    """Those of `paths` that are changed."""
    opaque: bool = False
    """There are paths that only bash can tell: `paths` is not all."""
    network: bool = False
    reason: str = ""
    """Why it is not read-only, or what is bad about it; for people."""


def judge(text: str, *, workspace: str | None = None) -> Verdict:
    """Judge all commands of `text` together. `workspace` is its root, never to be removed.

    Never raises. What cannot be split is neither read-only nor edits, and is destructive.
    """
    found = split(text)
    effects = Effects()
    for command in found.commands:
        note(command, effects)
    critical = removes_critical(found.commands, workspace)
    paths = tuple(dict.fromkeys([*effects.reads, *effects.writes]))
    writes = tuple(dict.fromkeys(effects.writes))
    network = any(map(reaches_out, found.commands))
    if isinstance(found, Unclear):
        return Verdict(
            destructive=True,
            critical=critical or may_remove_critical(text, workspace),
            paths=paths,
            writes=writes,
            opaque=True,
            network=network,
            reason=found.reason,
        )
    reason = _reason(found.commands, workspace)
    return Verdict(
        read_only=not reason,
        destructive=any(map(destroys, found.commands)),
        critical=critical,
        edits=not effects.opaque and bool(reason) and all(map(_only_edits, found.commands)),
        paths=paths,
        writes=writes if reason else (),
        opaque=effects.opaque,
        network=network,
        reason=reason,
    )


def looks(command: Command) -> bool:
    """Read-only, redirections included."""
    return only_looks(command) and not any(
        redirect.access == "write" or connects(redirect) for redirect in command.redirects
    )


def connects(redirect: Redirect) -> bool:
    """Bash makes connections of some names; what is not known may be one."""
    if redirect.operator in {"<<", "<<-", "<<<"} or redirect.target.is_process:
        return False
    return (redirect.target.value or "/dev/tcp").startswith(("/dev/tcp", "/dev/udp"))


def _reason(commands: tuple[Command, ...], workspace: str | None) -> str:
    for command in commands:
        if not only_looks(command):
            return f"`{basename(command) or command.text}` may do more than look"
        if not looks(command):
            return "writes to a file or connects by a redirection"
    return "runs git in another folder" if moves_git(commands, workspace) else ""


def moves_git(commands: tuple[Command, ...], workspace: str | None) -> bool:
    """A folder can look like a repository and name programs for git to run."""
    if not any(basename(command) == "git" for command in commands):
        return False
    moved = [command for command in commands if basename(command) == "cd"]
    return any([word.value for word in command.words[1:]] != [workspace] for command in moved)


def _only_edits(command: Command) -> bool:
    if command.words and not sets_little(command):
        return False
    return not any(map(connects, command.redirects)) and (
        only_looks(command) or edited_files(command) is not None
    )
