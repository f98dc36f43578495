import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.row_checks import for_each

from mainspring.harness.permissions.bash import Commands, UnclearCommands, parse_commands


def texts(shell: str) -> list[str]:
    found = parse_commands(shell)
    assert isinstance(found, Commands), found
    return [command.text for command in found.commands]


@for_each(
    "shell",
    [
        "a; b",
        "a && b",
        "a || b",
        "a | b",
        "a |& b",
        "a & b",
        "a\nb",
        "{ a; b; }",
        "(a; b)",
        "! a; b",
    ],
)
def test_a_text_is_split_at_every_operator(shell: str):
    assert texts(shell) == ["a", "b"]


@for_each(
    "shell",
    [
        "a $(b)",
        "a `b`",
        'a "$(b)"',
        "a ${x:-$(b)}",
        "a <(b)",
        "a <<< $(b)",
        "a <<E\n$(b)\nE",
        "if a; then b; fi",
        "while a; do b; done",
        "for x in $(b); do a; done",
        "case $(b) in x) a;; esac",
        "f() { a; b; }",
        "x=$(b) a",
        "[[ -n $(b) ]] && a",
        "a > $(b)",
    ],
)
def test_commands_are_found_at_any_nesting_depth(shell: str):
    assert {t.split()[-1] if "=" in t else t.split()[0] for t in texts(shell)} >= {"a", "b"}


@for_each(
    ("shell", "value"),
    [
        ("r\\m", "rm"),
        ("'rm'", "rm"),
        ('r"m"', "rm"),
        ("$'\\x72m'", "rm"),
        ("$'\\162m'", "rm"),
        ("r''m", "rm"),
        ("'a b'", "a b"),
        ('"a\\"b"', 'a"b'),
        ('"a\\nb"', "a\\nb"),
    ],
)
def test_the_value_of_a_word_does_not_depend_on_its_quotes(shell: str, value: str):
    found = parse_commands(f"x {shell}")
    assert isinstance(found, Commands)
    assert found.commands[0].words[1].value == value


@for_each("shell", ["$x", "*", "{a,b}", "~", "$(b)", "`b`", "${x}", "a?", "[ab]", "$((1))"])
def test_a_word_that_only_bash_can_expand_has_no_value(shell: str):
    found = parse_commands(f"a {shell}")
    assert isinstance(found, Commands)
    assert found.commands[-1].words[1].value is None


@for_each(
    ("shell", "inner"),
    [
        ("timeout 5 a x", ["a x"]),
        ("time a x", ["a x"]),
        ("nice -n 5 a x", ["a x"]),
        ("nohup a x", ["a x"]),
        ("stdbuf -oL a x", ["a x"]),
        ("command a x", ["a x"]),
        ("builtin a x", ["a x"]),
        ("xargs a x", ["a x"]),
        ("timeout -k 1 5 nice a x", ["a x"]),
        ("xargs -n1 a x", ["xargs -n1 a x", "a x"]),
        ("env A=1 a x", ["env A=1 a x", "A=1 a x"]),
        ("env a+b=1 a x", ["env a+b=1 a x", "a+b=1 a x"]),
        ("exec a x", ["exec a x", "a x"]),
        ("eval a x", ["eval a x", "a x"]),
        ("bash -c 'a x; b'", ["bash -c 'a x; b'", "a x", "b"]),
        ("trap 'a x' EXIT", ["trap 'a x' EXIT", "a x"]),
        ("find . -exec a {} +", ["find . -exec a {} +", "a {}"]),
    ],
)
def test_wrappers_are_removed_or_kept_beside_the_wrapped_command(shell: str, inner: list[str]):
    assert texts(shell) == inner


def test_any_word_after_an_unknown_wrapper_may_start_a_command():
    assert {"rm x", "sudo -u bob rm x"} <= set(texts("sudo -u bob rm x"))
    assert "rm -rf x" in texts("ssh host 'rm -rf x'")


def test_redirections_are_kept():
    found = parse_commands("a < in > out 2>> log &> both <<< text 2>&1 3<> io")
    assert isinstance(found, (Commands, UnclearCommands))
    redirects = [(r.operator, r.target.pathlike) for r in found.commands[0].redirects]
    assert redirects == [
        ("<", "in"),
        (">", "out"),
        (">>", "log"),
        ("&>", "both"),
        ("<<<", "text"),
        (">&", "1"),
        ("<>", "io"),
    ]


@for_each(
    "shell",
    [
        "$x a",
        "$(a) b",
        "a 'b",
        "a $(b",
        "if a; then b",
        "a ${!x}",
        "a ${x@P}",
        "a $((x))",
        "a !!",
        "{rm,-rf,/}",
        "ls() { rm x; }",
        "alias a=b",
        "hash -p x y",
        "enable -f x y",
        "coproc a",
        "PATH=x a",
        "IFS=x",
        "export LD_PRELOAD=x",
        "BASH_ENV=x a",
        "GIT_PAGER=x git log",
        "a\u00a0b",
        "a\u200bb",
        "\u202ea",
        "a\rb",
        "a\0b",
        "а b",  # the first letter is Cyrillic
        "a | sh",
        "bash <<E\nrm\nE",
        "eval $x",
        "bash -c $x",
        "printf x%n PATH",
        "sh -c \"ls $'a\\\\'; rm x; \\\\''\"",
        "zsh -c 'ls'",
        "env A=$x ls",
        "declare -a a='([0]=$(rm x))'",
        "x" * 10_001,
    ],
)
def test_ambiguous_text_is_unclear(shell: str):
    assert isinstance(parse_commands(shell), UnclearCommands)


def test_commands_found_in_unclear_text_are_listed():
    found = parse_commands("PATH=x r\\m -rf /")
    assert isinstance(found, UnclearCommands)
    assert [command.name for command in found.commands] == ["rm"]


@pytest.mark.parametrize(
    "shell",
    [
        "$(" * 4_000,
        "${x:-" * 1_900,
        "( " * 4_900,
        "a|" * 4_999,
        "sudo " * 1_900,
        "`" * 5_000,
        "case x in a) " * 700,
    ],
)
def test_excessively_large_text_is_unclear(shell: str):
    assert isinstance(parse_commands(shell), UnclearCommands)


@given(
    st.text(
        alphabet=st.characters() | st.sampled_from("$`(){}<>|&;'\"\\ \n#!*?[]=-abEOF"), max_size=80
    )
)
def test_any_text_is_parsed_without_an_exception(shell: str):
    assert isinstance(parse_commands(shell), (Commands, UnclearCommands))
