"""bash: what lasts between commands, and what a model is told of each. In two sandboxes."""

import base64
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from tests.abilities import require_bubblewrap, require_sandbox
from tests.at_once import at_once
from tests.tools.open_sandbox import OpenSandbox
from tests.tools.shells import Session

from mainspring.capabilities.sandbox.backend import SandboxSpec
from mainspring.capabilities.sandbox.sandbox_client import KeeperSandbox
from mainspring.core.content import plain_text


@pytest.fixture(params=["open", "sandboxed"])
async def session(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Session]:
    if request.param == "open":
        opened = OpenSandbox(tmp_path)
        yield Session(opened, opened.root)
        return
    backend = require_sandbox()
    root = tmp_path / "ws"
    root.mkdir()
    site = SandboxSpec(session_id="test", workspace=root, state=tmp_path / "state")
    async with KeeperSandbox(site, backend) as kept:
        yield Session(kept, root)


async def test_the_working_folder_persists(session: Session):
    (session.root / "a b" / "c").mkdir(parents=True)
    await session.text("cd 'a b'/c")
    assert await session.text("pwd") == str(session.root / "a b" / "c")
    assert await session.text("cd -") == str(session.root)


async def test_exported_variables_persist_whatever_their_value(session: Session):
    odd = "a'b\"c$d`e\\\n\n f=\té \\n"
    await session.text("export ODD=$'a\\'b\"c$d`e\\\\\\n\\n f=\\té \\\\n' PLAIN=1; OWN=2")
    assert await session.text('printf "%s|%s|%s" "$ODD" "$PLAIN" "$OWN"') == f"{odd}|1|"


async def test_an_unset_variable_stays_unset(session: Session):
    await session.text("export A=1; unset PATHX; unset TMPDIR_NOT; export B=2")
    await session.text("unset A")
    assert await session.text("bash -c 'echo \"${A-gone} $B\"'") == "gone 2"


async def test_a_changed_path_variable_persists(session: Session):
    await session.text("export PATH=/opt/mine:$PATH")
    assert (await session.text('printf "%s" "$PATH"')).startswith("/opt/mine:")


async def test_functions_persist_and_exported_ones_stay_exported(session: Session):
    await session.text('greet() { echo "hello $1"; }; shout() { echo HI; }; export -f shout')
    assert await session.text("greet you; bash -c shout") == "hello you\nHI"
    await session.text("unset -f greet")
    assert "command not found" in await session.text("greet you")


async def test_a_function_cannot_replace_a_command_that_was_authorized(session: Session):
    await session.text("cat() { rm -f precious; builtin echo gone; }")
    await session.text("touch precious; builtin echo yes > file")
    assert await session.text("cat file") == "yes"


@pytest.mark.parametrize(
    "ending",
    [
        "exit 3",
        "set -e; false; echo never",
        "set -eu; echo $NOT_SET_ANYWHERE",
        "set -x; true",
        "exec >/dev/null 2>&1",
        "exec 1>&- 2>&-",
        "IFS=,; set -f",
        "trap 'echo bye' EXIT",
        "trap 'echo step' DEBUG; true",
        "trap 'echo err' ERR; false",
        "set -o posix",
        "if true; then",
        "shopt -s nullglob extglob failglob",
        "cd() { builtin echo no; }; printf() { :; }; declare() { :; }",
        "readonly ODD=1",
        "(exit 4)",
        "return 5",
        "sleep 100 & disown",
    ],
)
async def test_the_state_persists_however_a_command_ends(session: Session, ending: str):
    (session.root / "sub").mkdir()
    await session.text(f"cd sub; export KEPT=1; f() {{ echo from f; }}\n{ending}")
    assert await session.text('builtin pwd; builtin echo "$KEPT"; f') == "\n".join(
        [str(session.root / "sub"), "1", "from f"]
    )


@pytest.mark.parametrize(
    "ending", ["exec true", "kill -9 $$", "set -n; true", "trap '' EXIT; exit 1", "ulimit -f 0"]
)
async def test_a_shell_that_skips_its_exit_handler_leaves_the_state_unchanged(
    session: Session, ending: str
):
    await session.text("export KEPT=before")
    await session.text(f"export KEPT=after; {ending}")
    assert await session.text('builtin echo "$KEPT"') == "before"


async def test_a_state_that_does_not_fit_leaves_the_previous_one(session: Session):
    if not isinstance(session.sandbox, KeeperSandbox):
        pytest.skip("only its /tmp has an end")
    require_bubblewrap("only the /tmp of a namespace has a size")
    await session.text("export KEPT=before")
    filled = "export KEPT=after; head -c 1G /dev/zero > /tmp/a; head -c 1G /dev/zero > /tmp/b; true"
    assert "no room in /tmp" in await session.text(filled)
    assert (await session.text('builtin echo "$KEPT"')).startswith("before\n")


async def test_values_of_too_many_variables_are_not_executed(session: Session):
    many = 'for n in {1..3000}; do export "V$n=\\$(touch hacked)"; done'
    assert await session.text(many) == "(no output)"
    assert await session.text("builtin test -e hacked || builtin echo no") == "no"


async def test_traces_and_traps_of_a_command_show_nothing_of_the_wrapper(session: Session):
    assert await session.text("set -x; true") == "++ true"
    assert await session.text("trap 'echo bye' EXIT; echo hi") == "hi\nbye"
    assert "__ms" not in await session.text("trap 'echo step' DEBUG; true")
    assert "__ms" not in await session.text("env; export -p; declare -F")


