"""Landlock with a uid of its own: ordinary work goes on, and nothing is left when it is over."""

import os
import shutil
import stat
import sys
from collections.abc import AsyncGenerator, Generator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.sandbox.attacks.attack_targets import fresh_root
from tests.written_files import write_file

from mainspring.capabilities.sandbox.backend import SandboxSpec
from mainspring.capabilities.sandbox.backends.landlock import Landlock
from mainspring.capabilities.sandbox.backends.landlock_rules import ENOUGH_ABI, landlock_abi
from mainspring.capabilities.sandbox.backends.session_uids import session_uid
from mainspring.capabilities.sandbox.sandbox_client import KeeperSandbox
from mainspring.capabilities.workspace.folder_workspace import FolderWorkspace
from mainspring.core.errors import SandboxFailed
from mainspring.core.ports import ExecRequest, ExecResult

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or landlock_abi() < ENOUGH_ABI,
    reason="no Landlock of ABI 6 here: it takes Linux 6.12",
)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a uid of its own")


@pytest.fixture
def site() -> Generator[SandboxSpec]:
    root = fresh_root()  # pytest's own folders let nobody else pass
    root.chmod(0o755)
    workspace = root / "work"
    (workspace / ".git/hooks").mkdir(parents=True)
    write_file(workspace / ".mainspring/secret", "hidden")
    (workspace / "notes.txt").write_text("notes\n")
    yield SandboxSpec(session_id="session", workspace=workspace, state=root / "state")
    shutil.rmtree(root)


@pytest.fixture
async def sandbox(site: SandboxSpec) -> AsyncGenerator[KeeperSandbox]:
    hidden = SandboxSpec(
        session_id=site.session_id,
        workspace=site.workspace,
        state=site.state,
        hidden=(site.workspace / ".mainspring",),
        protected=(site.workspace / ".git/hooks",),
    )
    async with KeeperSandbox(hidden, Landlock(owns_uid=True)) as opened:
        yield opened


async def bash(sandbox: KeeperSandbox, command: str) -> ExecResult:
    return await sandbox.run(
        ExecRequest(key=command, argv=("bash", "-c", command), wall_seconds=30)
    )


@needs_root
async def test_ordinary_work_runs_with_the_uid_of_the_session(
    sandbox: KeeperSandbox, site: SandboxSpec
):
    ran = await bash(
        sandbox,
        "echo more >> notes.txt; mkdir -p a/b; echo x > a/b/c; mv a/b/c d; cat notes.txt;"
        " seq 3 | sort -r | tr '\\n' ' '; python3 -c 'print(6 * 7)'; mktemp >/dev/null && id -u",
    )
    assert ran.stdout.head.decode() == f"notes\nmore\n3 2 1 42\n{session_uid('session')}\n", ran
    assert (site.workspace / "d").read_text() == "x\n"


@needs_root
async def test_a_hidden_folder_stays_and_stays_hidden(sandbox: KeeperSandbox, site: SandboxSpec):
    await bash(sandbox, "mv .mainspring x; rm -rf .mainspring; chmod 777 .mainspring; true")
    assert b"hidden" not in (await bash(sandbox, "cat .mainspring/secret x/secret")).stdout.head
    assert (site.workspace / ".mainspring/secret").read_text() == "hidden"
    assert (site.workspace / ".mainspring").stat().st_mode & 0o777 == 0o700


@needs_root
async def test_a_file_hard_linked_into_the_workspace_is_not_lent(
    sandbox: KeeperSandbox, site: SandboxSpec
):
    outside = site.workspace.parent / "outside.txt"
    outside.write_text("as it was\n")
    os.link(outside, site.workspace / "linked.txt")
    await bash(sandbox, "echo changed > linked.txt")
    assert outside.read_text() == "as it was\n"
    assert outside.stat().st_uid == os.geteuid()


@needs_root
async def test_the_temporary_folder_is_removed_with_the_sandbox(site: SandboxSpec):
    backend = Landlock(owns_uid=True)
    async with KeeperSandbox(site, backend) as sandbox:
        ran = await bash(sandbox, "mktemp -d; echo $TMPDIR")
        tmp = Path(ran.stdout.head.decode().splitlines()[-1])
        assert tmp.is_dir()
    with anyio.fail_after(60):
        while tmp.exists():  # noqa: ASYNC110 -- whoever tidies up is another process
            await anyio.sleep(0.02)


@needs_root
async def test_a_workspace_below_private_folders_can_be_entered_and_nothing_else(
    site: SandboxSpec,
):
    private = site.workspace.parent / "home"
    work = private / "deep/work"
    work.mkdir(parents=True)
    write_file(private / "secret.txt", "world-readable, in a private folder")
    write_file(private / "toolchain/lib/module.txt", "a library")
    for folder in (private / "toolchain", private / "deep", private):
        folder.chmod(0o700)
    site = replace(site, workspace=work, read_only=(private / "toolchain",))
    async with KeeperSandbox(site, Landlock(owns_uid=True)) as sandbox:
        ran = await bash(sandbox, f"cd {work} && echo x > made && cat {private}/toolchain/lib/*")
        assert ran.stdout.head == b"a library", ran
        for attempt in (
            "ls {}",
            "cat {}/secret.txt",
            "touch {}/new",
            "ls {}/deep",
            "rm -r {}/deep",
        ):
            assert (await bash(sandbox, attempt.format(private))).status != 0, attempt
    assert (work / "made").read_text() == "x\n"
    modes = [folder.stat().st_mode & 0o767 for folder in (private, private / "deep")]
    assert modes == [0o700, 0o700], "only the mask of the list shows among the group's bits"
    assert os.stat(private / "secret.txt").st_mode & 0o777 == 0o644


