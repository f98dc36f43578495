"""Landlock with a uid of its own: ordinary work goes on, and nothing is left when it is over."""

import os
import shutil
import sys
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import anyio
import pytest
from tests.sandbox.attacks.scene import fresh_root

from mainspring.capabilities.sandbox.cage import Site
from mainspring.capabilities.sandbox.client import KeptSandbox
from mainspring.capabilities.sandbox.landlock import Landlock
from mainspring.capabilities.sandbox.landlock_rules import ENOUGH_ABI, landlock_abi
from mainspring.capabilities.sandbox.session_uids import session_uid
from mainspring.core.errors import SandboxFailed
from mainspring.core.hands import Exec, Ran

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or landlock_abi() < ENOUGH_ABI, reason="no Landlock to speak of"
)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a uid of its own")


@pytest.fixture
def site() -> Generator[Site]:
    root = fresh_root()  # pytest's own folders let nobody else pass
    root.chmod(0o755)
    workspace = root / "work"
    (workspace / ".git/hooks").mkdir(parents=True)
    (workspace / ".mainspring").mkdir()
    (workspace / ".mainspring/secret").write_text("hidden")
    (workspace / "notes.txt").write_text("notes\n")
    yield Site(session_id="session", workspace=workspace, state=root / "state")
    shutil.rmtree(root)


@pytest.fixture
async def sandbox(site: Site) -> AsyncGenerator[KeptSandbox]:
    hidden = Site(
        session_id=site.session_id,
        workspace=site.workspace,
        state=site.state,
        hidden=(site.workspace / ".mainspring",),
        protected=(site.workspace / ".git/hooks",),
    )
    async with KeptSandbox(hidden, Landlock(owns_uid=True)) as opened:
        yield opened


async def bash(sandbox: KeptSandbox, command: str) -> Ran:
    return await sandbox.run(Exec(key=command, argv=("bash", "-c", command), wall_seconds=30))


@needs_root
async def test_ordinary_work_is_done_under_the_uid_of_the_session(sandbox: KeptSandbox, site: Site):
    ran = await bash(
        sandbox,
        "echo more >> notes.txt; mkdir -p a/b; echo x > a/b/c; mv a/b/c d; cat notes.txt;"
        " seq 3 | sort -r | tr '\\n' ' '; python3 -c 'print(6 * 7)'; mktemp >/dev/null && id -u",
    )
    assert ran.stdout.head.decode() == f"notes\nmore\n3 2 1 42\n{session_uid('session')}\n", ran
    assert (site.workspace / "d").read_text() == "x\n"


@needs_root
async def test_a_hidden_folder_stays_and_stays_hidden(sandbox: KeptSandbox, site: Site):
    await bash(sandbox, "mv .mainspring x; rm -rf .mainspring; chmod 777 .mainspring; true")
    ran = await bash(sandbox, "cat .mainspring/secret x/secret")
    assert b"hidden" not in ran.stdout.head
    assert (site.workspace / ".mainspring/secret").read_text() == "hidden"
    assert (site.workspace / ".mainspring").stat().st_mode & 0o777 == 0o700


@needs_root
async def test_a_file_with_another_name_elsewhere_is_not_given_away(
    sandbox: KeptSandbox, site: Site
):
    outside = site.workspace.parent / "outside.txt"
    outside.write_text("as it was\n")
    os.link(outside, site.workspace / "linked.txt")
    await bash(sandbox, "echo changed > linked.txt")
    assert outside.read_text() == "as it was\n"
    assert outside.stat().st_uid == os.geteuid()


@needs_root
async def test_its_temporary_folder_goes_with_it(site: Site):
    backend = Landlock(owns_uid=True)
    async with KeptSandbox(site, backend) as sandbox:
        ran = await bash(sandbox, "mktemp -d; echo $TMPDIR")
        tmp = Path(ran.stdout.head.decode().splitlines()[-1])
        assert tmp.is_dir()
    with anyio.fail_after(10):
        while tmp.exists():  # noqa: ASYNC110 -- whoever tidies up is another process
            await anyio.sleep(0.02)


def test_a_network_is_refused_with_a_reason(site: Site):
    wanted = Site(session_id="session", workspace=site.workspace, state=site.state, network=True)
    with pytest.raises(SandboxFailed, match="turn the network off"):
        Landlock(owns_uid=True).launch(wanted)


@needs_root
def test_without_a_uid_of_its_own_it_never_runs_as_root(site: Site):
    with pytest.raises(SandboxFailed, match="must not run as root"):
        Landlock(owns_uid=False).launch(site)
