"""What a hook runs is what somebody has vouched for; a script that has changed closes gates."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.row_checks import for_each
from tests.written_files import write_file

from mainspring.capabilities.hooks.command import HookEnvironment, run_command
from mainspring.capabilities.hooks.config import CommandHook, Hook, HookConfig
from mainspring.capabilities.hooks.folder_copies import FolderCopies
from mainspring.capabilities.hooks.handlers import HandlerPorts
from mainspring.capabilities.hooks.runner import HookPolicy, HookRunner, HookSession
from mainspring.capabilities.hooks.scripts import Scripts, digest, read_scripts
from mainspring.capabilities.hooks.verdict import HookFailure
from mainspring.core.errors import InvalidInput
from mainspring.core.hook import HookEvent, HookFolder, HookResult

SAYS = '#!/bin/sh\necho "$0 ${1-}" > "$CLAUDE_PROJECT_DIR/told"\n'


def trust_commands(project: Path, *commands: str) -> HookEnvironment:
    read = read_scripts(commands, project, project=project)
    files = {str(project / name): digest(content) for name, content in read.items()}
    return HookEnvironment(
        project=project,
        environment={"PATH": "/usr/local/bin:/usr/bin:/bin"},
        scripts=Scripts(roots=(str(project),), files=files),
    )


def script(file: Path, text: str = SAYS) -> Path:
    write_file(file, text)
    file.chmod(0o755)
    return file


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return (tmp_path / "my project").resolve()


COMMANDS = [
    '"$CLAUDE_PROJECT_DIR"/.claude/hooks/check.sh',
    '"$CLAUDE_PROJECT_DIR/.claude/hooks/check.sh" now',
    "sh ${CLAUDE_PROJECT_DIR:-.}/.claude/hooks/check.sh || exit 2",
    "./.claude/hooks/check.sh; true",
    "bash -c 'sh .claude/hooks/check.sh'",
    "cd .claude/hooks && ./check.sh",
    "test -x .claude/hooks/check.sh && .claude/hooks/check.sh",
    "here=.claude/hooks; $here/check.sh",
]


@pytest.mark.parametrize(
    "command",
    [item.replace("${CLAUDE_PROJECT_DIR:-.}", '"${CLAUDE_PROJECT_DIR:-.}"') for item in COMMANDS],
)
async def test_a_script_runs_from_its_trusted_copy_until_it_changes(project: Path, command: str):
    file = script(project / ".claude/hooks/check.sh")
    around = trust_commands(project, command)
    reply = await run_command(CommandHook(command=command), "PreToolUse", b"{}", around)
    assert isinstance(reply, HookResult), reply
    told = (project / "told").read_text()
    assert told.endswith((" \n", "now\n"))
    assert not told.startswith(str(project))  # what ran was not the file that an agent could swap
    (project / "told").unlink()
    file.write_text(f"{SAYS}# changed\n")
    reply = await run_command(CommandHook(command=command), "PreToolUse", b"{}", around)
    assert isinstance(reply, HookFailure)
    assert reply.is_changed
    assert "has changed since it was trusted" in reply.reason
    assert "mainspring policy trust" in reply.reason
    file.unlink()
    reply = await run_command(CommandHook(command=command), "PreToolUse", b"{}", around)
    assert isinstance(reply, HookFailure)
    assert not (project / "told").exists()


def plant_library(project: Path) -> None:
    (project / ".claude/hooks/lib.sh").write_text("echo evil >&2; exit 0\n")


def plant_module(project: Path) -> None:
    (project / "scripts/json.py").write_text("raise SystemExit(0)\n")


def change_module(project: Path) -> None:
    (project / "scripts/rules.py").write_text("raise SystemExit(0)\n")


def change_elsewhere(project: Path) -> None:
    (project / "lib/common.sh").write_text("exit 0\n")


def link_away(project: Path) -> None:
    away = script(project.parent / "evil.sh", "exit 0\n")
    (project / ".claude/hooks/gate.sh").unlink()
    (project / ".claude/hooks/gate.sh").symlink_to(away)


@pytest.mark.parametrize(
    "attack",
    [plant_library, plant_module, change_module, change_elsewhere, link_away],
    ids=lambda attack: attack.__name__,
)
@pytest.mark.parametrize("fail_open", [False, True])
async def test_a_trusted_script_with_changed_imports_denies_even_with_fail_open(
    project: Path, attack: Callable[[Path], None], fail_open: bool
):
    script(
        project / ".claude/hooks/gate.sh",
        '. "$(dirname "$0")"/lib.sh\n. "$(dirname "$0")"/../../lib/common.sh\n',
    )
    script(project / ".claude/hooks/lib.sh", "true\n")
    script(project / "lib/common.sh", "true\n")
    script(project / "scripts/check.py", "import json\nfrom rules import rule\n")
    script(project / "scripts/rules.py", "rule = 1\n")
    commands = ("sh .claude/hooks/gate.sh", "python3 scripts/check.py")
    config = HookConfig(
        scope="project",
        source="x",
        hooks=tuple(Hook(event="PreToolUse", handler=CommandHook(command=c)) for c in commands),
    )
    ports = HandlerPorts(environment=trust_commands(project, *commands))
    policy = HookPolicy(trusted=frozenset(("project",)), fail_open=fail_open)
    hook_event = HookEvent(event="PreToolUse", subject="bash", fields={"tool_input": {}})
    async with HookRunner([config], HookSession(fields=dict), ports, policy=policy) as runner:
        before = await runner.run(hook_event)
        assert not before.blocked, before.reason
        attack(project)
        hook_result = await runner.run(hook_event)
        assert hook_result.blocked
        assert "mainspring policy trust" in (hook_result.reason or "")


@pytest.mark.parametrize(
    ("command", "text", "rewritten"),
    [
        ("sh scripts/gate", '. "$(dirname "$0")/../lib/common"\n', "lib/common"),
        ("sh scripts/gate", 'cd "$CLAUDE_PROJECT_DIR"\n. ./lib/common\n', "lib/common"),
        (
            "python3 scripts/gate",
            "import sys\nsys.path.insert(0, sys.path[0] + '/..')\nfrom lib import (\n  rules,\n)\n",
            "lib/rules.py",
        ),
        ("python3 scripts/gate", "import rules.deep as x\n", "scripts/rules/deep.py"),
        ("python3 -B scripts", "", "scripts/__main__.py"),
    ],
)
async def test_a_module_or_library_of_a_script_is_trusted_with_it(
    project: Path, command: str, text: str, rewritten: str
):
    script(project / "scripts/gate", text)
    write_file(project / rewritten, "")
    around = trust_commands(project, command)
    reply = await run_command(CommandHook(command=command), "PreToolUse", b"{}", around)
    assert isinstance(reply, HookResult), reply
    (project / rewritten).write_text("exit\n")
    reply = await run_command(CommandHook(command=command), "PreToolUse", b"{}", around)
    assert isinstance(reply, HookFailure)
    assert f"{rewritten}, which has changed since it was trusted" in reply.reason


async def test_an_untrusted_script_does_not_run(project: Path):
    project.mkdir()
    around = trust_commands(project, "./later.sh")
    assert isinstance(
        await run_command(CommandHook(command="./later.sh || true"), "PreToolUse", b"", around),
        HookResult,
    )
    script(project / "later.sh")
    reply = await run_command(CommandHook(command="./later.sh || true"), "PreToolUse", b"", around)
    assert isinstance(reply, HookFailure)
    assert "nobody has vouched for" in reply.reason
    assert not (project / "told").exists()


async def test_output_files_and_plain_data_need_no_trust(project: Path):
    script(project / ".claude/hooks.log", "old\n").chmod(0o644)
    line = 'cat package.json >> "$CLAUDE_PROJECT_DIR"/.claude/hooks.log'
    around = trust_commands(project, line)
    (project / "package.json").write_text("{}\n")
    assert isinstance(await run_command(CommandHook(command=line), "Stop", b"", around), HookResult)
    assert (project / ".claude/hooks.log").read_text() == "old\n{}\n"


async def test_scripts_of_a_plugin_run_without_a_shell_need_trust_too(
    project: Path, tmp_path: Path
):
    plugin = tmp_path / "plugins/guard"
    file = script(plugin / "hooks/guard.sh")
    project.mkdir()
    pinned = {str(file): digest(file.read_bytes())}
    scripts = Scripts(roots=(str(project), str(plugin)), files=pinned)
    around = replace(trust_commands(project), scripts=scripts)
    handler = CommandHook(command="sh", args=(str(file), "now"))
    assert isinstance(await run_command(handler, "PreToolUse", b"", around), HookResult)
    assert not (project / "told").read_text().startswith(str(plugin))
    file.write_text("exit 0\n")
    reply = await run_command(handler, "PreToolUse", b"", around)
    assert isinstance(reply, HookFailure)
    assert os.fspath(file) in reply.reason


async def test_a_plugins_hook_runs_only_trusted_files(project: Path, tmp_path: Path):
    root = tmp_path / "plugins/guard"
    main = script(root / "hooks/run.sh", 'sh "$CLAUDE_PLUGIN_ROOT/lib/look.sh" "$PLUGIN_DATA"\n')
    look = script(root / "lib/look.sh", "echo TRUSTED $0 $1 >&2\nexit 2\n")
    project.mkdir()
    script(project / "run.sh", "exit 0\n")  # not the one that is meant
    pinned = {str(file): digest(file.read_bytes()) for file in (main, look)}
    folder = HookFolder(name="guard", root=str(root), data=str(tmp_path / "data"), plugin="guard")

    def around() -> HookEnvironment:
        scripts = Scripts(roots=(str(project), str(root)), files=pinned)
        return replace(
            trust_commands(project), scripts=scripts, folder=folder, copies=FolderCopies()
        )

    first = around()
    commands = [f'sh "{main}"', f"cd {root} && sh ./hooks/run.sh", f"cd '{root}/hooks'; . ./run.sh"]
    for command in commands:
        reply = await run_command(CommandHook(command=command), "PreToolUse", b"", first)
        assert isinstance(reply, HookResult), reply
        assert reply.reason is not None
        assert reply.reason.startswith("TRUSTED ")
        assert str(root) not in reply.reason
        assert reply.reason.endswith(str(tmp_path / "data"))
    look.write_text("echo OTHER >&2\nexit 2\n")
    reply = await run_command(CommandHook(command=commands[0]), "PreToolUse", b"", first)
    assert isinstance(reply, HookResult)  # the copy of before
    assert "TRUSTED" in (reply.reason or "")
    reply = await run_command(CommandHook(command=commands[0]), "PreToolUse", b"", around())
    assert isinstance(reply, HookFailure)
    assert reply.is_changed
    assert os.fspath(look) in reply.reason
    assert first.copies is not None
    first.copies.close()


async def test_a_path_in_a_plugin_is_not_mistaken_for_a_project_file(tmp_path: Path, project: Path):
    plugin = (tmp_path / "plugins/kit").resolve()
    told = script(plugin / "scripts/told.sh", 'echo "TRUSTED $1" >&2\nexit 2\n')
    project.mkdir()
    scripts = Scripts(
        roots=(str(project), str(plugin)), files={str(told): digest(told.read_bytes())}
    )
    folder = HookFolder(name="kit", root=str(plugin), data=str(tmp_path / "data"), plugin="kit")
    around = replace(trust_commands(project), scripts=scripts, folder=folder, copies=FolderCopies())
    command = CommandHook(command='f=scripts/told.sh; sh "$CLAUDE_PLUGIN_ROOT/$f" scripts/told.sh')
    reply = await run_command(command, "PreToolUse", b"", around)
    assert isinstance(reply, HookResult), reply
    assert reply.reason == "TRUSTED scripts/told.sh"
    script(project / "scripts/told.sh", "exit 0\n")  # now it may be the project's, unread
    reply = await run_command(command, "PreToolUse", b"", around)
    assert isinstance(reply, HookFailure)
    assert "nobody has vouched for" in reply.reason
    assert around.copies is not None
    around.copies.close()


@for_each(
    "content",
    [
        b"a" * 1_000_000,
        b"from " + b"." * 1_000_000 + b" import x",
        b"import (\n" * 110_000,
        b"import " + b"a." * 500_000,
        b" ".join(b"../x%d" % number for number in range(100_000)),
        b" ".join(b"hooks/x%d" % number for number in range(100_000)),
        (b"from " + b"p." * 99 + b" import a, b, c\n") * 4_000,
    ],
)
def test_a_script_made_to_be_slow_is_read_in_linear_time(content: bytes, tmp_path: Path):
    """Before anybody has trusted it: a megabyte of these meant hours."""
    script = tmp_path / "hooks/slow.sh"
    script.parent.mkdir(exist_ok=True)
    script.write_bytes(content)
    used = time.process_time()
    assert [*read_scripts(["sh hooks/slow.sh"], tmp_path, project=tmp_path)] == ["hooks/slow.sh"]
    assert time.process_time() - used < 20


def test_scripts_that_mention_too_much_to_be_looked_up_are_refused(tmp_path: Path):
    script = tmp_path / "hooks/slow.py"
    script.parent.mkdir()
    script.write_bytes(b"import " + b",".join(b"m%d" % number for number in range(300_000)))
    with pytest.raises(InvalidInput, match="over 200,000 paths and modules"):
        read_scripts(["python hooks/slow.py"], tmp_path, project=tmp_path)
