"""The network of MCP servers in the sandbox: the session's hosts, or fewer."""

import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.abilities import require_network
from tests.mcp.loopback_server import Answer, LoopbackServer, loopback_server
from tests.session_e2e.session_setup import Scene

from mainspring.capabilities.providers.scripted import calls
from mainspring.core.events import NetworkRequested
from mainspring.wiring.settings_files import trust

SERVER = Path(__file__).parents[2] / "tests/mcp/fetching_server.py"


@pytest.fixture(autouse=True)
def networked() -> None:
    require_network()


def page(text: str) -> LoopbackServer:
    return LoopbackServer(routes={"/": lambda _: Answer(body=text)})


def host(*ports: int, name: str = "localhost") -> dict[str, object]:
    addresses = ["127.0.0.0/8", "::1/128"]
    return {"host": name, "ports": list(ports), "plain_http": True, "addresses": addresses}


def limited_to(*hosts: object) -> dict[str, object]:
    return {"type": "limited", "allowed_hosts": list(hosts)}


def with_servers(scene: Scene, **networking: object) -> None:
    scene.write("server.py", SERVER.read_text())
    start = {"command": "python3", "args": ["server.py"]}
    servers = {
        name: {**start, "env": {"NAME": name}, **({"networking": own} if own else {})}
        for name, own in networking.items()
    }
    scene.write(".mcp.json", json.dumps({"mcpServers": servers}))
    trust(scene.workspace, home=scene.home)


async def test_a_server_reaches_only_its_own_hosts_within_those_of_the_session(scene: Scene):
    with loopback_server(page("one")) as one, loopback_server(page("two")) as two:
        ports = [urlsplit(server.url).port or 0 for server in (one, two)]
        first, second = (f"http://localhost:{port}/" for port in ports)
        with_servers(
            scene,
            all=None,
            one=limited_to(host(ports[0]), host(*ports, name="elsewhere.test")),
            none=limited_to("example.com"),
        )
        scene.user(
            sandbox={"networking": limited_to(host(*ports))},
            permissions={"allow": ["mcp__all", "mcp__one", "mcp__none"]},
        )
        async with scene.play(
            calls("mcp__all__fetch", url=first),
            calls("mcp__all__fetch", url=second),
            calls("mcp__one__fetch", url=first),
            calls("mcp__one__fetch", url=second),
            calls("mcp__one__fetch", url=f"http://elsewhere.test:{ports[0]}/"),
            calls("mcp__none__fetch", url=first),
        ) as play:
            assert (await play.run()).ok
            results = await play.results()
            requested = await play.events(NetworkRequested)
        asked = [len(server.requests) for server in (one, two)]
    pages = [result if "refused" not in result else "refused" for result in results]
    assert pages == ['"one"', '"two"', '"one"', "refused", "refused", "refused"]
    assert "is not among the allowed hosts" in results[3]
    assert asked == [2, 1]
    assert [item.decision for item in requested] == ["allow"] * 3 + ["deny"] * 3


@pytest.mark.parametrize("wrong", ["example.com", {"type": "all"}, limited_to("10.0.0.1"), [7]])
async def test_a_server_with_an_invalid_networking_list_is_not_started(scene: Scene, wrong: object):
    scene.user(sandbox={"networking": limited_to("example.com")})
    with_servers(scene, odd=wrong)
    async with scene.play() as play:
        assert (await play.run()).ok
        offered = [spec.name for spec in play.model.requests[0].tools]
    assert not any(name.startswith("mcp__") for name in offered)
    [warning] = [warning for warning in scene.warnings if "MCP server odd" in warning]
    assert "networking" in warning or "allowed_hosts" in warning
