"""bash: what lasts between commands, and what a model is told of each."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.tools.open_sandbox import OpenSandbox

from mainspring.capabilities.tools.shell import bash
from mainspring.core.content import plain_text
from mainspring.core.tool import Call, Outcome, Tool


def judge(command: str) -> tuple[bool, bool]:
    first = command.split(maxsplit=1)[0]
    return first in ("ls", "cat", "echo", "cd", "pwd", "grep"), first == "rm"


class Session:
    """One session's bash, called as the harness calls it."""

    def __init__(self, sandbox: OpenSandbox, *, resumed: bool = False) -> None:
        self.sandbox = sandbox
        self.tool: Tool = bash(sandbox, judge=judge, default_seconds=20, resumed=resumed)
        self.said: list[str] = []
        self.count = len(sandbox.asked)

    def call(self, **given: object) -> Call:
        self.count += 1
        return Call(
            id=f"call_{self.count}",
            name="bash",
            input=given,
            idempotency_key=f"key_{self.count}",
            session_id="sesn_1",
            thread_id="sthr_1",
            say=self.said.append,
        )

    async def outcome(self, command: str, **given: object) -> Outcome:
        with anyio.fail_after(30):
            return await self.tool.run(self.call(command=command, **given))

    async def text(self, command: str, **given: object) -> str:
        return plain_text((await self.outcome(command, **given)).content)


@pytest.fixture
def sandbox(tmp_path: Path) -> OpenSandbox:
    return OpenSandbox(tmp_path)


@pytest.fixture
def session(sandbox: OpenSandbox) -> Session:
    return Session(sandbox)


async def test_the_folder_lasts(session: Session, sandbox: OpenSandbox):
    (sandbox.root / "a b" / "c").mkdir(parents=True)
    await session.text("cd 'a b'/c")
    assert await session.text("pwd") == str(sandbox.root / "a b" / "c")
    assert await session.text("cd -") == str(sandbox.root)


async def test_exported_variables_last_whatever_is_in_them(session: Session):
    odd = "a'b\"c$d`e\\\n\n f=\té \\n"
    await session.text("export ODD=$'a\\'b\"c$d`e\\\\\\n\\n f=\\té \\\\n' PLAIN=1; OWN=2")
    assert await session.text('printf "%s|%s|%s" "$ODD" "$PLAIN" "$OWN"') == f"{odd}|1|"


async def test_an_unset_variable_stays_unset(session: Session):
    await session.text("export A=1; unset PATHX; unset TMPDIR_NOT; export B=2")
    await session.text("unset A")
    assert await session.text("bash -c 'echo \"${A-gone} $B\"'") == "gone 2"


async def test_what_the_sandbox_gives_is_not_frozen_but_what_was_changed_stays(session: Session):
    await session.text("export PATH=/opt/mine:$PATH")
    assert (await session.text('printf "%s" "$PATH"')).startswith("/opt/mine:")


async def test_functions_last_and_exported_ones_stay_exported(session: Session):
    await session.text('greet() { echo "hello $1"; }; shout() { echo HI; }; export -f shout')
    assert await session.text("greet you; bash -c shout") == "hello you\nHI"
    await session.text("unset -f greet")
    assert "command not found" in await session.text("greet you")


async def test_a_command_judged_by_its_words_means_what_they_say(session: Session):
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
async def test_the_state_lasts_however_a_command_ends(session: Session, ending: str):
    (session.sandbox.root / "sub").mkdir()
    await session.text(f"cd sub; export KEPT=1; f() {{ echo from f; }}\n{ending}")
    assert await session.text('builtin pwd; builtin echo "$KEPT"; f') == "\n".join(
        [str(session.sandbox.root / "sub"), "1", "from f"]
    )


@pytest.mark.parametrize(
    "ending", ["exec true", "kill -9 $$", "set -n; true", "trap '' EXIT; exit 1", "ulimit -f 0"]
)
async def test_a_shell_that_ends_without_telling_leaves_the_state_as_it_was(
    session: Session, ending: str
):
    await session.text("export KEPT=before")
    await session.text(f"export KEPT=after; {ending}")
    assert await session.text('builtin echo "$KEPT"') == "before"


