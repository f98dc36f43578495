"""Servers that `npx` and `uvx` load: real installers, a registry on loopback."""

import base64
import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.abilities import require_sandbox, require_session_uids
from tests.mcp.package_registry import Registry, npm_archive, running_registry, wheel
from tests.network.internet import PUBLIC
from tests.session_e2e.session_setup import Scene, read_results

from mainspring.capabilities.providers.scripted import calls, says
from mainspring.wiring.settings_files import trust

SERVERS = {
    "npx": {"command": "npx", "args": ["-y", "@acme/notes", "--deep"]},
    "uvx": {"command": "uvx", "args": ["acme-notes", "--deep"]},
}
PATH = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
CAN_RUN = {
    "npx": shutil.which("npm", path="/usr/local/bin:/usr/bin:/bin") is not None,
    "uvx": shutil.which("uv", path=PATH) is not None,
}


def publish(registry: Registry, version: str) -> None:
    registry.npm[version] = npm_archive("@acme/notes", version)
    registry.python[version] = wheel("acme-notes", version)


async def use(scene: Scene, registry: Registry, registries: Mapping[str, str] | None = None) -> str:
    """What the server says of itself in a new session, or why there is none."""
    scene.warnings.clear()
    environ = {"HOME": str(scene.home), "PATH": PATH, **(registries or registry.environ)}
    async with scene.play(calls("mcp__notes__version"), says("ok"), environ=environ) as play:
        assert (await play.run()).ok
        [text] = read_results(play.model.requests[-1])
    problems = [item for item in scene.warnings if "are installed" not in item]
    return "\n".join(problems) or text


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["npx", "uvx"])
async def test_packages_are_pinned_at_first_use_and_then_used_offline(
    scene: Scene, kind: str
) -> None:
    if not CAN_RUN[kind]:
        pytest.skip(f"no {kind} here")
    scene.write(".mcp.json", json.dumps({"mcpServers": {"notes": SERVERS[kind]}}))
    scene.user(permissions={"allow": ["mcp__notes"]})
    trust(scene.workspace, home=scene.home)
    cache = scene.home / ".mainspring/mcp-packages"
    async with running_registry() as registry:
        registry.url = registry.url.replace("localhost", "127.0.0.1")  # an address is a host here
        publish(registry, "1.0.0")
        first = await use(scene, registry)
        assert first.startswith("1.0.0 "), first
        assert "changed" not in first  # it cannot change itself
        assert first.endswith(" --deep")

        publish(registry, "2.0.0")
        registry.requests.clear()
        assert await use(scene, registry) == first
        assert registry.requests == []

        [folder] = [item for item in cache.iterdir() if item.is_dir()]
        shutil.rmtree(folder)
        assert await use(scene, registry) == first  # made again from the pin

        shutil.rmtree(folder)
        registry.npm["1.0.0"] = npm_archive("@acme/notes", "6.6.6")
        registry.python["1.0.0"] = wheel("acme-notes", "6.6.6")
        assert "its packages cannot be installed" in await use(scene, registry)
        assert not folder.exists()
        assert [item.name for item in cache.iterdir()] == [f"{folder.name}.pin"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["npx", "uvx"])
async def test_installers_use_a_registry_login_without_seeing_it(
    scene: Scene, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not CAN_RUN[kind]:
        pytest.skip(f"no {kind} here")
    authority = scene.write(scene.outside / "authority.pem", PUBLIC.certificate.decode())
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))  # whom the proxy believes
    scene.write(".mcp.json", json.dumps({"mcpServers": {"notes": SERVERS[kind]}}))
    scene.user(permissions={"allow": ["mcp__notes"]})
    trust(scene.workspace, home=scene.home)
    password = "pw/4711@never seen"
    async with running_registry(PUBLIC.context("localhost")) as registry:
        publish(registry, "1.0.0")
        registry.login = ("reader", password)
        said = await use(scene, registry)
        assert said.startswith("1.0.0 "), said
        with_login, registry.login = registry.environ, ("reader", "another")
        shutil.rmtree(next(item for item in scene.home.rglob("mcp-packages/*") if item.is_dir()))
        assert "cannot be installed" in await use(scene, registry, with_login)
    forms = (password, quote(password, safe=""), base64.b64encode(password.encode()).decode())
    stored = [item.read_bytes() for item in scene.home.rglob("*") if item.is_file()]
    assert not [form for form in forms if any(form.encode() in content for content in stored)]


async def test_a_program_of_the_project_is_not_fetched_from_a_registry(scene: Scene) -> None:
    server = {**SERVERS["npx"], "env": {"npm_config_fetch_retries": "0"}}
    scene.write(".mcp.json", json.dumps({"mcpServers": {"notes": server}}))
    scene.write("node_modules/.bin/notes", "#!/bin/sh\nexit 3\n").chmod(0o755)
    trust(scene.workspace, home=scene.home)
    async with running_registry() as registry:
        publish(registry, "1.0.0")
        await use(scene, registry)
        assert registry.requests == []
    assert not (scene.home / ".mainspring/mcp-packages").exists()


@pytest.mark.skipif(not CAN_RUN["uvx"], reason="no uvx here")
async def test_where_no_installer_has_a_network_the_message_says_what_else_works(scene: Scene):
    require_session_uids()
    scene.write(".mcp.json", json.dumps({"mcpServers": {"notes": SERVERS["uvx"]}}))
    disabled = [] if require_sandbox().name != "bubblewrap" else ["bubblewrap"]
    scene.user(permissions={"allow": ["mcp__notes"]}, sandbox={"disabledBackends": disabled})
    trust(scene.workspace, home=scene.home)
    async with running_registry() as registry:
        said = await use(scene, registry)
        assert registry.requests == []
    if "no sandbox works here" in said:
        pytest.skip("no sandbox without namespaces here")
    assert "its packages cannot be installed: Landlock cannot let programs reach a proxy" in said
    assert "install them yourself (npm, pipx, uv tool)" in said
