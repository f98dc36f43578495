import pytest
from tests.row_checks import for_each

from mainspring.harness.permissions.bash import analyze_command

WORKSPACE = "/home/me/project"


@for_each(
    "text",
    [
        "rm -rf /",
        "rm -rf /*",
        "rm -rf //",
        "rm -rf '/'",
        "rm -rf /bin/..",
        "rm -rf --no-preserve-root /",
        "rm -rf ~",
        "rm -rf ~/",
        "rm -rf ~/*",
        "rm -rf $HOME",
        'rm -rf "$HOME"',
        "rm -rf ${HOME}/",
        "rm -rf $HOME/*",
        "rm -rf ~root",
        "rm -rf .",
        "rm -rf ./",
        "rm -rf *",
        "rm -rf ./*",
        "rm -rf .*",
        "rm -rf ..",
        "rm -rf ../..",
        "rm -rf ../*",
        "rm -r /etc",
        "rm /etc/passwd",
        "rmdir /usr",
        "rm -rf /home/me",
        "rm -rf /home/me/project",
        "rm -rf /home/me/project/",
        "rm -rf /home/me/project/*",
        "rm -rf $X",
        'rm -rf "$X"/*',
        "rm -rf $X/etc",
        "rm -rf $(pwd)",
        "rm -fr -- /",
        "cd / && rm -rf etc",
        "cd ~; rm -rf *",
        "sudo rm -rf /",
        "bash -c 'rm -rf /'",
        "env rm -rf /",
        "r\\m -rf /",
        "/bin/rm -rf /",
        "find / -delete",
        "find ~ -exec rm {} +",
        "ls | xargs rm -rf",
        "{rm,-rf,/}",
        "a=rm; $a -rf /",
        "PATH=x rm -rf ~",
        "rm${IFS}-rf${IFS}/",
        "rm -rf src/../*",
        f"rm -rf {WORKSPACE}/src/../*",
    ],
)
def test_removing_critical_paths_is_critical(text: str):
    verdict = analyze_command(text, roots=(WORKSPACE,))
    assert verdict.critical
    assert verdict.destructive
    assert not verdict.read_only


@for_each(
    "text",
    [
        "rm x",
        "rm -rf build",
        "rm -rf ./node_modules",
        "rm -f *.pyc",
        "rm -rf /home/me/project/build",
        "rm -rf /tmp/x",
        "rm src/*.o",
        'rm "$f"',
        "rmdir a/b",
        "ls /",
        "cat /etc/passwd",
        "rm ../x/y",
    ],
)
def test_removing_ordinary_files_is_not_critical(text: str):
    assert not analyze_command(text, roots=(WORKSPACE,)).critical


@for_each(
    ("text", "writes"),
    [
        ("mkdir -p a/b", ("a/b",)),
        ("touch a", ("a",)),
        ("rm -rf a b", ("a", "b")),
        ("mv a b", ("a", "b")),
        ("cp -r a b", ("a", "b")),
        ("cp -t d a", ("a", "d")),
        ("sed -i s/a/b/ f", ("f",)),
        ("sed -i.bak -e s/a/b/ f", ("f",)),
        ("echo x > f", ("f",)),
        ("cat > f <<'E'\nx\nE", ("f",)),
        ("ls | tee f", ("f",)),
        ("mkdir a && touch a/b && ls", ("a", "a/b")),
        ("cd sub && touch a", ("a", "sub/a")),
        ("touch /etc/x ~/y", ("/etc/x", "~/y")),
    ],
)
def test_plain_file_commands_are_edits_of_their_paths(text: str, writes: tuple[str, ...]):
    verdict = analyze_command(text)
    assert verdict.edits
    assert verdict.writes == writes
    assert set(writes) <= set(verdict.paths)


@for_each(
    "text",
    [
        "ls",
        "npm test",
        "rm $x",
        "rm *",
        "sed -i '1e rm x' f",
        "sed -i 'w g' f",
        "sed -i'../*' p f",
        "cp --backup=t a b",
        "touch a; npm test",
        "sudo touch a",
        "echo x > $f",
        "cd $x && touch a",
        "cd - && touch a",
        "ln -s a b",
        "PATH=x touch a",
        "FOO=1 touch a",
        "touch a | sh",
        "find . -exec touch {} +",
        "ls | xargs touch",
        "echo x > /dev/tcp/h/1",
    ],
)
def test_other_commands_are_not_edits(text: str):
    assert not analyze_command(text).edits


def test_paths_that_are_read_are_listed():
    assert analyze_command("cat a /b ~/c < d | grep -f/e x g").paths == (
        "d",
        "a",
        "/b",
        "~/c",
        "x",
        "g",
        "/e",
    )
    assert analyze_command("cd s && cat a").paths == ("s", "a", "s/a")
    assert analyze_command("cat $x").opaque
    assert analyze_command("cat *.py").opaque
    assert not analyze_command("cat a").opaque


@pytest.mark.parametrize(
    "text", ["curl x", "git push", "ssh h ls", "npm install", "echo > /dev/tcp/h/1", "env wget x"]
)
def test_network_access_is_detected(text: str):
    assert analyze_command(text).network


def test_git_is_not_trusted_in_another_folder():
    assert not analyze_command("cd sub && git status", roots=(WORKSPACE,)).read_only
    assert analyze_command(f"cd {WORKSPACE} && git status", roots=(WORKSPACE,)).read_only


@for_each(
    "text",
    [
        "git reset --hard",
        "git push --force",
        "git clean -fdx",
        "dd if=a of=b",
        "kill 1",
        "mkfs.ext4 /dev/sda",
        "find . -delete",
        "$x",
        "docker system prune",
    ],
)
def test_irreversible_commands_are_destructive(text: str):
    assert analyze_command(text).destructive
