"""Analysis of a shell text: reads, edits, destructive effects, network use, and programs that
its text does not name.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

from mainspring.harness.permissions.bash.command import (
    Command,
    Commands,
    Redirect,
    UnclearCommands,
    word_set,
)
from mainspring.harness.permissions.bash.command_parser import parse_commands
from mainspring.harness.permissions.bash.effects import (
    Effects,
    basename,
    edited_files,
    is_destructive,
    may_remove_critical,
    record_effects,
    removes_critical,
    uses_network,
)
from mainspring.harness.permissions.bash.file_reads import system_program
from mainspring.harness.permissions.bash.git_commands import git_command, git_may_run_programs
from mainspring.harness.permissions.bash.hazards import has_harmless_assignments
from mainspring.harness.permissions.bash.program_tables import PLAIN
from mainspring.harness.permissions.bash.read_only_commands import (
    ReadOnlyScope,
    loads_modules,
    read_only_scope,
)
from mainspring.harness.permissions.bash.risky_options import risky_words
from mainspring.harness.permissions.bash.wrappers import SHELLS, unwrap

_WRAPPERS = word_set("builtin command env eval exec find nice nohup stdbuf time timeout trap xargs")
"""Wrappers whose inner commands are listed separately."""


def unknown_program_reason(command: Command) -> str:
    """Why a command may run programs that it does not name; empty if it does not."""
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
        runs = name not in _WRAPPERS
    return f"`{basename(command)}` may run programs that the command does not name" if runs else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandAnalysis:
    read_only: bool = False
    """Every command only reads, with the options that it has."""
    destructive: bool = False
    """It may destroy something that cannot be restored; also true if that is unclear."""
    critical: bool = False
    """It removes `/`, a home, the workspace or a system folder: a person must always approve it."""
    edits: bool = False
    """It only reads and runs plain file commands (`mkdir`, `cp`, `rm`, ...) on `paths`. The mode
    acceptEdits may allow it if all `paths` are in the workspace."""
    paths: tuple[str, ...] = ()
    """Files named by arguments and redirections, as far as they are literal; `~` not expanded."""
    writes: tuple[str, ...] = ()
    """The members of `paths` that it changes."""
    opaque: bool = False
    """Only bash knows some of its paths: `paths` is incomplete."""
    network: bool = False
    reason: str = ""
    """Why it is not read-only, for people."""
    trees: tuple[str, ...] = ()
    """Folders that are read recursively."""
    guesses: tuple[str, ...] = ()
    """Words of unknown programs and options that may be files."""
    hides_reads: bool = False
    """A command that reads has a file or an option that only bash knows."""
    reads_anything: bool = False
    """It is unknown which files one of its programs reads."""
    shows_history: bool = False
    """git shows old versions of files, and it is unknown of which."""
    unclear: bool = False
    """The text does not show what runs."""
    runs: str = ""
    """Why it may run programs that it does not name."""
    read_only_in_sandbox: bool = False
    """Read-only, but files in the workspace influence what runs."""
    loads_modules: bool = False
    """Python loads modules: not read-only if the current folder has some with standard names."""
    foreign_git: bool = False
    """git may run in another repository than the trusted one, whose settings may name programs that
    git runs."""


def analyze_command(
    text: str,
    *,
    roots: Collection[str] = (),
    is_own_repository: Callable[[str], bool] | None = None,
) -> CommandAnalysis:
    """Analyze all commands of `text` together. `roots` are the names of the workspace, which must
    never be removed. `is_own_repository` says whether git finds the trusted repository in a folder,
    relative to the current one; by default only in the current folder and in `roots`.

    Never raises. A text that cannot be parsed is destructive, and neither read-only nor an edit.
    """
    parsed, scopes, effects = _judge(text)
    commands = parsed.commands
    is_foreign = _is_foreign(commands, effects, is_own_repository or {"", *roots}.__contains__)
    changing = [
        command for command, scope in zip(commands, scopes, strict=True) if scope == "nowhere"
    ]
    is_unclear = isinstance(parsed, UnclearCommands)
    reason = parsed.reason if is_unclear else _reason(commands, changing, is_foreign)
    is_anywhere = "in a sandbox" not in scopes
    return CommandAnalysis(
        read_only=is_anywhere and not reason,
        read_only_in_sandbox=not reason,
        destructive=is_unclear or any(map(is_destructive, changing)),
        critical=removes_critical(commands, roots)
        or (is_unclear and may_remove_critical(text, roots)),
        edits=bool(reason)
        and is_anywhere
        and not (is_unclear or effects.opaque or is_foreign)
        and _only_edit(commands, changing),
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
        runs=reason
        if is_unclear
        else next((why for item in changing if (why := unknown_program_reason(item))), ""),
        loads_modules=any(map(loads_modules, commands)),
        foreign_git=is_foreign,
    )


@lru_cache(maxsize=64)
def _judge(text: str) -> tuple[Commands | UnclearCommands, tuple[ReadOnlyScope, ...], Effects]:
    """The part that depends only on the text; cached, since the tool and the rules need it."""
    parsed, effects = parse_commands(text), Effects()
    scopes: tuple[ReadOnlyScope, ...] = tuple(read_only_scope(item) for item in parsed.commands)
    for command, scope in zip(parsed.commands, scopes, strict=True):
        record_effects(command, effects, scope)
    return parsed, scopes, effects


def _reason(commands: Sequence[Command], changing: Sequence[Command], is_foreign: bool) -> str:
    """Why it is not read-only; empty if it is. `changing`: commands that do more than read."""
    if changing:
        return f"`{basename(changing[0]) or changing[0].text}` may do more than read"
    if any(_writes_or_connects(redirect) for command in commands for redirect in command.redirects):
        return "redirects output to a file or a network connection"
    if is_foreign:
        return "runs git where another repository may be, whose settings can run programs"
    return ""


def _only_edit(commands: Sequence[Command], changing: Sequence[Command]) -> bool:
    return all(
        (not command.words or has_harmless_assignments(command))
        and edited_files(command) is not None
        for command in changing
    ) and not any(
        opens_connection(redirect) for command in commands for redirect in command.redirects
    )


def _makes_links(commands: Sequence[Command]) -> bool:
    """Whether a command creates links that later commands may follow."""
    return len(commands) > 1 and any(basename(command) == "ln" for command in commands)


def is_read_only(command: Command) -> bool:
    """Whether a command is read-only, including its redirections."""
    is_read_only = read_only_scope(command) == "anywhere"
    return is_read_only and not any(map(_writes_or_connects, command.redirects))


def _writes_or_connects(redirect: Redirect) -> bool:
    return redirect.access == "write" or opens_connection(redirect)


def opens_connection(redirect: Redirect) -> bool:
    """Whether bash would open a network connection; an unknown file name may be one."""
    if redirect.operator in {"<<", "<<-", "<<<"} or redirect.target.is_process:
        return False
    return (redirect.target.value or "/dev/tcp").startswith(("/dev/tcp", "/dev/udp"))


def runs_git_elsewhere(commands: tuple[Command, ...]) -> bool:
    """Whether git runs in another folder than the shell's."""
    folders = [_git_folder(command) for command in commands if basename(command) == "git"]
    return any(folders) or (bool(folders) and any(command.cd_target for command in commands))


def _git_folder(command: Command) -> str:
    git = git_command(command.words[1:])
    return git.folder.value or "" if git and git.folder else ""


def _is_foreign(
    commands: tuple[Command, ...], effects: Effects, is_own: Callable[[str], bool]
) -> bool:
    folders = [_git_folder(command) for command in commands if basename(command) == "git"]
    places = [posixpath.join(cwd, item).rstrip("/") for cwd in effects.folders for item in folders]
    return bool(folders) and (effects.is_lost or not all(map(is_own, dict.fromkeys(places))))
