"""Hands that are kept between runs, and what their session may use by then."""

from pathlib import Path

import anyio
from tests.abilities import require_network

from mainspring.config import read_settings
from mainspring.core.ports import Credential
from mainspring.wiring import sandboxes as sandbox_pools
from mainspring.wiring.sandbox_settings import read_environment, session_paths

NETWORKED = {"networking": {"type": "limited", "allowed_hosts": ["example.com"]}}


async def test_a_removed_credential_is_not_used_in_the_next_run(tmp_path: Path):
    require_network()
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    settings = read_settings(folder=tmp_path, environ={"HOME": str(tmp_path / "home")})
    places = session_paths(settings, workspace, "s1")
    environment = read_environment(NETWORKED)
    credential = Credential(name="API_KEY", value="a-secret-value", hosts=("example.com",))
    with anyio.fail_after(60):
        async with sandbox_pools.sandbox_pool(settings) as pool:
            before = await pool.open_session("s1", places, environment, (credential,))
            assert "API_KEY" in (await before.open()).variables
            await pool.release("s1")
            assert await pool.open_session("s1", places, environment, (credential,)) is before
            await pool.release("s1")
            after = await pool.open_session("s1", places, environment, ())
            assert "API_KEY" not in (await after.open()).variables
