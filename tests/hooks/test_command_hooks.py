"""Programs as hooks, and what a bad one can do to us."""

import json
import os
import signal
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from tests.fifos import open_fifo
from tests.hooks.hook_project import Project, at, before, command, configured

from mainspring.capabilities.hooks import HandlerPorts, HookEnvironment
from mainspring.core.hook import HookResult


async def run_gate_hook(project: Project, text: str, **more: object) -> HookResult:
    runner = project.runner(configured("PreToolUse", command(text, **more)))
    with anyio.fail_after(60):
        return await runner.run(before())


async def test_a_program_reads_the_event_from_standard_input(project: Project):
    runner = project.runner(configured("PreToolUse", command("cat > heard.json")))
    await runner.run(before("bash", command="ls"))
    assert json.loads((project.root / "heard.json").read_text()) == {
        **project.told(),
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "ls"},
        "tool_use_id": "toolu_1",
    }


async def test_arguments_are_passed_without_a_shell(project: Project):
    hook_result = await run_gate_hook(
        project,
        "python3",
        args=[
            "-c",
            "import sys; sys.exit(' '.join(sys.argv[1:]) != '$HOME; ls *')",
            "$HOME;",
            "ls *",
        ],
    )
    assert hook_result.blocked is False, hook_result.reason


async def test_the_project_folder_is_expanded_in_arguments(project: Project):
    (project.root / "hook.py").write_text("import sys; sys.stderr.write('found'); sys.exit(2)")
    hook_result = await run_gate_hook(project, "python3", args=["${CLAUDE_PROJECT_DIR}/hook.py"])
    assert hook_result.reason == "found"


async def test_a_program_does_not_inherit_our_secrets(project: Project):
    secrets = {
        "ANTHROPIC_API_KEY": "sk-1",
        "AWS_SECRET_ACCESS_KEY": "sk-2",
        "MAINSPRING_VAULT_KEY": "sk-3",
        "DATABASE_URL": "sk-4",
        "LD_PRELOAD": "",
        "WANTED": "given",
    }
    around = HookEnvironment(
        project=project.root,
        environment={**project.environment, "LC_ALL": "C.UTF-8", **secrets},
        also_passed=frozenset(("WANTED",)),
    )
    config = configured("SessionStart", command("env", args=[]))
    hook_result = await project.runner(config, ports=HandlerPorts(environment=around)).run(
        at("SessionStart")
    )
    assert {line.partition("=")[0] for line in hook_result.context[0].splitlines()} == {
        *("PATH", "HOME", "LC_ALL", "WANTED"),
        *("CLAUDE_PROJECT_DIR", "MAINSPRING_PROJECT_DIR", "MAINSPRING_HOOK_EVENT"),
    }


@pytest.mark.parametrize(
    ("text", "more", "reason"),
    [
        ("exit 1", {}, "exited with 1"),
        ("echo oops >&2; exit 3", {}, "exited with 3: oops"),
        ("kill -9 $$", {}, "was killed by signal 9"),
        ("no_such_program_here", {}, "exited with 127"),
        ("no_such_program_here", {"args": []}, "could not be started: No such file"),
        ("a\0b", {"args": []}, "could not be started: it cannot be passed on"),
        ("sleep 60", {"timeout": 0.1}, "did not answer within 0.1 s"),
        ("trap '' TERM INT HUP; sleep 60", {"timeout": 0.1}, "did not answer within 0.1 s"),
        ("yes", {}, "wrote more than 1000000 bytes"),
        ("yes >&2", {}, "wrote more than 1000000 bytes"),
        ("yes & exit 0", {}, "wrote more than 1000000 bytes"),
        (
            "printf '{\"a\": \"'; head -c 2000000 /dev/zero | tr '\\0' a; printf '\"}'",
            {},
            "wrote more",
        ),
        ('printf \'{"systemMessage": "\\377"}\'', {}, "gave an answer that cannot be read"),
        ("echo '{\"continue\": 1}'", {}, "gave an answer that cannot be read"),
        ("printf '['; printf '{'", {}, None),
        ("printf '{'", {}, "gave an answer that cannot be read"),
    ],
)
async def test_a_failing_program_denies(
    project: Project, text: str, more: dict[str, object], reason: str | None
):
    hook_result = await run_gate_hook(project, text, **more)
    if reason is None:
        assert hook_result.permission is None  # words that nobody asked for are not garbage
        return
    assert hook_result.permission == "deny"
    assert reason in (hook_result.reason or "")
    assert f"hook {text.split(maxsplit=1)[0]}"[:8] in (hook_result.reason or "")


