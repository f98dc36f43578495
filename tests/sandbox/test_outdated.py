"""What another version has left running is ended at the start of this one, and never used."""

import os
import signal
import socket
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio import to_thread
from tests.sandbox.conftest import sh
from tests.sandbox.test_keeper import gone, keeper_of

from mainspring.capabilities.sandbox.bwrap import Bubblewrap
from mainspring.capabilities.sandbox.cage import Site
from mainspring.capabilities.sandbox.client import KeptSandbox
from mainspring.capabilities.sandbox.outdated import end_outdated_keepers
from mainspring.capabilities.sandbox.services import Services
from mainspring.capabilities.sandbox.wire import VERSION
from mainspring.core.hands import Exec


def is_dead(process: int) -> bool:
    """Or about to be: nobody may have waited for it yet."""
    try:
        said = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return said.rpartition(")")[2].split()[0] == "Z"


async def test_at_the_start_only_what_other_code_has_made_is_ended(
    site: Site, bubblewrap: Bubblewrap
):
    """A service among them: it would run for as long as an hour in its old sandbox."""
    hands = site.state / "hands"
    old, new = (replace(site, state=hands / name) for name in ("old", "new"))
    async with KeptSandbox(new, bubblewrap) as current:
        await sh(current, "true")
        services = Services(old, bubblewrap)
        begun = Exec(key="service", argv=("sleep", "600"), wall_seconds=600)
        await services.start("web", begun)
        assert await to_thread.run_sync(end_outdated_keepers, hands) == 0
        [noted] = old.state.glob(f"services/*/{VERSION}")
        noted.write_text("another")
        with anyio.fail_after(60):
            assert await to_thread.run_sync(end_outdated_keepers, hands) == 1
        progress = await services.output("web")
        assert progress is not None
        assert not progress.is_running
        assert (await sh(current, "echo on")).stdout.head == b"on\n"
        await services.close()


async def test_a_keeper_that_does_not_answer_is_killed(site: Site, bubblewrap: Bubblewrap):
    sandbox = KeptSandbox(site, bubblewrap)
    await sh(sandbox, "true")
    keeper = keeper_of(site)
    (site.state / VERSION).unlink()  # as before there were such notes
    os.kill(keeper, signal.SIGSTOP)
    ended = partial(end_outdated_keepers, site.state.parent, seconds=0.2)
    assert await to_thread.run_sync(ended) == 1
    await gone(lambda: is_dead(keeper))
    await sandbox.leave()


def test_a_folder_that_others_can_write_is_left_alone(site: Site):
    """Somebody else's socket there could be anybody's: nothing is sent to it."""
    site.state.mkdir(mode=0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(site.state)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind("keeper.sock")
        listener.listen()
    site.state.chmod(0o777)
    assert end_outdated_keepers(site.state.parent) == 0
    listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.accept()
    listener.close()
