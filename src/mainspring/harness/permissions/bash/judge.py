"""What a shell text does: reads, edits, destroys, reaches out."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Iterable, Sequence
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
from mainspring.harness.permissions.bash.git import git_command
from mainspring.harness.permissions.bash.hazards import sets_little
from mainspring.harness.permissions.bash.lookers import Where, loads_modules, looking, only_looks
from mainspring.harness.permissions.bash.runs import runs_unknown
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
    trees: tuple[str, ...] = ()
    """Folders that are read with all that is in them."""
    guesses: tuple[str, ...] = ()
    """Words that may be files, of programs and options that are not known."""
    hides_reads: bool = False
    """A command that is known to read takes a file, or an option, that only bash can tell."""
    reads_anything: bool = False
    """There is a program of which it is not known what it reads."""
    shows_history: bool = False
    """git shows files as they were, and which cannot be told."""
    unclear: bool = False
    """It cannot be told from the text what is run."""
    runs: str = ""
    """Why it may run programs that it does not name."""
    read_only_in_sandbox: bool = False
    """Read-only as far as it goes, but files of the workspace have a say in what runs."""
    loads_modules: bool = False
    """It is not if the folder it is run in has modules by the names of Python's own."""
    foreign_git: bool = False
    """git is run where another repository than the trusted one may be, whose settings name programs
    that git runs."""


def judge(
    text: str,
    *,
    roots: Collection[str] = (),
    is_own_repository: Callable[[str], bool] | None = None,
) -> Verdict:
    """Judge all commands of `text` together. `roots` are the names of the workspace, never to
    be removed.
    `is_own_repository` tells of a folder, seen from where the shell stands, whether git finds the
    trusted repository there; without it, only where the shell stands and in the workspace.

    Never raises. What cannot be split is neither read-only nor edits, and is destructive.
    """
    found = split(text)
    commands = found.commands
    effects = Effects()
    where: list[Where] = [looking(each) for each in commands]
    for command, one in zip(commands, where, strict=True):
        note(command, effects, one)
    is_foreign = _is_foreign(commands, effects, is_own_repository or {"", *roots}.__contains__)
    more = [each for each, one in zip(commands, where, strict=True) if one == "nowhere"]
    is_unclear = isinstance(found, Unclear)
    reason = found.reason if isinstance(found, Unclear) else _reason(commands, more, is_foreign)
    is_anywhere = "in a sandbox" not in where
    return Verdict(
        read_only=is_anywhere and not reason,
        read_only_in_sandbox=not reason,
        destructive=is_unclear or any(map(destroys, more)),
        critical=removes_critical(commands, roots)
        or (is_unclear and may_remove_critical(text, roots)),
        edits=bool(reason)
        and is_anywhere
        and not (is_unclear or effects.opaque or is_foreign)
        and _only_edit(commands, more),
        paths=tuple(dict.fromkeys([*effects.reads, *effects.writes])),
        writes=tuple(dict.fromkeys(effects.writes)) if reason else (),
        opaque=is_unclear or effects.opaque,
        network=any(map(reaches_out, commands)),
        reason=reason or ("" if is_anywhere else "files of the workspace have a say in what runs"),
        trees=tuple(effects.trees),
        guesses=tuple(effects.guesses),
        hides_reads=is_unclear or effects.hides_reads or _makes_links(commands),
        reads_anything=effects.reads_anything,
        shows_history=effects.shows_history,
        unclear=is_unclear,
        runs=reason if is_unclear else _first(runs_unknown(each) for each in more),
        loads_modules=any(map(loads_modules, commands)),
        foreign_git=is_foreign,
    )


def _reason(commands: Sequence[Command], more: Sequence[Command], is_foreign: bool) -> str:
    """More: those that do not only look."""
    if more:
        return f"`{basename(more[0]) or more[0].text}` may do more than look"
    if any(_goes_out(each) for command in commands for each in command.redirects):
        return "writes to a file or connects by a redirection"
    if is_foreign:
        return "runs git where another repository may be, whose settings name programs"
    return ""


def _only_edit(commands: Sequence[Command], more: Sequence[Command]) -> bool:
    return all(
        (not command.words or sets_little(command)) and edited_files(command) is not None
        for command in more
    ) and not any(connects(each) for command in commands for each in command.redirects)


def _first(texts: Iterable[str]) -> str:
    return next((text for text in texts if text), "")


def _makes_links(commands: Sequence[Command]) -> bool:
    """Then names lead elsewhere for the commands that follow."""
    return len(commands) > 1 and any(basename(each) == "ln" for each in commands)


def looks(command: Command) -> bool:
    """Read-only, redirections included."""
    return only_looks(command) and not any(map(_goes_out, command.redirects))


def _goes_out(redirect: Redirect) -> bool:
    return redirect.access == "write" or connects(redirect)


def connects(redirect: Redirect) -> bool:
    """Bash makes connections of some names; what is not known may be one."""
    if redirect.operator in {"<<", "<<-", "<<<"} or redirect.target.is_process:
        return False
    return (redirect.target.value or "/dev/tcp").startswith(("/dev/tcp", "/dev/udp"))


def moves_git(commands: tuple[Command, ...]) -> bool:
    """Whether git is run in another folder than the one where the shell stands."""
    folders = [_git_folder(each) for each in commands if basename(each) == "git"]
    return any(folders) or (bool(folders) and any(basename(each) == "cd" for each in commands))


def _git_folder(command: Command) -> str:
    git = git_command(command.words[1:])
    return git.folder.value or "" if git and git.folder else ""


def _is_foreign(
    commands: tuple[Command, ...], effects: Effects, is_own: Callable[[str], bool]
) -> bool:
    folders = [_git_folder(each) for each in commands if basename(each) == "git"]
    places = [
        posixpath.join(went, folder).rstrip("/") for went in effects.folders for folder in folders
    ]
    return bool(folders) and (effects.is_lost or not all(map(is_own, dict.fromkeys(places))))
