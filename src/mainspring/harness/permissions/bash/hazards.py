"""Hazards that change the meaning of later commands: variables, functions, shell settings."""

from __future__ import annotations

import re
from collections.abc import Iterable

from mainspring.harness.permissions.bash.command import Assignment, Command, Word, word_set

_VARIABLES = re.compile(
    r"""PATH|CDPATH|HOME|SHELL|ENV|IFS|PS[0-4]|PROMPT_.*|SHELLOPTS|BASH.*|GLOBIGNORE|EXECIGNORE
    |FUNCNEST|FUNCNAME|POSIXLY_CORRECT|HIST.*|TMOUT|OPT(?:IND|ERR|ARG)|S?RANDOM|SECONDS|LINENO
    |EPOCH.*|DIRSTACK|GROUPS|PIPESTATUS|COMP_.*|COPROC|MAPFILE|E?UID|PPID|SHLVL|HOST(?:NAME|TYPE)
    |MACHTYPE|OSTYPE|READLINE_.*|auto_resume|histchars|FIGNORE|IGNOREEOF|MAIL.*|(?:OLD)?PWD|LD_.*|DYLD_.*|GCONV_PATH|LOCPATH|TERMINFO.*|TERMCAP
    |GLIBC_TUNABLES|MALLOC_.*|HOSTALIASES|RESOLV_.*|NLSPATH|OPENSSL_.*|SSL_.*|CURL_.*|WGETRC
    |GIT_.*|EDITOR|VISUAL|FCEDIT|.*PAGER|BROWSER|LESS.*|MAN[A-Z]*|MORE|.*_RSH|.*_ASKPASS|SUDO_.*
    |TAR_OPTIONS|GREP_.*|RIPGREP_.*|JQ_.*|FZF_.*|AWKPATH|AWKLIBPATH|XDG_.*|INPUTRC|VIMINIT|EXINIT
    |PYTHON(?!UNBUFFERED$|DONTWRITEBYTECODE$|HASHSEED$).*|PERL.*|RUBY.*|GEM_.*|BUNDLE_.*|NODE_(?!ENV$).*
    |npm_.*|NPM_.*|YARN_.*|JAVA_.*|_JAVA_.*|JDK_.*|MAVEN_.*|GRADLE_.*|LUA_.*|PHP_.*|PHPRC|TCL.*|R_.*
    |CC|CXX|CPP|LD|AR|MAKE.*|MAKEFLAGS|GNUMAKEFLAGS|CARGO.*|RUSTC.*|RUSTFLAGS|RUSTUP_.*|GO(?!OS$|ARCH$).*
    |PIP_.*|UV_.*|VIRTUAL_ENV|PYTEST_.*|DOCKER_.*|KUBECONFIG|AWS_.*|(?i:(?:https?|all|no|ftp)_proxy)
    |TMPDIR|SSH_.*|GPG_.*|GNUPGHOME|DISPLAY|DBUS_.*|QT_.*|GTK_.*|_""",
    re.VERBOSE,
)
_HARMLESS_VARIABLES = re.compile(
    r"""CI|DEBUG|NODE_ENV|RUST_LOG|RUST_BACKTRACE|LANG|LANGUAGE|LC_[A-Z]+|TZ|NO_COLOR|FORCE_COLOR
    |CLICOLOR|CLICOLOR_FORCE|COLUMNS|LINES|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE|PYTHONHASHSEED
    |GOOS|GOARCH""",
    re.VERBOSE,
)
_HARMLESS_VALUE = re.compile(r"(?![/:.])(?!.*\.\.)[\w.@:+,/=*-]*", re.ASCII)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SETTINGS = re.compile(r"[-+](?:[euxfhB]+|[euxfhB]*o)|pipefail|errexit|nounset|xtrace|noglob")
_COMPARISONS = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_REDEFINING = word_set(
    """
    alias unalias enable bind complete compgen compopt fc history shopt let caller
    """
)
_DECLARING = word_set("declare typeset local export readonly unset getopts")
_READING = word_set("read mapfile readarray")


def changes_meaning(name: str) -> bool:
    """Whether setting this variable makes programs, or bash, do other things."""
    return _VARIABLES.fullmatch(name) is not None


def is_harmless(assignment: Assignment) -> bool:
    """Whether rules may ignore `name=x` before a command. A value can name a file."""
    name, value = assignment.name, assignment.value.value
    if changes_meaning(name) or _HARMLESS_VARIABLES.fullmatch(name) is None:
        return False
    return value is not None and _HARMLESS_VALUE.fullmatch(value) is not None


def is_script_variable(name: str) -> bool:
    """Whether a text may set `name` for its own use: by its spelling, no program reads it."""
    return not changes_meaning(name) and re.fullmatch(r"[a-z][a-z0-9_]*", name) is not None


