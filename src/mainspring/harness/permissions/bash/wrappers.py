"""Commands that run other commands: what they wrap, as far as it can be told."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from mainspring.harness.permissions.bash.command import Assignment, Command, Word
from mainspring.harness.permissions.bash.names import names
from mainspring.harness.permissions.bash.options import literal, understood
from mainspring.harness.permissions.bash.programs import XARGS


@dataclass(frozen=True, slots=True)
class Wrapped:
    """What is inside of a wrapper."""

    commands: tuple[Command, ...] = ()
    texts: tuple[str, ...] = ()
    """Texts that a shell would read."""
    transparent: bool = False
    """Rules are held against what is inside only."""
    guesses: tuple[str, ...] = ()
    """Texts that a shell might read: to deny by, if they can be read at all."""
    unclear: str = ""
    """Why it cannot be told."""


NOTHING = Wrapped()
Opener: TypeAlias = "Callable[[Command], Wrapped]"

# Added by another program, from what it reads.
FED = Word(source="", value=None, pathlike="", optionlike=True, many=True)
# Words that bash and other shells read differently.
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
SHELLS = names("bash sh dash zsh ksh mksh ash fish rbash csh tcsh")
# They run what follows them, after options of their own, or a text for a shell.
_VAGUE = names(
    """
    sudo doas su runuser pkexec setsid watch ssh parallel chroot unshare nsenter flock
    ionice taskset chrt strace ltrace script busybox toybox systemd-run firejail proxychains
    torsocks unbuffer rlwrap valgrind perf hyperfine entr tmux screen at batch caffeinate
    setarch linux32 linux64 prlimit fakeroot dbus-run-session xvfb-run faketime cgexec gosu
    su-exec tini dumb-init setpriv capsh numactl expect winpty start wsl cmd powershell pwsh
    """
)
_FIND_EXEC = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_MAX_GUESSES = 16


def opened(command: Command) -> Wrapped:
    """What `command` wraps; `NOTHING` if it is no wrapper."""
    folder, _, name = command.name.rpartition("/")
    if name in _TRANSPARENT:
        wrapped = _transparent(command, name)
    elif name in SHELLS:
        wrapped = _shell(command)
    elif name in _VAGUE:
        wrapped = _vague(command)
    else:
        opener = _OPENERS.get(name)
        wrapped = opener(command) if opener else NOTHING
    if wrapped.transparent and folder not in {"", "/bin", "/usr/bin"}:
        return replace(wrapped, transparent=False)  # `./timeout` may be anything
    return wrapped


def _transparent(command: Command, name: str) -> Wrapped:
    if name == "command" and [each.value for each in command.words[1:2]] in (["-v"], ["-V"]):
        return NOTHING
    line = understood(command.words[1:], _TRANSPARENT[name])
    if line is None:
        return Wrapped(unclear=f"`{name}` with unusual options")
    skipped = 1 if name == "timeout" else 0
    if skipped and line.operands and line.operands[0].many:
        return Wrapped(unclear="`timeout` of an unknown time")
    if name == "time":  # a keyword: what follows may begin with assignments of its own
        wrapped = _assigning(command, line.operands)
        return replace(wrapped, transparent=bool(wrapped.commands))
    return _inner(command, line.operands[skipped:], transparent=True)


def _assigning(command: Command, operands: Sequence[Word]) -> Wrapped:
    """What `command` wraps, with the assignments that stand before it."""
    assignments: list[Assignment] = []
    while operands and (assigned := _assignment(operands[0])):
        assignments.append(assigned)
        operands = operands[1:]
    wrapped = _inner(command, operands)
    if not wrapped.commands:
        bare = Command((), tuple(assignments))
        return Wrapped(commands=(bare,)) if assignments else NOTHING
    inner = wrapped.commands[0]
    return Wrapped(commands=(replace(inner, assignments=(*inner.assignments, *assignments)),))


def _inner(command: Command, words: Sequence[Word], *, transparent: bool = False) -> Wrapped:
    """`words` are the end of `command`'s own."""
    if not words:
        return NOTHING
    prefix = command.words[: len(command.words) - len(words)]
    taken = " ".join(word.text for word in prefix)
    inner = replace(command, words=tuple(words), wrappers=(*command.wrappers, taken))
    return Wrapped(commands=(inner,), transparent=transparent)


def _xargs(command: Command) -> Wrapped:
    line = understood(command.words[1:], XARGS)
    if line is None:
        return Wrapped(unclear="`xargs` with unusual options")
    if not line.operands:
        return NOTHING  # it runs echo
    wrapped = _inner(command, line.operands, transparent=not line.options)
    tokens = [each.value or "" for each in line.values("-I")]
    fed = [_fed(word, tokens) for word in line.operands] + ([] if tokens else [FED])
    inner = replace(wrapped.commands[0], words=tuple(fed))
    return replace(wrapped, commands=(inner,))


