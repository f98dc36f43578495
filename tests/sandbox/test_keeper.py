import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.at_once import at_once
from tests.fifos import read_fifo, release_fifo
from tests.sandbox.conftest import sh

from mainspring.capabilities.sandbox.backend import (
    PACKAGE_ROOT,
    Backend,
    SandboxSpec,
    module_command,
)
from mainspring.capabilities.sandbox.keeper_process.execution_records import ExecutionRecords
from mainspring.capabilities.sandbox.keeper_process.keeper_connection import start_keeper
from mainspring.capabilities.sandbox.sandbox_client import KeeperSandbox, SandboxServices
from mainspring.core.errors import SandboxFailed
from mainspring.core.ports import ExecRequest, ExecResult

ROOT = Path(__file__).parents[2]
HARNESS = """
import anyio, sys
from pathlib import Path
from tests.abilities import require_sandbox
from mainspring.capabilities.sandbox.backend import SandboxSpec
from mainspring.capabilities.sandbox.sandbox_client import KeeperSandbox
from mainspring.core.ports import ExecRequest

async def main(workspace, state, script):
    spec = SandboxSpec(session_id="test", workspace=Path(workspace), state=Path(state))
    sandbox = KeeperSandbox(spec, require_sandbox())
    await sandbox.run(ExecRequest(key="effect", argv=("sh", "-c", script)))

anyio.run(main, *sys.argv[1:])
"""
ONCE = "echo done >> effects; echo out; echo begun > begun; cat $PWD/gate > /dev/null; echo after"