async def test_what_a_command_traces_or_traps_shows_nothing_of_ours(session: Session):
    assert await session.text("set -x; true") == "++ true"
    assert await session.text("trap 'echo bye' EXIT; echo hi") == "hi\nbye"
    assert "__ms" not in await session.text("trap 'echo step' DEBUG; true")
    assert "__ms" not in await session.text("env; export -p; declare -F")


async def test_the_status_of_the_command_is_told(session: Session):
    outcome = await session.outcome("echo out; exit 3")
    assert (outcome.ok, outcome.error) == (False, "failed")
    assert plain_text(outcome.content) == "out\n[exit status 3]"
    assert await session.text("true") == "(no output)"
    assert "syntax error" in await session.text("if true; then")
    assert await session.text("set -e; false") == "[exit status 1]"


async def test_both_streams_come_back_in_the_order_they_were_written(session: Session):
    text = await session.text("for i in 1 2 3; do echo o$i; echo e$i >&2; done; true")
    assert text.split() == ["o1", "e1", "o2", "e2", "o3", "e3"]


async def test_a_folder_outside_the_workspace_is_not_kept(session: Session, sandbox: OpenSandbox):
    assert "outside the workspace" in await session.text("cd /usr; true")
    assert await session.text("pwd") == str(sandbox.root)
    (sandbox.root / "out").symlink_to("/usr")
    assert "outside the workspace" in await session.text("cd out; true")


async def test_a_folder_that_is_gone_is_told(session: Session, sandbox: OpenSandbox):
    (sandbox.root / "sub").mkdir()
    await session.text("cd sub; true")
    (sandbox.root / "sub").rmdir()
    text = await session.text("pwd")
    assert "is gone" in text
    assert text.endswith(str(sandbox.root))
    assert "is gone" in await session.text("mkdir -p x && cd x && rmdir ../x")
    assert await session.text("pwd") == str(sandbox.root)


async def test_a_restart_forgets_everything(session: Session, sandbox: OpenSandbox):
    await session.text("export A=1; f() { :; }; mkdir -p s; cd s")
    assert await session.text("", restart=True) == "(the shell was started anew)"
    assert await session.text('echo "${A-none}"; pwd; type f 2>/dev/null') == (
        f"none\n{sandbox.root}\n[exit status 1]"
    )
    await session.text("export A=2; true")
    assert await session.text('builtin echo "${A-none}"', restart=True) == "none"


async def test_the_state_outlives_the_harness(session: Session, sandbox: OpenSandbox):
    await session.text("export A=1; true")
    assert await Session(sandbox, resumed=True).text('builtin echo "$A"') == "1"


async def test_a_lost_sandbox_is_told_once(session: Session, sandbox: OpenSandbox):
    assert "anew" not in await session.text("export A=1; true")
    await anyio.to_thread.run_sync(_wipe, sandbox.tmp)
    assert "the sandbox was started anew" in await session.text("exec true")
    assert "anew" not in await session.text("true")
    await anyio.to_thread.run_sync(_wipe, sandbox.tmp)
    assert "anew" in await Session(sandbox, resumed=True).text("true; true")


