import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.permissions.bash.harmless import READ_ONLY
from tests.row_checks import for_each

from mainspring.harness.permissions.bash import is_covered, rule_matches, suggest_rule


@for_each(
    ("pattern", "text"),
    [
        ("npm test *", "npm test"),
        ("npm test *", "npm test --watch"),
        ("npm test:*", "npm test --watch"),
        ("npm *", "npm run x"),
        ("npm * build", "npm run -w a build"),
        ("npm test", "npm test"),
        ("npm test *", "npm test && npm test -- -x"),
        ("npm test *", "(npm test) 2>&1"),
        ("npm test *", "CI=1 npm test"),
        ("npm test *", "timeout 5 npm test"),
        ("npm test *", "'npm' test"),
        ("FOO=1 npm test *", "FOO=1 npm test"),
        ("*", "anything at all"),
        ("* --version", "anything --version"),
        ("git switch *", "git switch -c new"),
        ("git push *", "git push -u origin main"),
        ("git commit *", 'git commit -m "$x"'),
        ("python tool.py *", "python tool.py -c x"),
        ("echo x > f", "echo x > f"),
        ("sudo systemctl restart x", "sudo systemctl restart x"),
    ],
)
def test_an_allow_rule_matches(pattern: str, text: str):
    assert rule_matches(pattern, text, behavior="allow")


@for_each(
    ("pattern", "text"),
    [
        ("npm test *", "npm testing"),
        ("npm test:*", "npm testing"),
        ("npm test", "npm test x"),
        ("npm test *", "npm test; rm x"),
        ("npm test *", "npm test && ls"),
        ("npm test *", "FOO=1 npm test"),
        ("npm test *", "/evil/npm test"),
        ("npm test *", "npm test > f"),
        ("npm test *", "'npm test' x"),
        ("ls *", "sudo ls"),
        ("sudo *", "sudo ls"),
        ("* x", "rm x; ls"),
        ("* --version", "rm -rf / --version"),
        ("python *", "echo x | python"),
        ("python *", "python -W ignore -c x"),
        ("git clone *", "git clone -u evil x"),
        ("git log *", 'git log -m "--output=x"'),
        ("git log *", 'git log -m "$x"'),
        ("git commit *", "git commit -m $x"),
        ("tar *", "tar xfI a evil"),
        ("echo x > *", "echo x > f"),
        ("npm test *", "npm test $("),
        ("*", "$x"),
        ("*", ""),
    ],
)
def test_an_allow_rule_does_not_match(pattern: str, text: str):
    assert not rule_matches(pattern, text, behavior="allow")


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("rm *", "ls; rm x"),
        ("rm *", "/bin/rm x"),
        ("rm *", "r\\m x"),
        ("rm *", "'rm' x"),
        ("rm *", "$'\\x72m' x"),
        ("rm *", "FOO=1 rm x"),
        ("rm *", "PATH=x rm x"),
        ("rm *", "sudo -u bob rm x"),
        ("rm *", "env -i A=1 rm x"),
        ("rm *", "bash -c 'rm x'"),
        ("rm *", "find . -exec rm {} +"),
        ("rm *", "ls | xargs -0 rm"),
        ("rm *", "ls | xargs rm"),
        ("rm *", "echo $(rm x)"),
        ("rm *", "timeout 5 nice rm x"),
        ("timeout *", "timeout 5 ls"),
        ("rm *", "a=rm; $a x"),
        ("rm *", "{rm,-rf,/}"),
        ("rm *", "r\u200bm x"),
        ("rm *", "ｒｍ x"),
        ("rm *", "rm${IFS}x"),
        ("rm *", "x" * 10_000 + "; rm x"),
        ("rm -rf *", "rm -rf 'a b'"),
        ("git push *", "git -C elsewhere push"),
        ("git push *", "git -c a=b --no-pager push origin"),
        ("git push", "git push"),
        ("curl *", "ssh host 'curl x | sh'"),
        ("* > /etc/*", "echo x > /etc/passwd"),
    ],
)
@pytest.mark.parametrize("behavior", ["deny", "ask"])
def test_a_deny_rule_matches_disguised_commands(pattern: str, text: str, behavior: str):
    assert rule_matches(pattern, text, behavior="deny" if behavior == "deny" else "ask")


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("rm *", "ls rm"),
        ("rm *", "echo 'rm x'"),
        ("rm *", "docker run --rm x"),
        ("rm *", "rmdir x"),
        ("git push *", "git log"),
        ("rm *", "cat <<'E'\nrm x\nE"),
        ("rm *", "ls # rm x"),
    ],
)
def test_a_deny_rule_does_not_match_other_commands(pattern: str, text: str):
    assert not rule_matches(pattern, text, behavior="deny")


def test_rules_cover_a_command_together_and_reading_needs_none():
    assert is_covered(["npm test *", "cargo build *"], "npm test && cargo build | tail -5")
    assert not is_covered(["npm test *"], "npm test && cargo build")


@for_each(
    ("text", "rule"),
    [
        ("npm test", "npm test *"),
        ("npm run build -- --prod", "npm run build *"),
        ("cd app && npm test 2>&1 | tail -5", "npm test *"),
        ("git commit -m 'x'", "git commit *"),
        ("git push origin main", "git push origin main"),
        ("cargo build --release", "cargo build *"),
        ("docker compose up -d", "docker compose up *"),
        ("pytest -q tests", "pytest *"),
        ("python -m pytest -q", "python -m pytest *"),
        ("python tool.py --x", "python tool.py *"),
        ("./run.sh --all", "./run.sh *"),
        ("timeout 60 npm test", "npm test *"),
        ("rm x", None),
        ("sudo ls", None),
        ("bash -c 'npm test'", None),
        ("sh script.sh", None),
        ("python -c 'x'", None),
        ("node -e 'x'", None),
        ("npm test; cargo build", None),
        ("npm test > f", None),
        ("FOO=1 npm test", None),
        ("$x", None),
        ("ls", None),
        ("curl http://x", None),
        ("find . -delete", None),
        ("git reset --hard", None),
    ],
)
def test_the_suggested_rule_is_narrow(text: str, rule: str | None):
    assert suggest_rule(text) == rule


COMMANDS = st.sampled_from(
    [*READ_ONLY, "npm test", "rm x", "git push -f", "x=1 y", "a $(b)", "sudo x", "$x", "a > f"]
)
PATTERNS = st.sampled_from(
    ["npm *", "rm *", "git push *", "*", "sudo *", "a *", "ls *", "b", "y *"]
)


@given(COMMANDS, COMMANDS, PATTERNS)
def test_a_list_of_commands_is_allowed_only_if_each_part_is(first: str, second: str, pattern: str):
    both = f"{first}\n{second}"
    if is_covered([pattern], both):
        assert is_covered([pattern], first)
        assert is_covered([pattern], second)


@given(COMMANDS, COMMANDS, PATTERNS)
def test_a_command_denied_alone_is_denied_in_a_list(first: str, second: str, pattern: str):
    if rule_matches(pattern, first, behavior="deny"):
        assert rule_matches(pattern, f"{second}\n{first}", behavior="deny")


@given(COMMANDS)
def test_a_suggested_rule_allows_the_command_it_was_suggested_for(text: str):
    rule = suggest_rule(text)
    assert rule is None or is_covered([rule], text)


def test_a_deny_rule_matches_after_time_and_assignments():
    assert rule_matches("rm *", "time -p v=1 rm -rf x", behavior="deny")
    assert not rule_matches("ls *", "time -p v=1 rm -rf x", behavior="allow")
