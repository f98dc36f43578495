"""Analysis of a shell text: reads, edits, destructive effects, network use, and programs that
its text does not name.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from mainspring.harness.permissions.bash.command import Command, Redirect, UnclearCommands, word_set
from mainspring.harness.permissions.bash.command_parser import parse_commands
from mainspring.harness.permissions.bash.critical import may_remove_critical, removes_critical
from mainspring.harness.permissions.bash.effects import (
    Effects,
    basename,
    edited_files,
    is_destructive,
    record_effects,
    uses_network,
)
from mainspring.harness.permissions.bash.file_reads import system_program
from mainspring.harness.permissions.bash.git_commands import git_command, git_may_run_programs
from mainspring.harness.permissions.bash.hazards import has_harmless_assignments
from mainspring.harness.permissions.bash.program_tables import PLAIN
from mainspring.harness.permissions.bash.read_only_commands import (
    ReadOnlyScope,
    is_read_only_command,
    loads_modules,
    read_only_scope,
)
from mainspring.harness.permissions.bash.risky_options import risky_words
from mainspring.harness.permissions.bash.wrappers import SHELLS, unwrap

_KNOWN_WRAPPERS = word_set(
    "builtin command env eval exec find nice nohup stdbuf time timeout trap xargs"
)
"""What they run is listed beside them."""


def unknown_program_reason(command: Command) -> str:
    """Why a command that does more than look may, or an empty text."""
    if not command.words or edited_files(command) is not None:
        return ""
    name = system_program(command)
    if name == "git":
        runs = git_may_run_programs(command.words[1:]) or any(True for _ in risky_words(command))
    elif name in PLAIN:
        runs = any(True for _ in risky_words(command))
    elif name in SHELLS:
        wrapped = unwrap(command)
        runs = not wrapped.texts or bool(wrapped.unclear)
    else:
        runs = name not in _KNOWN_WRAPPERS
    return f"`{basename(command)}` may run programs that the command does not name" if runs else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandAnalysis:
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


def analyze_command(
    text: str,
    *,
    roots: Collection[str] = (),
    is_own_repository: Callable[[str], bool] | None = None,
) -> CommandAnalysis:
    """Judge all commands of `text` together. `roots` are the names of the workspace, never to
    be removed.
    `is_own_repository` tells of a folder, seen from where the shell stands, whether git finds the
    trusted repository there; without it, only where the shell stands and in the workspace.

    Never raises. What cannot be split is neither read-only nor edits, and is destructive.
    """
    found = parse_commands(text)
    commands = found.commands
    effects = Effects()
    where: list[ReadOnlyScope] = [read_only_scope(item) for item in commands]
    for command, one in zip(commands, where, strict=True):
        record_effects(command, effects, one)
    is_foreign = _is_foreign(commands, effects, is_own_repository or {"", *roots}.__contains__)
    more = [each for each, one in zip(commands, where, strict=True) if one == "nowhere"]
    is_unclear = isinstance(found, UnclearCommands)
    reason = (
        found.reason if isinstance(found, UnclearCommands) else _reason(commands, more, is_foreign)
    )
    is_anywhere = "in a sandbox" not in where
    return CommandAnalysis(
        read_only=is_anywhere and not reason,
        read_only_in_sandbox=not reason,
        destructive=is_unclear or any(map(is_destructive, more)),
        critical=removes_critical(commands, roots)
        or (is_unclear and may_remove_critical(text, roots)),
        edits=bool(reason)
        and is_anywhere
        and not (is_unclear or effects.opaque or is_foreign)
        and _only_edit(commands, more),
        paths=tuple(dict.fromkeys([*effects.reads, *effects.writes])),
        writes=tuple(dict.fromkeys(effects.writes)) if reason else (),
        opaque=is_unclear or effects.opaque,
        network=any(map(uses_network, commands)),
        reason=reason or ("" if is_anywhere else "files in the workspace influence what runs"),
        trees=tuple(effects.trees),
        guesses=tuple(effects.guesses),
        hides_reads=is_unclear or effects.hides_reads or _makes_links(commands),
        reads_anything=effects.reads_anything,
        shows_history=effects.shows_history,
        unclear=is_unclear,
        runs=reason if is_unclear else _first(unknown_program_reason(item) for item in more),
        loads_modules=any(map(loads_modules, commands)),
        foreign_git=is_foreign,
    )


def _reason(commands: Sequence[Command], more: Sequence[Command], is_foreign: bool) -> str:
    """More: those that do not only look."""
    if more:
        return f"`{basename(more[0]) or more[0].text}` may do more than read"
    if any(_writes_or_connects(redirect) for command in commands for redirect in command.redirects):
        return "redirects output to a file or a network connection"
    if is_foreign:
        return "runs git where another repository may be, whose settings can run programs"
    return ""


def _only_edit(commands: Sequence[Command], more: Sequence[Command]) -> bool:
    return all(
        (not command.words or has_harmless_assignments(command))
        and edited_files(command) is not None
        for command in more
    ) and not any(
        opens_connection(redirect) for command in commands for redirect in command.redirects
    )


def _first(texts: Iterable[str]) -> str:
    return next((text for text in texts if text), "")


def _makes_links(commands: Sequence[Command]) -> bool:
    """Then names lead elsewhere for the commands that follow."""
    return len(commands) > 1 and any(basename(command) == "ln" for command in commands)


def is_read_only(command: Command) -> bool:
    """Read-only, redirections included."""
    return is_read_only_command(command) and not any(map(_writes_or_connects, command.redirects))


def _writes_or_connects(redirect: Redirect) -> bool:
    return redirect.access == "write" or opens_connection(redirect)


def opens_connection(redirect: Redirect) -> bool:
    """Bash makes connections of some names; what is not known may be one."""
    if redirect.operator in {"<<", "<<-", "<<<"} or redirect.target.is_process:
        return False
    return (redirect.target.value or "/dev/tcp").startswith(("/dev/tcp", "/dev/udp"))


def runs_git_elsewhere(commands: tuple[Command, ...]) -> bool:
    """Whether git is run in another folder than the one where the shell stands."""
    folders = [_git_folder(command) for command in commands if basename(command) == "git"]
    return any(folders) or (
        bool(folders) and any(basename(command) == "cd" for command in commands)
    )


def _git_folder(command: Command) -> str:
    git = git_command(command.words[1:])
    return git.folder.value or "" if git and git.folder else ""


def _is_foreign(
    commands: tuple[Command, ...], effects: Effects, is_own: Callable[[str], bool]
) -> bool:
    folders = [_git_folder(command) for command in commands if basename(command) == "git"]
    places = [
        posixpath.join(went, folder).rstrip("/") for went in effects.folders for folder in folders
    ]
    return bool(folders) and (effects.is_lost or not all(map(is_own, dict.fromkeys(places))))
