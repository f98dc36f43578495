"""`mainspring serve`, started wrongly."""

import socket
from pathlib import Path

import anyio
import pytest
from tests.fork_server import Run
from tests.keys import KEY

from mainspring.log.sqlite import open_sqlite
from mainspring.service.access.api_keys import Keys


def test_a_failed_start_creates_no_key(mainspring: Run, store: Path):
    async def has_key() -> bool:
        async with open_sqlite(store, key=KEY) as opened:
            return await Keys(opened.records).has_any()

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        failed = mainspring("serve", "--port", str(port))
    assert failed.returncode == 1
    assert f"error: 127.0.0.1:{port}: the port is in use by another program" in failed.stderr
    assert f"hint: stop that program, or use another port: --port {port + 1}" in failed.stderr
    assert not anyio.run(has_key)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--metrics", "127.0.0.1:99999"), "--metrics 127.0.0.1:99999"),
        (("--trusted-proxy", "gateway"), "--trusted-proxy gateway: give its IP address"),
        (("--model", "nonesuch"), "unknown model 'nonesuch'"),
        (("--host", "nowhere.invalid"), "nowhere.invalid:0: cannot listen on this address"),
    ],
)
def test_an_invalid_option_is_reported_at_startup(
    mainspring: Run, options: tuple[str, ...], told: str
):
    failed = mainspring("serve", "--port", "0", *options)
    assert failed.returncode == 1
    assert told in failed.stderr
    assert "bug" not in failed.stderr


def test_a_new_store_is_not_created_inside_the_workspaces_folder(mainspring: Run, place: Path):
    (place / "there").mkdir()
    (place / "by-another-name").symlink_to(place / "there")
    refused = mainspring(
        *("serve", "--port", "0", "--store", str(place / "by-another-name" / "below" / "log.db")),
        MAINSPRING_WORKSPACES=str(place / "there"),
    )
    assert refused.returncode == 1
    assert "where sessions work" in refused.stderr
    assert "MAINSPRING_WORKSPACES" in refused.stderr
    assert list((place / "there").iterdir()) == []


def test_an_existing_store_inside_the_workspaces_folder_gets_a_warning(
    mainspring: Run, place: Path, store: Path, session_id: str
):
    del session_id  # what has made the store
    told = mainspring(
        "serve", "--port", "0", "--model", "nonesuch", MAINSPRING_WORKSPACES=str(store.parent)
    )
    assert f"warning: {store} is below {store.parent}" in told.stderr.replace("\n", " ")
    assert "unknown model 'nonesuch'" in told.stderr  # it came as far as it would have without