def _fed(word: Word, tokens: Sequence[str]) -> Word:
    if word.value is None or not any(token in word.value for token in tokens if token):
        return word
    leads = any(word.value.startswith(token) for token in tokens)
    return replace(word, value=None, optionlike=word.optionlike or leads)


def _env(command: Command) -> Wrapped:
    line = understood(command.words[1:], _ENV)
    if line is None:
        return Wrapped(unclear="`env` with unusual options")
    count = next(
        (at for at, word in enumerate(line.operands) if not _assignment(word)), len(line.operands)
    )
    if any(word.many for word in line.operands[: count + 1]):
        return Wrapped(unclear="what `env` runs is only known once it runs")
    return _assigning(command, line.operands)


def _assignment(word: Word) -> Assignment | None:
    """To env, every word with `=` in it is one, whatever the name."""
    name, equals, value = word.pathlike.partition("=")
    if not equals:
        return None
    known = literal(value)
    return Assignment(name, known if word.value is not None else replace(known, value=None))


def _exec(command: Command) -> Wrapped:
    line = understood(command.words[1:], "+ -cl -a=")
    if line is None:
        return Wrapped(unclear="`exec` with unusual options")
    return _inner(command, line.operands)


def _eval(command: Command) -> Wrapped:
    values = [each.value for each in command.words[1:]]
    if None in values:
        return Wrapped(unclear="what `eval` runs is only known once it runs")
    return Wrapped(texts=(" ".join(value or "" for value in values),))


def _trap(command: Command) -> Wrapped:
    operands = [each for each in command.words[1:] if each.value != "--"]
    if not operands or operands[0].value in {"-", "-l", "-p", ""}:
        return NOTHING
    action = operands[0].value
    return Wrapped(unclear="an unknown trap") if action is None else Wrapped(texts=(action,))


def _find(command: Command) -> Wrapped:
    """Every `-exec ... ;`. Inside, `{}` is whatever is found."""
    inner: list[Command] = []
    words = list(command.words)
    for at, word in enumerate(words):
        if word.value in _FIND_EXEC:
            end = next(
                (n for n in range(at, len(words)) if words[n].value in {";", "+"}), len(words)
            )
            run = tuple(_fed(each, ["{}"]) for each in words[at + 1 : end])
            if run:
                wrapper = (*command.wrappers, f"find {word.value}")
                inner.append(Command(run, wrappers=wrapper))
    moves = any(word.value in {"-execdir", "-okdir"} for word in words)
    return Wrapped(commands=tuple(inner), unclear="`find` in folders of its own" if moves else "")


def _shell(command: Command) -> Wrapped:
    arguments = command.words[1:]
    for at, word in enumerate(arguments):
        value = word.value
        if value is None or (value.startswith("--") and value not in _SHELL_FLAGS):
            return Wrapped(unclear="a shell whose script is only known once it runs")
        if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", value):
            rest = [each for each in arguments[at + 1 :] if each.value != "--"]
            return _inline(command.name.rsplit("/", 1)[-1], rest)
        if not value.startswith(("-", "+")):
            return NOTHING  # a script file
        if not re.fullmatch(r"[-+][eluxv]+|--[a-z]+", value):
            return Wrapped(unclear="a shell with unusual options")
    informs = any(each.value in {"--version", "--help"} for each in arguments)
    return NOTHING if informs else Wrapped(unclear="a shell that reads commands from its input")


_SHELL_FLAGS = frozenset({"--version", "--help", "--norc", "--noprofile", "--posix", "--login"})


def _inline(shell: str, rest: Sequence[Word]) -> Wrapped:
    text = rest[0].value if rest else None
    if text is None or text.startswith(("-", "+")):
        return Wrapped(unclear="a shell whose script is only known once it runs")
    if shell == "bash" or (shell in _POSIX and not _BASHISMS.search(text)):
        return Wrapped(texts=(text,))
    return Wrapped(guesses=(text,), unclear=f"{shell} may read this in another way than bash")


def _vague(command: Command) -> Wrapped:
    """Where its own options end is not known to us: any word may be the first of a command."""
    arguments = command.words[1:]
    starts = [at for at, word in enumerate(arguments) if not (word.value or "-").startswith("-")]
    quoted = [" ".join(w.source for w in arguments[at:]) for at in starts[:_MAX_GUESSES]]
    plain = [" ".join(w.pathlike for w in arguments[at:]) for at in starts[:_MAX_GUESSES]]
    return Wrapped(guesses=tuple(dict.fromkeys([*quoted, *plain])))


def is_vague(command: Command) -> bool:
    return command.name.rsplit("/", 1)[-1] in _VAGUE


_OPENERS: dict[str, Opener] = {
    "xargs": _xargs,
    "env": _env,
    "exec": _exec,
    "eval": _eval,
    "trap": _trap,
    "find": _find,
}
