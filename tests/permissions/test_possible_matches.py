"""A rule that forbids holds where the text of a command does not tell what it does."""

import pytest
from msgspec.structs import replace
from tests.permissions.cases import call, decided, held, rules
from tests.row_checks import for_each

from mainspring.harness.permissions.grant_state import Grant, GrantState

SECRETS = ("Read(./secrets/**)", "Read(.env)", "Read(id_rsa)")
NO_PUSH = ("Bash(rm:*)", "Bash(git push:*)")

READS = (
    # values of options: attached, abbreviated, of a file that names others
    "grep --rege=. id_rsa",
    "sed -nep .env",
    "sed 's/[/]/g;s/p;r .env/x/' f",
    "sort --files0-from=names",
    "sort --files0=names",
    "file -f names",
    "sha256sum -c names",
    "xargs -aid_rsa",
    "strings -n @.env f",
    "iconv -f ./.env",
    "xxd -ps id_rsa",
    # bare names of programs that are known or not
    "base64 id_rsa",
    "tsort id_rsa",
    "someprogram id_rsa",
    "someprogram --key=id_rsa",
    "someprogram -kid_rsa",
    "dd if=id_rsa",
    # names in a text
    "someprogram 'open(\".env\")'",
    "someprogram <<< 'r .env'",
    "awk 'BEGIN{ARGV[1]=\"x\"}1'",
    "jq -n 'import \"a\" as $d; $d'",
    # all that is in a folder
    "grep -r x .",
    "grep -d recurse x .",
    "rg x",
    "diff . other",
    "cp -r . ../copy",
    # what only bash can tell
    "cat .e*",
    "cat ~+/secrets/key",
    'cat "$x"',
    "jq \"$x\" f",
    "cd - && cat key",
    "cat /proc/self/cwd/secrets/key",
    "cat //proc/self/cwd/secrets/key",
    "xmllint --noout file:///work/.env",
    "ln -s . d; cat d/secrets/key",
    "env -C secrets cat key",
    # git's objects
    "git show HEAD:.env",
    "git show :.env",
    "git show :0:secrets/key",
    "git show HEAD:./id_rsa",
    "git show abcdef12",
    "git show --stat abcdef12",
    "git show HEAD",
    "git show 'HEAD^{/a:b}'",
    "git cat-file -p HEAD:.env",
    "git cat-file blob abcdef12",
    "git diff",
    "git diff --cached",
    "git diff --stat -p",
    "git diff -- ':!src'",
    "git diff -- .",
    "git diff --no-index x id_rsa",
    "git log -p",
    "git log -p --follow -- a",
    "git log -L1,5:id_rsa",
    "git log -Stoken",
    "git grep x",
    "git grep -- x",
    "git grep -e -- x",
    "git grep --quiet x",
    "git grep --no-index x",
    "git stash show -p",
    "git stash list -p",
    "git reflog -p",
    "git status -v",
    "git for-each-ref --format='%(raw)'",
    "git archive HEAD",
    "git checkout-index -a --prefix=x/",
    "git worktree add ../x",
    "git clone . ../x",
    "git format-patch -1",
    "git add -p",
    "git commit --file=.env",
    "git unheard-of",
)  # fmt: skip


@pytest.mark.parametrize("command", READS)
@pytest.mark.parametrize("is_sandboxed", [False, True])
def test_a_command_that_may_read_a_denied_file_is_not_allowed(command: str, is_sandboxed: bool):
    named = ("Bash(grep:*)", "Bash(sort:*)", "Bash(cat:*)", "Bash(git log:*)", "Bash(git show:*)")
    for allow in ((), ("Bash",), named):
        judged = call("bash", command=command)
        decision = decided(judged, rules(deny=SECRETS, allow=allow), is_sandboxed=is_sandboxed)
        assert decision.decision != "allow", allow


@for_each(
    "command",
    [
        "cat README.md",
        "grep -n x src/a.py",
        "find . -name '*.py'",
        "ls -la",
        "git status",
        "git log --oneline -5",
        "git diff --stat",
        "git show --stat HEAD",
        "git show HEAD:src/a.py",
        "git blame src/a.py",
        "echo .env",
        "date +%s",
        "node --version",
    ],
)
def test_reading_other_files_needs_no_approval(command: str):
    assert decided(call("bash", command=command), rules(deny=SECRETS)).decision == "allow"