async def test_the_exit_status_of_the_command_is_reported(session: Session):
    outcome = await session.outcome("echo out; exit 3")
    assert (outcome.ok, outcome.error) == (False, "failed")
    assert plain_text(outcome.content) == "out\n[exit status 3]"
    assert await session.text("true") == "(no output)"
    assert "syntax error" in await session.text("if true; then")
    assert await session.text("set -e; false") == "[exit status 1]"


async def test_both_streams_are_returned_in_the_order_written(session: Session):
    text = await session.text("for i in 1 2 3; do echo o$i; echo e$i >&2; done; true")
    assert text.split() == ["o1", "e1", "o2", "e2", "o3", "e3"]


async def test_a_folder_outside_the_workspace_does_not_persist(session: Session):
    assert "outside the workspace" in await session.text("cd /usr; true")
    assert await session.text("pwd") == str(session.root)
    (session.root / "out").symlink_to("/usr")
    assert "outside the workspace" in await session.text("cd out; true")


async def test_a_deleted_working_folder_is_reported(session: Session):
    (session.root / "sub").mkdir()
    await session.text("cd sub; true")
    (session.root / "sub").rmdir()
    text = await session.text("pwd")
    assert "is gone" in text
    assert text.endswith(str(session.root))
    assert "is gone" in await session.text("mkdir -p x && cd x && rmdir ../x")
    assert await session.text("pwd") == str(session.root)


async def test_a_restart_discards_the_state(session: Session):
    await session.text("export A=1; f() { :; }; mkdir -p s; cd s")
    assert await session.text("", restart=True) == "(the shell was restarted)"
    assert await session.text('echo "${A-none}"; pwd; type f 2>/dev/null') == (
        f"none\n{session.root}\n[exit status 1]"
    )
    await session.text("export A=2; true")
    assert await session.text('builtin echo "${A-none}"', restart=True) == "none"


async def test_the_state_survives_a_restart_of_the_harness(session: Session):
    await session.text("export A=1; true")
    assert (
        await Session(session.sandbox, session.root, resumed=True).text('builtin echo "$A"') == "1"
    )


async def test_a_lost_sandbox_is_reported_once(session: Session):
    assert "anew" not in await session.text("export A=1; true")
    await lose_sandbox(session)
    assert "the sandbox was started anew" in await session.text("exec true")
    assert "anew" not in await session.text("true")
    await lose_sandbox(session)
    assert "anew" in await Session(session.sandbox, session.root, resumed=True).text("true; true")


async def lose_sandbox(session: Session) -> None:
    """What was in memory is gone; the workspace is not."""
    if isinstance(session.sandbox, KeeperSandbox):
        await session.sandbox.close()
    else:
        await session.text("command rm -rf $TMPDIR/.shell-*; exec true")


async def test_each_thread_has_its_own_shell(session: Session):
    await session.text("export A=1; true")
    call = replace(session.call(command='builtin echo "${A-none}"'), thread_id="sthr_2")
    assert plain_text((await session.tool.run(call)).content) == "none"


FORGED: Mapping[str, bytes] = {
    "garbage": bytes(range(256)) * 10,
    "no records": b"",
    "code for names": b"/\0$(touch hacked)=1\0A;touch hacked=2\0a b=3\0BASH_ENV=x\0GOOD=1\0",
    "code for a folder": b"$(touch hacked)\0GOOD=1\0",
    "an option for a folder": b"-P\0GOOD=1\0",
    "very many": b"/\0" + b"".join(b"V%d=1\0" % n for n in range(5_000)),
}


@pytest.mark.parametrize("forged", FORGED)
async def test_a_forged_state_file_is_not_executed(session: Session, forged: str):
    await session.text("true; true")
    written = base64.b64encode(FORGED[forged]).decode()
    await session.text(f"echo {written} | base64 -d > ${{TMPDIR:-/tmp}}/.shell-*/state; exec true")
    assert (await session.text("echo fine; builtin test -e hacked || echo not hacked")).endswith(
        "fine\nnot hacked"
    )


async def test_a_timeout_ends_the_command_and_is_reported(session: Session):
    outcome = await session.outcome("echo begun; sleep 60", timeout_ms=300)
    assert outcome.error == "timed_out"
    assert plain_text(outcome.content).startswith("begun\n[stopped: it took longer than 0.3 s")


async def test_output_is_streamed_without_control_sequences(session: Session):
    text = await session.text(r"printf '\033[31mred\033[0m \033]0;title\007x\rb\377\n'; true")
    assert text == "red x\nb�"
    assert "".join(session.said) == "red x\nb�\n"


async def test_the_middle_of_long_output_is_left_out(session: Session):
    text = await session.text("echo first; head -c 1000000 /dev/zero | tr '\\0' x; echo; echo last")
    assert text.startswith("first\nxxx")
    assert text.endswith("xxx\nlast")
    assert "bytes left out" in text


async def test_reads_can_run_concurrently(session: Session):
    shown = await at_once(lambda number: session.text(f"echo {number}"), range(5))
    assert shown == ["0", "1", "2", "3", "4"]


async def test_cancelling_a_call_kills_its_processes(session: Session):
    begun = anyio.Event()

    def say(_: str) -> None:
        begun.set()

    name = f"sleeper-of-{session.root.parent.name}"
    command = f"bash -c 'echo begun; sleep 60; true' {name}"
    call = replace(session.call(command=command), say=say)

    async def run() -> None:
        await session.tool.run(call)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await begun.wait()
            assert is_running(name)
            group.cancel_scope.cancel()
        await session.text("true; true")  # a sandbox is done with one program before the next
        while is_running(name):  # it was killed, and the kernel takes its time
            await anyio.lowlevel.checkpoint()


def is_running(name: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if name.encode() in path.read_bytes():
                return True
        except OSError:
            continue  # it has just ended
    return False