def _wipe(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


async def test_threads_have_shells_of_their_own(session: Session):
    await session.text("export A=1; true")
    call = replace(session.call(command='builtin echo "${A-none}"'), thread_id="sthr_2")
    other = await session.tool.run(call)
    assert plain_text(other.content) == "none"


FORGED: Mapping[str, bytes] = {
    "garbage": bytes(range(256)) * 10,
    "no records": b"",
    "code for names": b"/\0$(touch hacked)=1\0A;touch hacked=2\0a b=3\0BASH_ENV=x\0GOOD=1\0",
    "code for a folder": b"$(touch hacked)\0GOOD=1\0",
    "an option for a folder": b"-P\0GOOD=1\0",
    "very many": b"/\0" + b"".join(b"V%d=1\0" % n for n in range(20_000)),
}


@pytest.mark.parametrize("forged", FORGED)
async def test_a_forged_environment_is_only_data(
    session: Session, sandbox: OpenSandbox, forged: str
):
    await session.text("true; true")
    (state,) = sandbox.tmp.glob(".shell-*/state")
    state.write_bytes(FORGED[forged])
    assert (await session.text("echo fine; builtin test -e hacked || echo not hacked")).endswith(
        "fine\nnot hacked"
    )


async def test_time_limits_are_kept_and_told(session: Session):
    outcome = await session.outcome("echo begun; sleep 60", timeout_ms=300)
    assert outcome.error == "timed_out"
    assert plain_text(outcome.content).startswith("begun\n[stopped: it took longer than 0.3 s")


async def test_output_is_shown_while_it_comes_and_control_sequences_are_left_out(session: Session):
    text = await session.text(r"printf '\033[31mred\033[0m \033]0;title\007x\rb\377\n'; true")
    assert text == "red x\nb�"
    assert "".join(session.said) == "red x\nb�\n"


async def test_the_middle_of_much_output_is_left_out(session: Session):
    text = await session.text("echo first; head -c 1000000 /dev/zero | tr '\\0' x; echo; echo last")
    assert text.startswith("first\nxxx")
    assert text.endswith("xxx\nlast")
    assert "bytes left out" in text


async def test_no_sandbox_is_no_crash(session: Session, sandbox: OpenSandbox):
    sandbox.is_broken = True
    outcome = await session.outcome("true")
    assert outcome.error == "unavailable"
    assert "no sandbox works here" in plain_text(outcome.content)


async def test_a_finished_command_is_collected_and_never_run_again(
    session: Session, sandbox: OpenSandbox
):
    call = session.call(command="builtin echo x >> log; builtin echo done")
    await session.tool.run(call)
    probe = Session(sandbox).tool.probe
    assert probe is not None
    found = await probe(call)
    assert found is not None
    assert plain_text(found.content) == "done"
    assert await probe(session.call(command="touch never")) is None
    sandbox.lose("key_9")
    lost = await probe(replace(call, idempotency_key="key_9"))
    assert lost is not None
    assert lost.error == "in_doubt"
    assert (sandbox.root / "log").read_text() == "x\n"


async def test_a_lost_read_is_done_again(session: Session, sandbox: OpenSandbox):
    call = session.call(command="echo again")
    sandbox.lose(call.idempotency_key)
    assert plain_text((await session.tool.run(call)).content) == "again"


async def test_results_are_forgotten_when_the_next_command_that_writes_starts(
    session: Session, sandbox: OpenSandbox
):
    await session.text("touch a")
    await session.text("echo text")
    assert sandbox.forgotten == []
    await session.text("touch b")
    assert sorted(sandbox.forgotten) == ["key_1", "key_2"]
    assert list(sandbox.ran) == ["key_3"]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("ls -la src", (True, True, "retry")),
        ("cd src", (True, False, "probe")),
        ("echo a; export B=1", (True, False, "probe")),
        ("echo a; . ./env", (True, False, "probe")),
        ("echo a; PATH=x", (True, False, "probe")),
        ("echo a; ls() { :; }", (True, False, "probe")),
        ("touch x", (False, False, "probe")),
    ],
)
def test_only_a_read_that_cannot_change_the_shell_runs_beside_others(
    session: Session, command: str, expected: tuple[bool, bool, str]
):
    traits = session.tool.traits({"command": command})
    assert (traits.read_only, traits.concurrent, traits.in_doubt) == expected
    assert traits.cascades is not traits.concurrent


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({}, "command"),
        ({"command": "  "}, "command"),
        ({"command": "a\0b"}, "NUL"),
        ({"command": "x" * 200_000}, "bytes"),
        ({"command": "ls", "timeout_ms": 10_000_000}, "timeout_ms"),
        ({"command": "ls", "timeout_ms": -1}, "timeout_ms"),
        ({"command": 3}, "command"),
        ({"command": "ls", "cwd": "/"}, "cwd"),
    ],
)
def test_a_wrong_input_is_explained(session: Session, given: dict[str, object], word: str):
    assert word in (session.tool.invalid(given) or "")


async def test_the_preview_is_the_command(session: Session):
    assert session.tool.preview is not None
    assert await session.tool.preview(session.call(command="rm -rf x")) == "rm -rf x"


async def test_cancelling_a_call_ends_what_it_runs(session: Session, sandbox: OpenSandbox):
    begun = anyio.Event()

    def say(_: str) -> None:
        begun.set()

    call = replace(session.call(command="echo $$ > pid; echo begun; sleep 60"), say=say)

    async def run() -> None:
        await session.tool.run(call)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await begun.wait()
            group.cancel_scope.cancel()
    pid = int((sandbox.root / "pid").read_text())
    assert not Path(f"/proc/{pid}").exists()
