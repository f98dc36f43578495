"""`mainspring serve`, started wrongly."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import TypeAlias

import anyio
import pytest

from mainspring.log.sqlite import open_sqlite
from mainspring.service.access.keys import Keys

Run: TypeAlias = Callable[..., "CompletedProcess[str]"]


def test_a_start_that_fails_takes_no_key_along(mainspring: Run, store: Path):
    async def has_key() -> bool:
        async with open_sqlite(store) as opened:
            return await Keys(opened.records).is_any()

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        failed = mainspring("serve", "--port", str(port))
    assert failed.returncode == 1
    assert f"127.0.0.1:{port}: cannot listen there: Address already in use" in failed.stderr
    assert not anyio.run(has_key)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--metrics", "127.0.0.1:99999"), "--metrics 127.0.0.1:99999"),
        (("--trusted-proxy", "gateway"), "--trusted-proxy gateway: give its IP address"),
        (("--model", "nonesuch"), "no model 'nonesuch'"),
        (("--host", "nowhere.invalid"), "nowhere.invalid:0: cannot listen there"),
    ],
)
def test_a_wrong_option_is_told_at_the_start(mainspring: Run, options: tuple[str, ...], told: str):
    failed = mainspring("serve", "--port", "0", *options)
    assert failed.returncode == 1
    assert told in failed.stderr
    assert "bug" not in failed.stderr