@needs_root
async def test_files_that_the_tools_create_later_belong_to_the_session(site: SandboxSpec):
    work = site.workspace
    guarded = replace(site, protected=(work / ".git/hooks", work / ".mcp.json"))
    write_file(work / ".mcp.json", "{}")
    tools = FolderWorkspace(work)
    async with KeeperSandbox(guarded, Landlock(owns_uid=True)) as sandbox:
        assert (await bash(sandbox, "echo x > mine; ls")).status == 0
        await tools.write("out/deep/draft.md", b"draft\n")
        await tools.write("top.md", b"top\n")
        await tools.write("mine", b"of the tool\n")
        await tools.write(".mcp.json", b'{"mcpServers": {}}')
        ran = await bash(
            sandbox,
            "echo more >> out/deep/draft.md && echo more >> top.md && echo more >> mine"
            " && touch out/report.md && mv out other && rm top.md",
        )
        assert ran.status == 0, ran
        ran = await bash(sandbox, "echo stolen > .mcp.json; rm -f .mcp.json; mv .mcp.json x")
    assert (work / "other/deep/draft.md").read_text() == "draft\nmore\n"
    assert (work / ".mcp.json").read_text() == '{"mcpServers": {}}'
    assert (work / ".mcp.json").stat().st_uid == os.geteuid()


def test_a_network_is_refused_with_a_reason(site: SandboxSpec):
    wanted = SandboxSpec(
        session_id="session", workspace=site.workspace, state=site.state, network=True
    )
    with pytest.raises(SandboxFailed, match="turn the network off"):
        Landlock(owns_uid=True).launch(wanted)


@needs_root
def test_without_its_own_uid_landlock_never_runs_as_root(site: SandboxSpec):
    with pytest.raises(SandboxFailed, match="must not run as root"):
        Landlock(owns_uid=False).launch(site)


@needs_root
async def test_links_do_not_extend_lending_or_protection_outside(site: SandboxSpec):
    """What stands in the place of something hidden, protected or ordinary is itself meant."""
    outside = site.workspace.parent / "outside"
    write_file(outside / "hooks/pre-commit", "theirs")
    before = {path: path.lstat() for path in (outside, *outside.rglob("*"))}
    work = site.workspace
    for name in (".claude", ".vscode", "ordinary", ".git/info"):
        (work / name).symlink_to(outside)
    names = (".claude", ".vscode", ".git/hooks", ".git/info", "real/.agents")
    guarded = replace(
        site,
        protected=tuple(work / name for name in names),
        hidden=(work / ".mainspring", work / "ordinary/hooks"),
    )
    async with KeeperSandbox(guarded, Landlock(owns_uid=True)) as sandbox:
        await bash(sandbox, "chmod -R 777 .claude ordinary; echo x > .claude/hooks/pre-commit")
        ran = await bash(sandbox, "cat .claude/hooks/pre-commit; rm .claude; ls -d .claude")
    assert ran.stdout.head == b".claude\n", "a link in the place of something protected stays"
    for path, known in before.items():
        now = path.lstat()
        assert (now.st_uid, now.st_gid, now.st_mode, now.st_ctime_ns) == (
            *(known.st_uid, known.st_gid),
            *(known.st_mode, known.st_ctime_ns),
        ), path


@needs_root
async def test_targets_of_hidden_and_protected_links_are_guarded_too(site: SandboxSpec):
    work = site.workspace
    write_file(work / "config/settings", "the user's")
    (work / "config/key").write_text("SECRET")
    (work / ".claude").symlink_to("config")
    (work / ".env").symlink_to(work / "config/key")
    guarded = replace(site, protected=(work / ".claude",), hidden=(work / ".env",))
    async with KeeperSandbox(guarded, Landlock(owns_uid=True)) as sandbox:
        command = "cat .env config/key; echo mine > config/settings; mv config aside; rm .claude"
        ran = await bash(sandbox, command)
    assert ran.stdout.head == b""
    assert (work / ".claude/settings").read_text() == "the user's"


@needs_root
async def test_a_hidden_file_with_a_second_hard_link_is_refused(site: SandboxSpec):
    outside = site.workspace.parent / "outside.txt"
    outside.write_text("SECRET")
    os.link(outside, site.workspace / ".env")
    guarded = replace(site, hidden=(site.workspace / ".env",))
    with pytest.raises(SandboxFailed, match="second name"):
        async with KeeperSandbox(guarded, Landlock(owns_uid=True)) as sandbox:
            await bash(sandbox, "cat .env")
    assert outside.stat().st_mode & 0o777 == 0o644


@needs_root
async def test_fifos_are_not_waited_for_and_devices_are_not_lent(site: SandboxSpec):
    os.mkfifo(site.workspace / "pipe")
    os.mknod(site.workspace / "full", 0o600 | stat.S_IFCHR, os.makedev(1, 7))
    async with KeeperSandbox(site, Landlock(owns_uid=True)) as sandbox:
        await bash(sandbox, "rm -f pipe")
    assert not (site.workspace / "pipe").exists()
    assert (site.workspace / "full").stat().st_uid == 0
