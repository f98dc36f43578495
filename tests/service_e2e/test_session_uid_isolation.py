"""A mount that went wrong: what the uid of one session could read of the service and of others."""

import os
import subprocess

import anyio
import pytest
from tests.service_e2e.service_processes import SECONDS, Stage, bash, begun, upto_idle

from mainspring.capabilities.sandbox.backends.session_uids import release_session_uid, session_uid

READ_ALL = """
import os, sys
os.fchdir(int(sys.argv[1]))
for path in sys.stdin.read().splitlines():
    try:
        os.listdir(path) if os.path.isdir(path) else open(path, "rb").close()
    except OSError:
        continue
    print(path)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give sessions uids of their own")
async def test_a_program_with_the_services_folder_can_read_none_of_its_files(stage: Stage):
    """The folder is handed to it by descriptor, as if all of it had been mounted, and it knows
    the name of everything in it."""
    async with stage.serve() as served, served.client() as client:
        session = await begun(client, bash("echo private > notes"))
        await upto_idle(client, session)
        assert (stage.workspaces / session / "notes").exists()
        assert (stage.folder / ".mainspring" / "mainspring.db-wal").exists()
        assert list(stage.workspaces.glob(".state/hands/*/stamp"))
        stage.folder.chmod(0o755)
        found = await anyio.to_thread.run_sync(_read_as, stage, session_uid("another"))
    release_session_uid("another")
    ours = {".", "home", *(item.name for item in stage.folder.glob("*.log"))}  # of this test
    assert found - ours == set()
    assert found & ours, "the program could not look at all"


def _read_as(stage: Stage, uid: int) -> set[str]:
    everything = list(stage.folder.rglob("*"))
    folder = os.open(stage.folder, os.O_PATH | os.O_DIRECTORY)
    try:
        done = subprocess.run(
            ["/usr/bin/env", "python3", "-I", "-c", READ_ALL, str(folder)],
            user=uid,
            group=uid,
            extra_groups=[],
            input="\n".join([".", *(str(item.relative_to(stage.folder)) for item in everything)]),
            env={"PATH": os.defpath},
            cwd="/",
            pass_fds=[folder],
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    finally:
        os.close(folder)
    assert done.stderr == ""
    return set(done.stdout.splitlines())