def processes(*holding: str) -> list[int]:
    """Those whose command line has all of this in it."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().decode("utf-8", "replace")
        except (OSError, ValueError):
            continue
        if entry.name.isdecimal() and all(part in line for part in holding):
            found.append(int(entry.name))
    return found


def keeper_of(site: SandboxSpec) -> int:
    """The process whose errors go to the log of this site."""
    log = str(site.state / "keeper.log")
    return min(pid for pid in processes("keeper_process.keeper") if errors_of(pid) == log)


def errors_of(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/fd/2")
    except OSError:
        return None


def parent_of(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def launcher_of(site: SandboxSpec) -> int:
    keeper = keeper_of(site)
    return min(pid for pid in processes() if parent_of(pid) == keeper)


def make_barrier(site: SandboxSpec) -> None:
    for name in ("begun", "gate"):
        os.mkfifo(site.workspace / name)


async def wait_until_passed(site: SandboxSpec, name: str) -> None:
    """When a program has written to this fifo."""
    await read_fifo(site.workspace / name)


async def open_barrier(site: SandboxSpec) -> None:
    """Let the program go on that reads the gate."""
    await release_fifo(site.workspace / "gate")


async def wait_until(is_gone: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not is_gone():  # noqa: ASYNC110 -- of other processes there is no event
            await anyio.sleep(0.01)


@pytest.mark.usefixtures("bubblewrap")
async def test_leftover_processes_are_killed(sandbox: KeeperSandbox, site: SandboxSpec):
    left = (
        "sleep 8642 & (setsid sh -c 'setsid sleep 8642 &' &) ; nohup sleep 8642 >/dev/null 2>&1 &"
    )
    ran = await sh(sandbox, left)
    assert (ran.status, ran.stop_cause) == (0, None)
    assert not [pid for pid in processes("sleep", "8642") if is_ours(pid, site)]
    assert len((await sh(sandbox, "exec ps ax -o pid=")).stdout.head.split()) == 2  # agent, ps


def is_ours(pid: int, site: SandboxSpec) -> bool:
    return os.path.realpath(f"/proc/{pid}/cwd").startswith(str(site.workspace))


async def test_the_same_key_never_runs_twice(sandbox: KeeperSandbox, site: SandboxSpec):
    wanted = ExecRequest(key="k", argv=("sh", "-c", "echo x >> effects; echo said"))
    first, again = await sandbox.run(wanted), await sandbox.run(wanted)
    assert first == again == await sandbox.find_result("k")
    assert (site.workspace / "effects").read_text() == "x\n"
    await sandbox.forget("k")
    assert await sandbox.find_result("k") is None


async def test_a_second_request_for_a_running_program_joins_it(
    sandbox: KeeperSandbox, site: SandboxSpec
):
    make_barrier(site)
    wanted = ExecRequest(key="k", argv=("sh", "-c", ONCE))
    statuses: list[tuple[int, bytes]] = []

    async def run():
        ran = await sandbox.run(wanted)
        statuses.append((ran.status, ran.stdout.head))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await wait_until_passed(site, "begun")
            group.start_soon(run)
            await anyio.lowlevel.checkpoint()
            await open_barrier(site)
    assert statuses == [(0, b"out\nafter\n")] * 2
    assert (site.workspace / "effects").read_text() == "done\n"


async def test_concurrent_requests_run_one_after_the_other(sandbox: KeeperSandbox):
    await at_once(lambda _: sh(sandbox, "mkdir taken && rmdir taken || touch overlapped"), range(4))
    assert (await sh(sandbox, "ls")).stdout.head == b""


async def test_output_is_streamed_while_the_program_runs(sandbox: KeeperSandbox, site: SandboxSpec):
    make_barrier(site)
    heard: list[bytes] = []
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            wanted = ExecRequest(key="k", argv=("sh", "-c", ONCE))
            group.start_soon(sandbox.run, wanted, heard.append)
            await wait_until_passed(site, "begun")
            await wait_until(lambda: b"".join(heard) == b"out\n")
            await open_barrier(site)
    assert b"".join(heard) == b"out\nafter\n"


async def test_cancelling_kills_the_program_and_is_recorded(
    sandbox: KeeperSandbox, site: SandboxSpec
):
    make_barrier(site)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(sandbox.run, ExecRequest(key="k", argv=("sh", "-c", ONCE)))
            await wait_until_passed(site, "begun")
            group.cancel_scope.cancel()
    ran = await sandbox.find_result("k")
    assert ran is not None
    assert (ran.status, ran.stop_cause, ran.stdout.head) == (137, "cancelled", b"out\n")
    assert (await sh(sandbox, "echo next")).stdout.head == b"next\n"


async def test_a_killed_harness_repeats_no_program(site: SandboxSpec, backend: Backend):
    make_barrier(site)
    place = [str(site.workspace), str(site.state)]
    harness = subprocess.Popen([sys.executable, "-c", HARNESS, *place, ONCE], cwd=ROOT)
    await wait_until_passed(site, "begun")
    harness.kill()
    harness.wait()
    sandbox = KeeperSandbox(site, backend)
    collected: list[ExecResult | None] = []

    async def collect():
        collected.append(await sandbox.find_result("effect"))
        collected.append(await sandbox.run(ExecRequest(key="effect", argv=("sh", "-c", ONCE))))
        await sandbox.close()
        collected.append(await sandbox.find_result("effect"))  # from its files alone

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(collect)
            await open_barrier(site)
    found = collected[0]
    assert found is not None
    assert (found.status, found.stop_cause, found.stdout.head) == (0, None, b"out\nafter\n")
    assert collected == [found] * 3
    assert (site.workspace / "effects").read_text() == "done\n"


async def test_a_program_is_lost_with_its_keeper(sandbox: KeeperSandbox, site: SandboxSpec):
    make_barrier(site)
    wanted = ExecRequest(key="k", argv=("sh", "-c", ONCE))

    async def run():
        assert (await sandbox.run(wanted)).stop_cause == "lost"

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await wait_until_passed(site, "begun")
            os.kill(keeper_of(site), signal.SIGKILL)
        assert (await sandbox.run(wanted)).stop_cause == "lost"
        found = await sandbox.find_result("k")
        await wait_until(lambda: not processes("cat", f"{site.workspace}/gate"))
    assert found is not None
    assert found.stop_cause == "lost"
    assert (site.workspace / "effects").read_text() == "done\n"
    assert (await sh(sandbox, "echo next")).stdout.head == b"next\n"


async def test_a_lost_sandbox_is_replaced(sandbox: KeeperSandbox, site: SandboxSpec):
    make_barrier(site)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:

            async def run():
                ran = await sandbox.run(ExecRequest(key="k", argv=("sh", "-c", ONCE)))
                assert (ran.stop_cause, ran.stdout.head) == ("lost", b"out\n")

            group.start_soon(run)
            await wait_until_passed(site, "begun")
            os.kill(launcher_of(site), signal.SIGKILL)
    assert (await sh(sandbox, "echo next")).stdout.head == b"next\n"


async def test_after_a_reboot_results_are_lost(sandbox: KeeperSandbox, site: SandboxSpec):
    await sh(sandbox, "true")
    assert await sandbox.find_result("never") is None
    (site.state / "boot").write_text("another boot")
    found = await sandbox.find_result("never")
    assert found is not None
    assert found.stop_cause == "lost"


def test_execution_records_survive_compaction(tmp_path: Path):
    written, read = ExecutionRecords(str(tmp_path)), ExecutionRecords(str(tmp_path))
    written.make()
    for number in range(9000):
        written.mark_started(f"{number:064}")
        if number % 100:
            written.drop(f"{number:064}")
    with (tmp_path / "starts").open("ab") as starts:
        starts.write(b"\n+half a li")  # the disk was full
    size = (tmp_path / "starts").stat().st_size
    ExecutionRecords(str(tmp_path)).tidy()
    assert (tmp_path / "starts").stat().st_size < size / 50
    written.mark_started("last")
    for number in range(0, 9000, 50):
        assert read.was_started(f"{number:064}") == (number % 100 == 0)
    assert read.was_started("last")


async def test_there_is_only_one_keeper_per_sandbox(
    sandbox: KeeperSandbox, site: SandboxSpec, backend: Backend
):
    await sh(sandbox, "touch $TMPDIR/mark")
    start_keeper(site, backend.launch(site), linger_seconds=30)
    other = KeeperSandbox(site, backend)
    assert (await sh(other, "ls $TMPDIR/mark")).status == 0
    await other.leave()


def test_a_keeper_that_cannot_start_leaves_no_open_files(site: SandboxSpec, backend: Backend):
    (site.state / "keeper.log").mkdir(parents=True)
    launch = backend.launch(site)
    open_before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(IsADirectoryError):
        start_keeper(site, launch, linger_seconds=30)
    assert len(os.listdir("/proc/self/fd")) == open_before


async def test_an_unused_keeper_lingers_and_exits(site: SandboxSpec, backend: Backend):
    brief = KeeperSandbox(site, backend, linger_seconds=0.1)
    await sh(brief, "true")
    keeper = keeper_of(site)
    await brief.leave()
    await wait_until(lambda: not Path(f"/proc/{keeper}").exists())
    async with KeeperSandbox(site, backend) as next_one:
        assert (await sh(next_one, "echo again")).stdout.head == b"again\n"


async def test_closing_ends_all_programs(site: SandboxSpec, backend: Backend):
    sandbox = KeeperSandbox(site, backend)
    await sandbox.begin(ExecRequest(key="k", argv=("sleep", "8644")))
    await sandbox.close()
    assert not processes("sleep", "8644")
    ran = await sandbox.find_result("k")
    assert ran is not None
    assert ran.stop_cause == "cancelled"


async def test_the_keeper_answers_at_a_path_of_any_length(site: SandboxSpec, backend: Backend):
    far = replace(site, state=site.state / ("long" * 30) / "folder")
    async with KeeperSandbox(far, backend) as sandbox:
        assert (await sh(sandbox, "true")).status == 0
    assert oct(far.state.stat().st_mode)[-3:] == "700"


async def test_a_command_with_a_nul_byte_is_refused(sandbox: KeeperSandbox):
    with pytest.raises(SandboxFailed, match="NUL"):
        await sandbox.run(ExecRequest(key="k", argv=("echo", "a\0b")))


async def test_a_service_runs_until_it_is_stopped(site: SandboxSpec, backend: Backend):
    make_barrier(site)
    services = SandboxServices(site, backend)
    wanted = ExecRequest(key="s", argv=("sh", "-c", ONCE), wall_seconds=600)
    with anyio.fail_after(60):
        await services.start("web", wanted)
        await wait_until_passed(site, "begun")
        await services.start("web", wanted)  # a second attempt at the same call
        running = await services.output("web")
        with pytest.raises(SandboxFailed, match="already"):
            await services.start("web", replace(wanted, key="another"))
        async with KeeperSandbox(site, backend) as sandbox:
            assert (await sh(sandbox, "echo meanwhile")).stdout.head == b"meanwhile\n"
        stopped = await SandboxServices(site, backend).stop("web")  # by a harness that came later
        assert await services.output("web") is None
    assert running is not None
    assert running.is_running
    assert running.result.stdout.head == b"out\n"
    assert stopped is not None
    assert stopped.stop_cause == "cancelled"
    assert (site.workspace / "effects").read_text() == "done\n"


async def test_services_are_limited_and_end_with_the_session(site: SandboxSpec, backend: Backend):
    services = SandboxServices(site, backend)
    with anyio.fail_after(60):
        for number in range(4):
            wanted = ExecRequest(key=str(number), argv=("sleep", "8645"))
            await services.start(f"service {number}", wanted)
        with pytest.raises(SandboxFailed, match="at most 4"):
            await services.start("fifth", ExecRequest(key="5", argv=("sleep", "8645")))
        await services.close()
    assert not processes("sleep", "8645")


def test_the_keeper_and_the_agent_import_no_slow_modules():
    look = "; print(*sys.modules)"
    arguments = module_command("keeper_process.keeper")
    flags, (code, *rest) = arguments[:3], arguments[3:]
    keeper = subprocess.run(
        [sys.executable, *flags, code.partition("; main(")[0] + look, *rest],
        capture_output=True,
        text=True,
        check=True,
    )
    agent = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            "import sys; sys.path[:0] = sys.argv[1:]; import agent" + look,
            str(PACKAGE_ROOT / "capabilities" / "sandbox" / "backends"),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    slow = {"asyncio", "dataclasses", "enum", "json", "re", "selectors", "socket", "typing"}
    assert not slow & {*keeper.stdout.split(), *agent.stdout.split()}
