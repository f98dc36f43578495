"""Commands that run other commands: what they wrap, as far as the text shows."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from mainspring.harness.permissions.bash.command import Assignment, Command, Word, word_set
from mainspring.harness.permissions.bash.option_tables import literal_word, parse_arguments
from mainspring.harness.permissions.bash.program_tables import XARGS


@dataclass(frozen=True, slots=True)
class WrappedCommands:
    """The commands inside a wrapper."""

    commands: tuple[Command, ...] = ()
    texts: tuple[str, ...] = ()
    """Texts that a shell would run."""
    transparent: bool = False
    """Rules apply only to the commands inside."""
    guesses: tuple[str, ...] = ()
    """Texts that a shell might run; used only to deny, if they can be parsed."""
    unclear: str = ""
    """Why the text does not show what it wraps."""


NO_WRAPPED_COMMANDS = WrappedCommands()
Opener: TypeAlias = "Callable[[Command], WrappedCommands]"

# A word that another program adds from its standard input.
STDIN_WORD = Word(source="", value=None, pathlike="", optionlike=True, many=True)
# Syntax that bash and other shells parse differently.
_BASHISMS = re.compile(
    r"\$['\"\[]|[<>]\(|<<|&>|\|&|[{}\[\]!~\\]|\(\(|\bfunction\b|\btime\b|\bselect\b"
)
_POSIX = frozenset({"sh", "dash", "ash"})

_TRANSPARENT = {
    "timeout": "+ -v -k= -s= --foreground --preserve-status --verbose --kill-after= --signal=",
    "time": "+ -p",
    "nice": "+ -# -n= --adjustment=",
    "nohup": "+",
    "stdbuf": "+ -i= -o= -e= --input= --output= --error=",
    "command": "+ -p",
    "builtin": "+",
}
_ENV = "+ -i0v -u= --ignore-environment --null --unset= --debug"
SHELLS = word_set("bash sh dash zsh ksh mksh ash fish rbash csh tcsh")
# They run the words after their own options, or a text for a shell.
_OPAQUE_WRAPPERS = word_set(
    """
    sudo doas su runuser pkexec setsid watch ssh parallel chroot unshare nsenter flock
    ionice taskset chrt strace ltrace script busybox toybox systemd-run firejail proxychains
    torsocks unbuffer rlwrap valgrind perf hyperfine entr tmux screen at batch caffeinate
    setarch linux32 linux64 prlimit fakeroot dbus-run-session xvfb-run faketime cgexec gosu
    su-exec tini dumb-init setpriv capsh numactl expect winpty start wsl cmd powershell pwsh
    """
)
_FIND_EXEC = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_MAX_GUESSES = 16  # positions where the wrapped command may begin


def unwrap(command: Command) -> WrappedCommands:
    """The commands that `command` wraps; `NO_WRAPPED_COMMANDS` if it is not a wrapper."""
    folder, _, name = command.name.rpartition("/")
    if name in _TRANSPARENT:
        wrapped = _transparent(command, name)
    elif name in SHELLS:
        wrapped = _shell(command)
    elif name in _OPAQUE_WRAPPERS:
        wrapped = _unwrap_opaque(command)
    else:
        opener = _OPENERS.get(name)
        wrapped = opener(command) if opener else NO_WRAPPED_COMMANDS
    if wrapped.transparent and folder not in {"", "/bin", "/usr/bin"}:
        return replace(wrapped, transparent=False)  # `./timeout` may be anything
    return wrapped


def _transparent(command: Command, name: str) -> WrappedCommands:
    if name == "command" and [word.value for word in command.words[1:2]] in (["-v"], ["-V"]):
        return NO_WRAPPED_COMMANDS
    line = parse_arguments(command.words[1:], _TRANSPARENT[name])
    if line is None:
        return WrappedCommands(unclear=f"`{name}` with unusual options")
    skipped = 1 if name == "timeout" else 0
    if skipped and line.operands and line.operands[0].many:
        return WrappedCommands(unclear="`timeout` with an unknown duration")
    if name == "time":  # a keyword: what follows may begin with assignments of its own
        wrapped = _with_assignments(command, line.operands)
        return replace(wrapped, transparent=bool(wrapped.commands))
    return _inner(command, line.operands[skipped:], transparent=True)


def _with_assignments(command: Command, operands: Sequence[Word]) -> WrappedCommands:
    """The command that `command` wraps, with the assignments before it."""
    assignments: list[Assignment] = []
    while operands and (assigned := _assignment(operands[0])):
        assignments.append(assigned)
        operands = operands[1:]
    wrapped = _inner(command, operands)
    if not wrapped.commands:
        bare = Command((), tuple(assignments))
        return WrappedCommands(commands=(bare,)) if assignments else NO_WRAPPED_COMMANDS
    inner = wrapped.commands[0]
    assigned = replace(inner, assignments=(*inner.assignments, *assignments))
    return WrappedCommands(commands=(assigned,))


def _inner(
    command: Command, words: Sequence[Word], *, transparent: bool = False
) -> WrappedCommands:
    """The command that consists of `words`, which are the last words of `command`."""
    if not words:
        return NO_WRAPPED_COMMANDS
    prefix = command.words[: len(command.words) - len(words)]
    prefix_text = " ".join(word.text for word in prefix)
    inner = replace(command, words=tuple(words), wrappers=(*command.wrappers, prefix_text))
    return WrappedCommands(commands=(inner,), transparent=transparent)


def _xargs(command: Command) -> WrappedCommands:
    line = parse_arguments(command.words[1:], XARGS)
    if line is None:
        return WrappedCommands(unclear="`xargs` with unusual options")
    if not line.operands:
        return NO_WRAPPED_COMMANDS  # it runs echo
    wrapped = _inner(command, line.operands, transparent=not line.options)
    tokens = [item.value or "" for item in line.values("-I")]
    fed = [_stdin_word(word, tokens) for word in line.operands] + ([] if tokens else [STDIN_WORD])
    inner = replace(wrapped.commands[0], words=tuple(fed))
    return replace(wrapped, commands=(inner,))


def _stdin_word(word: Word, tokens: Sequence[str]) -> Word:
    if word.value is None or not any(token in word.value for token in tokens if token):
        return word
    leads = any(word.value.startswith(token) for token in tokens)
    return replace(word, value=None, optionlike=word.optionlike or leads)


def _env(command: Command) -> WrappedCommands:
    line = parse_arguments(command.words[1:], _ENV)
    if line is None:
        return WrappedCommands(unclear="`env` with unusual options")
    words = line.operands
    count = next((at for at, word in enumerate(words) if not _assignment(word)), len(words))
    if any(word.many for word in words[: count + 1]):
        return WrappedCommands(unclear="the program that `env` runs is unknown until it runs")
    return _with_assignments(command, line.operands)


def _assignment(word: Word) -> Assignment | None:
    """The assignment in a word; for env, every word with `=` is one, whatever its name."""
    name, equals, value = word.pathlike.partition("=")
    if not equals:
        return None
    literal = literal_word(value)
    return Assignment(name, literal if word.value is not None else replace(literal, value=None))


def _exec(command: Command) -> WrappedCommands:
    line = parse_arguments(command.words[1:], "+ -cl -a=")
    if line is None:
        return WrappedCommands(unclear="`exec` with unusual options")
    return _inner(command, line.operands)


def _eval(command: Command) -> WrappedCommands:
    values = [word.value for word in command.words[1:]]
    if None in values:
        return WrappedCommands(unclear="the commands that `eval` runs are unknown until it runs")
    return WrappedCommands(texts=(" ".join(value or "" for value in values),))


def _trap(command: Command) -> WrappedCommands:
    operands = [word for word in command.words[1:] if word.value != "--"]
    if not operands or operands[0].value in {"-", "-l", "-p", ""}:
        return NO_WRAPPED_COMMANDS
    action = operands[0].value
    if action is None:
        return WrappedCommands(unclear="an unknown trap")
    return WrappedCommands(texts=(action,))


def _find(command: Command) -> WrappedCommands:
    """Every `-exec ... ;`; in it, `{}` is an unknown path."""
    inner: list[Command] = []
    words = list(command.words)
    for at, word in enumerate(words):
        if word.value in _FIND_EXEC:
            ends = (n for n in range(at, len(words)) if words[n].value in {";", "+"})
            end = next(ends, len(words))
            run = tuple(_stdin_word(item, ["{}"]) for item in words[at + 1 : end])
            if run:
                wrapper = (*command.wrappers, f"find {word.value}")
                inner.append(Command(run, wrappers=wrapper))
    moves = any(word.value in {"-execdir", "-okdir"} for word in words)
    unclear = "`find` runs commands in other folders" if moves else ""
    return WrappedCommands(commands=tuple(inner), unclear=unclear)


def _shell(command: Command) -> WrappedCommands:
    arguments = command.words[1:]
    for at, word in enumerate(arguments):
        value = word.value
        if value is None or (value.startswith("--") and value not in _SHELL_FLAGS):
            return WrappedCommands(unclear="a shell whose script is unknown until it runs")
        if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", value):
            operands = [argument for argument in arguments[at + 1 :] if argument.value != "--"]
            return _inline(command.name.rsplit("/", 1)[-1], operands)
        if not value.startswith(("-", "+")):
            return NO_WRAPPED_COMMANDS  # a script file
        if not re.fullmatch(r"[-+][eluxv]+|--[a-z]+", value):
            return WrappedCommands(unclear="a shell with unusual options")
    is_info = any(argument.value in {"--version", "--help"} for argument in arguments)
    return (
        NO_WRAPPED_COMMANDS
        if is_info
        else WrappedCommands(unclear="a shell that reads commands from its input")
    )


_SHELL_FLAGS = frozenset({"--version", "--help", "--norc", "--noprofile", "--posix", "--login"})


def _inline(shell: str, operands: Sequence[Word]) -> WrappedCommands:
    text = operands[0].value if operands else None
    if text is None or text.startswith(("-", "+")):
        return WrappedCommands(unclear="a shell whose script is unknown until it runs")
    if shell == "bash" or (shell in _POSIX and not _BASHISMS.search(text)):
        return WrappedCommands(texts=(text,))
    return WrappedCommands(guesses=(text,), unclear=f"{shell} may parse this differently from bash")


def _unwrap_opaque(command: Command) -> WrappedCommands:
    """We do not know where its own options end, so any word may start a command."""
    arguments = command.words[1:]
    starts = [at for at, word in enumerate(arguments) if not (word.value or "-").startswith("-")]
    quoted = [" ".join(w.source for w in arguments[at:]) for at in starts[:_MAX_GUESSES]]
    plain = [" ".join(w.pathlike for w in arguments[at:]) for at in starts[:_MAX_GUESSES]]
    return WrappedCommands(guesses=tuple(dict.fromkeys([*quoted, *plain])))


def is_opaque_wrapper(command: Command) -> bool:
    return command.name.rsplit("/", 1)[-1] in _OPAQUE_WRAPPERS


_OPENERS: dict[str, Opener] = {
    "xargs": _xargs,
    "env": _env,
    "exec": _exec,
    "eval": _eval,
    "trap": _trap,
    "find": _find,
}