async def test_an_outcome_says_how_the_program_ended(project: Project):
    outcomes = [
        (await run_gate_hook(project, text, timeout=timeout)).hook_runs[0].outcome
        for text, timeout in [("exit 0", 20), ("exit 2", 20), ("exit 1", 20), ("sleep 60", 0.1)]
    ]
    assert outcomes == ["ok", "blocked", "failed", "timed_out"]


async def test_a_missing_working_folder_is_a_failure(project: Project):
    project.root.rmdir()
    assert "could not be started" in ((await run_gate_hook(project, "true")).reason or "")


async def test_a_program_that_does_not_read_its_input_is_not_waited_for(project: Project):
    runner = project.runner(configured("PreToolUse", command("exit 0")))
    with anyio.fail_after(60):
        hook_result = await runner.run(before(content="x" * 5_000_000))
    assert hook_result.blocked is False


async def test_invalid_utf_8_output_is_replaced(project: Project):
    runner = project.runner(configured("SessionStart", command("printf 'a\\377b'")))
    assert (await runner.run(at("SessionStart"))).context == ("a\N{REPLACEMENT CHARACTER}b",)


async def test_a_leftover_background_process_does_not_delay_the_result(project: Project):
    text = 'sleep 600 & echo $! > left; echo \'{"systemMessage": "done"}\''
    hook_result = await run_gate_hook(project, text)
    # It is still there: an orderly end leaves it alone.
    os.kill(int((project.root / "left").read_text()), signal.SIGKILL)
    assert hook_result.messages == ("done",)


async def test_cancelling_kills_a_program_and_its_children(project: Project):
    alive = project.root / "alive"
    os.mkfifo(alive)  # its reader hears the end when nobody has it open any more
    text = "exec 3> alive; sleep 600 & sleep 600 & echo running >&3; wait"
    runner = project.runner(configured("PreToolUse", command(text)))
    running = anyio.CancelScope()

    async def run() -> None:
        with running:
            await runner.run(before())

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            with open_fifo(alive) as reading:
                while not (line := reading.read()):  # noqa: ASYNC110 -- a fifo is no event
                    await anyio.sleep(0.01)
                assert line == b"running\n"
                running.cancel()
                while (rest := reading.read()) is None:  # noqa: ASYNC110
                    await anyio.sleep(0.01)
                assert rest == b""


async def test_hooks_leave_no_open_files(project: Project):
    folder = Path("/proc/self/fd")
    if not folder.exists():
        pytest.skip("counted in /proc")
    await run_gate_hook(project, "exit 0")
    open_before = len(list(folder.iterdir()))
    for text in ("exit 0", "yes", "sleep 600 & echo $! > left", "exit 1"):
        await run_gate_hook(project, text)
    os.kill(int((project.root / "left").read_text()), signal.SIGKILL)
    assert len(list(folder.iterdir())) <= open_before


async def test_cancelling_while_a_program_starts_leaves_no_process(project: Project):
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    if not children.exists():
        pytest.skip("processes are listed in /proc")
    runner = project.runner(configured("PreToolUse", command("sleep 600")))
    for _ in range(5):
        started: set[str] = set()
        earlier = {*children.read_text().split()}
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(runner.run, before())
                while not (started := {*children.read_text().split()} - earlier):
                    await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()
        assert not any(Path(f"/proc/{process}").exists() for process in started)