def has_harmless_assignments(command: Command) -> bool:
    """Whether no assignment before a command changes its meaning."""
    return all(is_harmless(item) or _splits_lines(item, command) for item in command.assignments)


def _splits_lines(assignment: Assignment, command: Command) -> bool:
    """Whether it is `IFS=` for a single `read`, as in `while IFS= read -r line`."""
    return assignment.name == "IFS" and command.name == "read"


def hazard(command: Command) -> str | None:
    """Why the text does not show what this command or later ones do; `None` if it does."""
    for assignment in command.assignments:
        if changes_meaning(assignment.name) and not _splits_lines(assignment, command):
            return f"sets {assignment.name}, which changes what other commands do"
    if not command.words:
        return None
    head = command.words[0]
    if head.value is None:
        return "the program is unknown until it runs"
    if not head.value.isascii() or not head.value or any(map(str.isspace, head.value)):
        return "the command's name is misleading"
    return _builtin_hazard(head.value, command.words[1:])


def _builtin_hazard(name: str, arguments: tuple[Word, ...]) -> str | None:
    if name in _REDEFINING or (name == "hash" and arguments):
        return f"`{name}` changes what later commands mean"
    if name == "set" and not all(
        _SETTINGS.fullmatch(argument.value or "?") for argument in arguments
    ):
        return "`set` changes how later commands are read"
    if name == "[[":
        return _comparison_hazard(arguments)
    if name in {"test", "["}:
        return _test_hazard(arguments)
    if name in _DECLARING:
        return _declaration_hazard(name, arguments)
    if name in _READING:
        return _target_hazard(name, arguments)
    if name == "printf" and arguments:
        return _printf_hazard(arguments)
    return None


def _comparison_hazard(arguments: tuple[Word, ...]) -> str | None:
    """In `[[`, comparing numbers is arithmetic, which can run commands in a variable's value."""
    for at, word in enumerate(arguments):
        if word.source in {"-v", "-R"}:
            return "`[[ -v` can run commands"
        sides = (*arguments[max(at - 1, 0) : at], *arguments[at + 1 : at + 2])
        if word.source in _COMPARISONS and not all(_is_number(side) for side in sides):
            return "arithmetic on more than numbers can run commands"
    return None


def _is_number(word: Word) -> bool:
    return word.value is not None and re.fullmatch(r"-?[0-9]+", word.value) is not None


def _test_hazard(arguments: tuple[Word, ...]) -> str | None:
    """`-v NAME` evaluates the subscript of the name; an expansion may become `-v`."""
    words = [
        argument for argument in arguments if argument.source not in {"]", "!", "$?", "$#", "$$"}
    ]
    literal = {word.value for word in words}
    unknown = [word for word in words if word.value is None and word.optionlike]
    if literal & {"-v", "-R"} or any(item.many for item in unknown):
        return "`test -v` can run commands"
    if unknown and (literal & {"-a", "-o", "("} or (len(words) == 2 and words[0] in unknown)):
        return "the operators of `test` are unknown until it runs"
    return None


def _declaration_hazard(name: str, arguments: Iterable[Word]) -> str | None:
    for word in arguments:
        if word.source.startswith("-"):
            if re.search(r"[^xrgfFp]", word.source[1:]) or (
                name == "unset" and word.source != "-v"
            ):
                return f"`{name}` with unusual options"
            continue
        variable, _, value = word.source.partition("=")
        variable = variable.removesuffix("+")
        if word.pathlike.partition("=")[2].startswith("(") and not value.startswith("("):
            return f"`{name}` with a value that may be parsed as an array"
        if not _IDENTIFIER.fullmatch(variable) or changes_meaning(variable):
            return f"`{name}` on something that changes what other commands do"
    return None


def _printf_hazard(arguments: tuple[Word, ...]) -> str | None:
    """`-v` and `%n` set variables."""
    if arguments[0].source.startswith("-"):
        return _target_hazard("printf", arguments[:2])
    template = arguments[0].value
    sets = template is None or re.search(r"%[^%A-Za-z]*n", template) is not None
    if sets and any(
        argument.value is None or changes_meaning(argument.value) for argument in arguments[1:]
    ):
        return "`printf` may set a variable that changes what other commands do"
    return None


def _target_hazard(name: str, arguments: Iterable[Word]) -> str | None:
    """`read`, `mapfile`, `printf -v` set the variables that their arguments name."""
    for word in arguments:
        value = word.value
        if value is None or (
            value.startswith("-") and not re.fullmatch(r"-[rstnNpdvu0-9]+", value)
        ):
            return f"`{name}` with unusual arguments"
        if "[" in value or changes_meaning(value):
            return f"`{name}` sets something that changes what other commands do"
    return None
