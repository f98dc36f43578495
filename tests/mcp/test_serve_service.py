"""`/mcp` of `mainspring serve`: agents of the service, by the keys of its tenants."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from tests.mcp.serving import Person, fields_of, keyed_client, text_of
from tests.service_e2e.service_processes import TOOLS, Served, Stage, bash, staged

from mainspring.capabilities.mcp.protocol.messages import Era
from mainspring.core.errors import McpFailed


@pytest.fixture(scope="module")
async def dependencies(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncGenerator[tuple[Stage, Served]]:
    async with staged(tmp_path_factory.mktemp("service")) as stage, stage.serve() as served:
        async with served.client() as client:
            environment = await client.beta.environments.create(name="here")
            assert environment.id
            asks = {"permission_policy": {"type": "always_ask"}}
            asking: Any = [{"type": TOOLS[0]["type"], "default_config": asks}]
            for name, tools in (("worker", TOOLS), ("asking", asking)):
                await client.beta.agents.create(
                    name=name,
                    model="ollama:test",
                    description=f"The {name} agent.",
                    tools=tools,
                )
        yield stage, served


async def key_of(stage: Stage, *options: str) -> str:
    return (await stage.command("keys", "create", "mine", *options)).split()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_an_agent_of_the_service_can_be_run_and_continued(
    dependencies: tuple[Stage, Served], era: Era
):
    stage, served = dependencies
    key = await key_of(stage, "--role", "user")
    async with keyed_client(f"{served.url}/mcp", key, era=era) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        run = await client.call_tool("worker", {"message": bash("echo one-two-three")})
        session = fields_of(run)["session_id"]
        again = await client.call_tool("worker", {"message": "more", "session_id": session})
        read = text_of(await client.call_tool("read_session", {"session_id": session}))
    assert tools[:2] in (["asking", "worker"], ["worker", "asking"])
    assert fields_of(run)["status"] == "completed"
    assert fields_of(again)["session_id"] == session
    assert "one-two-three" in read


@pytest.mark.slow
async def test_approvals_are_requested_through_the_client(
    dependencies: tuple[Stage, Served],
):
    stage, served = dependencies
    operator = await key_of(stage, "--role", "operator")
    async with served.client() as sdk:
        agents = (await sdk.beta.agents.list()).data
    lent = await key_of(stage, "--role", "operator", "--lent-to", agents[0].id)
    person = Person()
    async with keyed_client(f"{served.url}/mcp", operator, person=person) as client:
        run = await client.call_tool("asking", {"message": bash("touch made")})
    assert fields_of(run)["status"] == "completed"
    assert len(person.questions) == 1
    nobody = Person()
    async with keyed_client(f"{served.url}/mcp", lent, person=nobody) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        waits = await client.call_tool("asking", {"message": bash("touch made")})
    assert fields_of(waits)["status"] == "requires_action"
    assert "answer_approval" not in tools
    assert nobody.questions == [], "an agent's own key cannot ask anybody to approve"


@pytest.mark.slow
async def test_another_tenant_sees_and_reaches_nothing(dependencies: tuple[Stage, Served]):
    stage, served = dependencies
    own = await key_of(stage, "--role", "user")
    await stage.command("tenants", "create", "rival")
    rival = await key_of(stage, "--role", "admin", "--tenant", "rival")
    url = f"{served.url}/mcp"
    async with keyed_client(url, own) as client:
        run = await client.call_tool("worker", {"message": "a secret of mine: violet-otter"})
    session = fields_of(run)["session_id"]
    async with keyed_client(url, rival) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        listed = fields_of(await client.call_tool("list_sessions", {}))
        found = fields_of(await client.call_tool("search_sessions", {"query": "violet-otter"}))
        for name, arguments in (
            ("read_session", {"session_id": session}),
            ("list_approvals", {"session_id": session}),
            ("answer_approval", {"approval_id": "appr_x", "result": "allow"}),
        ):
            refused = await client.call_tool(name, arguments)
            assert refused.is_error, name
            assert "violet" not in text_of(refused)
        with pytest.raises(McpFailed, match="there is no resource"):
            await client.read_resource(f"mainspring://sessions/{session}")
        with pytest.raises(McpFailed, match="there is no tool"):
            await client.call_tool("worker", {"session_id": session, "message": "more"})
    assert "worker" not in tools
    assert (listed, found) == ({"sessions": []}, {"hits": []})


@pytest.mark.slow
async def test_a_request_without_a_key_is_refused(dependencies: tuple[Stage, Served]):
    _, served = dependencies
    with pytest.raises(McpFailed, match="401"):
        async with keyed_client(f"{served.url}/mcp", "msk_wrong"):
            pass