def test_a_folder_without_deny_rules_can_be_read_recursively():
    policy = rules(deny=("Read(./secrets/**)", "Read(//etc/shadow)"))
    assert decided(call("bash", command="grep -r x src"), policy).decision == "allow"
    assert decided(call("bash", command="git diff -- src"), policy).decision == "allow"
    assert decided(call("bash", command="grep -r x ."), policy).decision == "ask"
    assert decided(call("bash", command="grep -r x src/../secrets"), policy).decision == "deny"


@for_each(
    "command",
    [
        "$a$b build",
        "${x:-rm} build",
        "r${x}m build",
        "/usr/bin/r? build",
        "source x.sh",
        ". ./x.sh",
        "enable -f ./x.so ls",
        "BASH_ENV=x bash -c ls",
        "LD_PRELOAD=x ls",
        "PATH=.:$PATH ls",
        "/lib64/ld-linux-x86-64.so.2 /bin/rm build",
        "perl -e 'unlink x'",
        "python3 x.py",
        "python3 -c x",
        "awk 'BEGIN{system(x)}'",
        "ls ${!x@P}",
        "mapfile -C 'rm build' a < f",
        "sh script",
        "sh <<< 'r\"\"m build'",
        "busybox rm build",
        "make",
        "npx x",
        "./x",
        "/tmp/ls",
        "unheard-of",
        "git -c alias.x=push x",
        "git x",
        "git p{u,}sh",
        "git ${x:-push}",
        "git -C $x $y",
        "xargs git <<< push",
        "git subtree push",
        "git bisect run git push",
        "git rebase -x 'git push'",
        "sort --compress-program=rm f",
        "ssh host",
        "vim x",
    ],
)
def test_a_command_that_may_run_a_denied_program_is_not_covered_by_allow_all(command: str):
    judged = call("bash", command=command)
    assert decided(judged, rules(deny=NO_PUSH, allow=("Bash",))).decision != "allow"
    assert decided(judged, rules(ask=NO_PUSH, allow=("Bash",))).decision == "ask"
    assert decided(judged, rules(allow=("Bash",))).decision == "allow"


@for_each(
    "command",
    [
        "ls -la",
        "mkdir a && cp x a",
        "sed -i s/a/b/ f",
        "git add . && git commit -m 'remove the rm of .env'",
        "git checkout main",
        "git fetch",
        "for f in *.py; do wc -l $f; done",
        "find . -name x -exec grep y {} +",
        "timeout 5 bash -c 'ls | head'",
        "curl -s http://localhost",
    ],
)
def test_a_command_that_runs_only_named_programs_is_covered_by_allow_all(command: str):
    policy = rules(deny=NO_PUSH, allow=("Bash",))
    assert decided(call("bash", command=command), policy).decision == "allow"


def test_a_program_rule_covers_what_it_may_run_but_not_shell_expansion():
    policy = rules(deny=NO_PUSH, allow=("Bash(npm test:*)", "Bash(git:*)"))
    assert decided(call("bash", command="npm test"), policy).decision == "allow"
    assert decided(call("bash", command="git p{u,}sh"), policy).decision == "ask"
    granted = GrantState(grants={"g": Grant(id="g", rules=held("allow", "Bash(make)"))})
    everything = rules(deny=NO_PUSH, allow=("Bash",))
    assert decided(call("bash", command="make"), everything).decision == "ask"
    assert decided(call("bash", command="make"), everything, granted).decision == "allow"


def test_the_sandbox_setting_allows_programs_but_not_unclear_commands():
    policy = replace(rules(deny=(*NO_PUSH, *SECRETS)), sandbox_allows_bash=True)
    for command, decision in (("make", "allow"), ("$a$b", "ask"), ("git diff", "ask")):
        judged = call("bash", command=command)
        assert decided(judged, policy, is_sandboxed=True).decision == decision


def test_a_command_with_a_denied_host_needs_approval():
    policy = rules(deny=("WebFetch(domain:*.evil.com)",), allow=("Bash",))
    assert decided(call("bash", command="curl https://x.EVIL.com"), policy).decision == "ask"
    assert decided(call("bash", command="curl https://good.com"), policy).decision == "allow"


@pytest.mark.parametrize("command", ["rm -rf ~+", "touch ~+/../out", "touch ~-/x", "mv a ~root"])
def test_a_folder_known_only_to_the_shell_is_not_taken_for_the_workspace(command: str):
    judged, standing = call("bash", command=command), GrantState(mode="acceptEdits")
    assert decided(judged, standing=standing, is_sandboxed=True).decision == "ask"
