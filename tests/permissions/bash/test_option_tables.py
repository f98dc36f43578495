"""The tables of options, held against what the programs themselves say."""

import re
import shutil
import subprocess

import pytest
from tests.row_checks import for_each

from mainspring.harness.permissions.bash.command_parser import parse_commands
from mainspring.harness.permissions.bash.option_tables import option_table, parse_arguments
from mainspring.harness.permissions.bash.program_tables import AWK, PROGRAMS, SED, XARGS

BUILT_IN = {":", "break", "cd", "continue", "dirs", "echo", "exit", "export", "false", "hash"} | {
    "help", "jobs", "local", "printf", "pwd", "read", "return", "set", "shift", "times", "true",
    "type", "ulimit", "umask", "wait",
}  # fmt: skip
SILENT = {"nm", "objdump", "readelf", "size", "man", "journalctl", "shasum", "top"}
"""Their help is laid out in other ways: `-D --dynamic`, or columns."""
UNTOLD = {"file": {"-P"}, "ls": {"-p"}}
"""What the help says in other ways."""
TABLES = {
    name: spec
    for name, spec in {**PROGRAMS, "sed": SED, "xargs": XARGS}.items()
    if name not in BUILT_IN | SILENT and shutil.which(name)
}
_OPTION = re.compile(r"(?<![\w-])(--?[A-Za-z0-9][\w-]*)(\[=?[^\]]*\]|=\S+| <[^>]+>| [A-Z]+\b)?")


def help_options_of(name: str) -> dict[str, str]:
    """Options by `--help`, with what they take: `=` a value, `?` maybe one."""
    answer = subprocess.run(
        [name, "--help"], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
    )
    found: dict[str, str] = {}
    for line in (answer.stdout + answer.stderr).splitlines():
        entry = re.match(r"\s{1,10}(-\S.*)", line)
        if entry is None:
            continue
        options = _OPTION.findall(re.split(r"\s{2,}|\t", entry[1])[0])
        takes = next((each for _, each in options if each), "")
        kind = "" if not takes else "?" if takes.startswith("[") else "="
        names = [option for option, _ in options]
        has_both = [option.startswith("--") for option in names] == [False, True]
        found.update({option: kind for option in names if has_both or option.startswith("--")})
    return found


@for_each("name", sorted(TABLES))
def test_options_take_a_value_in_the_table_exactly_if_they_do_in_the_program(name: str):
    known, program = option_table(TABLES[name]), help_options_of(name)
    takes = {option for option, kind in program.items() if kind == "="}
    takes_none = {option for option, kind in program.items() if kind == ""}
    untold = UNTOLD.get(name, set())
    assert not ((known.flags | known.recursive) & takes) - untold
    assert not ((known.valued | known.optional) & takes_none) - untold


@for_each("name", sorted(TABLES))
def test_an_abbreviated_option_is_not_mistaken_for_another(name: str):
    """getopt takes any beginning that is the only one; what we do not know we do not guess."""
    known = option_table(TABLES[name])
    if "free" in known.words:
        return
    options = known.valued | known.flags | known.optional
    for option in sorted(item for item in options if item.startswith("--") and len(item) > 6):
        for shortened in (option[:-1], option[:5]):
            if shortened not in options:
                for given in (f"{shortened}=x", shortened):
                    command = parse_commands(f"{name} {given} f").commands[0]
                    assert parse_arguments(command.words[1:], TABLES[name]) is None, given


@pytest.mark.parametrize(
    ("spec", "arguments", "files"),
    [
        (PROGRAMS["grep"], "-ie. .env", ["-i", None, "-e", "."]),
        (PROGRAMS["grep"], "-fp f", ["-f", "p"]),
        (PROGRAMS["grep"], "--regexp=x f", ["--regexp", "x"]),
        (PROGRAMS["jq"], "--arg a b . f", ["--arg", "a", "--arg", "b"]),
        (SED, "-nep f", ["-n", None, "-e", "p"]),
        (AWK, "-F: p f", ["-F", ":"]),
        (XARGS, "-afile echo", ["-a", "file"]),
    ],
)
def test_option_values_are_where_getopt_finds_them(
    spec: str, arguments: str, files: list[str | None]
):
    line = parse_arguments(parse_commands(f"x {arguments}").commands[0].words[1:], spec)
    assert line is not None
    assert [item for name, value in line.options for item in (name, value and value.value)] == files


def test_options_are_bundled_only_if_the_program_bundles_them():
    assert (
        parse_arguments(parse_commands("xxd -pl f").commands[0].words[1:], PROGRAMS["xxd"]) is None
    )
    assert (
        parse_arguments(parse_commands("xxd -l5 f").commands[0].words[1:], PROGRAMS["xxd"])
        is not None
    )
