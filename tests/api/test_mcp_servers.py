"""MCP servers of agents: the official SDK, `mainspring serve` and a real server on loopback."""
# pyright: basic, reportArgumentType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false, reportOptionalMemberAccess=false, reportOptionalSubscript=false
# as its users write: with dictionaries, and without telling kinds of events apart by their classes

import json
import urllib.error
import urllib.request
from collections.abc import Generator

import anthropic
import pytest
from tests.api.conftest import platform
from tests.api.test_official_sdk import send_event, send_text
from tests.api.vault_api import LATER
from tests.mcp.authorization import AuthorizingServer
from tests.mcp.loopback_server import Answer, Asked, LoopbackServer, forms_of, loopback_server

TOKEN = "tok-0f4c9a51be27d863-planted"
BREWING = "---\nname: brewing\ndescription: How to make tea.\n---\n\nThree minutes.\n"
ALLOW = {"type": "always_allow"}
ASK = {"type": "always_ask"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Generator[anthropic.Anthropic]:
    """Of a service that may call loopback."""
    with (
        platform(tmp_path_factory.mktemp("mcp"), "--allow-network", "127.0.0.0/8") as running,
        anthropic.Anthropic(
            api_key=running.key, base_url=running.url, max_retries=0, timeout=60
        ) as made,
    ):
        yield made


@pytest.fixture
def server() -> Generator[LoopbackServer]:
    with loopback_server() as made:
        made.tokens = {TOKEN}
        yield made


def create_session(
    client: anthropic.Anthropic,
    server: LoopbackServer,
    *,
    toolset: dict | None = None,
    network: dict | None = None,
    auth: dict | None = None,
    tools: tuple = (),
):
    agent = client.beta.agents.create(
        name="clerk",
        model="claude-sonnet-4-5",
        mcp_servers=[{"type": "url", "name": "word book", "url": server.mcp}],
        tools=[{"type": "mcp_toolset", "mcp_server_name": "word book", **(toolset or {})}, *tools],
    )
    networking = network or {"type": "limited", "allow_mcp_servers": True}
    environment = client.beta.environments.create(
        name=f"place-{agent.id}", config={"type": "cloud", "networking": networking}
    )
    vaults = []
    if auth is not None:
        vault = client.beta.vaults.create(display_name="mine")
        client.beta.vaults.credentials.create(vault.id, auth={"mcp_server_url": server.mcp, **auth})
        vaults.append(vault.id)
    return client.beta.sessions.create(
        agent=agent.id, environment_id=environment.id, vault_ids=vaults
    )


def bearer(token: str = TOKEN) -> dict:
    return {"type": "static_bearer", "token": token}


def of_type(events: list, type_: str) -> list:
    return [event for event in events if event.type == type_]


def test_an_agent_uses_the_tools_of_a_server_with_a_vault_token(
    client: anthropic.Anthropic, server: LoopbackServer
):
    toolset = {
        "default_config": {"permission_policy": ASK},
        "configs": [
            {"name": "look.up", "permission_policy": ALLOW},
            {"name": "leak", "enabled": False},
        ],
    }
    session = create_session(client, server, toolset=toolset, auth=bearer())
    script = (
        'call mcp__word_book__look_up {"text": "tea"}\n'
        'call mcp__word_book__write {"text": "tea"}\n'
        'call mcp__word_book__leak {"text": "tea"}\n'
        "say It is a drink."
    )
    events = send_text(client, session.id, script)
    [looked, write] = of_type(events, "agent.mcp_tool_use")
    assert (looked.mcp_server_name, looked.name) == ("word book", "look.up")
    assert (looked.evaluated_permission, write.evaluated_permission) == ("allow", "ask")
    [result] = of_type(events, "agent.mcp_tool_result")
    assert (result.mcp_tool_use_id, result.is_error) == (looked.id, None)
    assert result.content[0].text == "look.up: tea"
    assert events[-1].stop_reason.event_ids == [write.id]
    assert [call["name"] for call in server.calls] == ["look.up"]

    allow = {"type": "user.tool_confirmation", "tool_use_id": write.id, "result": "allow"}
    events = send_event(client, session.id, allow)
    written, refused = of_type(events, "agent.mcp_tool_result")
    assert (written.content[0].text, refused.is_error) == ("write: tea", True)
    assert [call["name"] for call in server.calls] == ["look.up", "write"]
    assert of_type(events, "agent.message")[0].content[0].text == "It is a drink."
    assert set(server.sent_tokens()) == {TOKEN}


def test_a_token_repeated_by_a_server_reaches_neither_model_nor_log(
    client: anthropic.Anthropic, server: LoopbackServer
):
    toolset = {"default_config": {"permission_policy": ALLOW}}
    builtin = {"type": "agent_toolset_20260401"}
    session = create_session(client, server, toolset=toolset, auth=bearer(), tools=(builtin,))
    script = 'call mcp__word_book__leak {"text": "x"}\ncall bash {"command": "env"}\nsay Done.'
    send_text(client, session.id, script)
    path = f"/v1/sessions/{session.id}/events?include=internal&limit=1000"
    everything = json.dumps(client.get(path, cast_to=object))
    assert "agent.mcp_tool_result" in everything
    assert not [form for form in (TOKEN, *forms_of(TOKEN)) if form in everything]
    assert server.calls


class SkillServer(LoopbackServer):
    """It publishes a skill, too."""

    def speak(self, asked: Asked) -> Answer:
        message, uri = asked.json, "skill://brewing/SKILL.md"
        head = {"name": "brewing", "description": "How to make tea."}
        known = {
            "server/discover": {
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}, "extensions": {"io.modelcontextprotocol/skills": {}}},
            },
            "skills/list": {"skills": [{"uri": uri, "frontmatter": head, "resources": "dynamic"}]},
            "resources/read": {"contents": [{"uri": uri, "text": BREWING}]},
        }
        if message["method"] not in known:
            return super().speak(asked)
        result = {"resultType": "complete", **known[message["method"]]}
        return Answer(body={"jsonrpc": "2.0", "id": message["id"], "result": result})


@pytest.mark.parametrize("is_enabled", [True, False])
def test_an_agent_uses_server_skills_only_if_its_tools_are_enabled(
    client: anthropic.Anthropic, is_enabled: bool
):
    with loopback_server(SkillServer(tokens={TOKEN})) as server:
        toolset = {"default_config": {"enabled": is_enabled}}
        session = create_session(client, server, toolset=toolset, auth=bearer())
        events = send_text(
            client, session.id, 'call mcp_skill {"name": "word_book:brewing"}\nsay Done.'
        )
    [result] = of_type(events, "agent.tool_result")
    text = result.content[0].text
    assert ("Three minutes." in text) == is_enabled
    assert text.startswith("The MCP server word book wrote this skill") == is_enabled


def test_an_unauthorized_or_unreachable_server_is_reported_and_the_session_continues(
    client: anthropic.Anthropic, server: LoopbackServer
):
    session = create_session(client, server, auth=bearer("wrong-token-0123456789"))
    events = send_text(client, session.id, "say I have no tools.")
    [failed] = of_type(events, "session.error")
    assert failed.error.type == "mcp_authentication_failed_error"
    assert failed.error.mcp_server_name == "word book"
    assert of_type(events, "agent.message")

    gone = LoopbackServer(url="http://127.0.0.1:9")
    session = create_session(client, gone)
    events = send_text(client, session.id, "say I have no tools.")
    [failed] = of_type(events, "session.error")
    assert failed.error.type == "mcp_connection_failed_error"
    assert failed.error.retry_status.type == "retrying"
    assert of_type(events, "agent.message")


@pytest.mark.parametrize(
    ("network", "is_reached"),
    [
        ({"type": "unrestricted"}, True),
        ({"type": "limited", "allowed_hosts": ["api.example.com"]}, False),
        ({"type": "limited", "allow_mcp_servers": True}, True),
    ],
)
def test_the_network_of_the_environment_decides_whether_servers_are_reached(
    client: anthropic.Anthropic, server: LoopbackServer, network: dict, is_reached: bool
):
    session = create_session(client, server, network=network, auth=bearer())
    send_text(client, session.id, "say Hello.")
    assert bool(server.requests) == is_reached


def test_an_expired_token_is_refreshed_once_and_the_request_repeated(
    client: anthropic.Anthropic, server: LoopbackServer
):
    fresh = "fresh-6a1b8c90d2e3f475-planted"
    exchanged = []

    def token(asked):
        exchanged.append(asked.form)
        server.tokens = {fresh}
        return Answer(body={"access_token": fresh, "token_type": "Bearer", "expires_in": 3600})

    server.routes["/token"] = token
    server.tokens = set()  # the one that the vault has is good no more, though it says so
    refresh = {
        "client_id": "client",
        "refresh_token": "refresh-token-0123456789",
        "token_endpoint": f"{server.url}/token",
        "token_endpoint_auth": {"type": "none"},
    }
    auth = {
        "type": "mcp_oauth",
        "access_token": TOKEN,
        "expires_at": LATER.isoformat(),
        "refresh": refresh,
    }
    session = create_session(
        client, server, toolset={"default_config": {"permission_policy": ALLOW}}, auth=auth
    )
    events = send_text(client, session.id, 'call mcp__word_book__leak {"text": "x"}\nsay Done.')
    assert of_type(events, "agent.mcp_tool_result")[0].is_error is None
    [form] = exchanged
    assert form["grant_type"] == "refresh_token"
    path = f"/v1/sessions/{session.id}/events?include=internal&limit=1000"
    everything = json.dumps(client.get(path, cast_to=object))
    assert not [form for form in (fresh, *forms_of(fresh), TOKEN) if form in everything]


def follow(url: str) -> tuple[str, str]:
    """A person opens a page and agrees: where the browser ends, and what it shows."""
    try:
        with urllib.request.urlopen(url, timeout=60) as page:
            return page.url, page.read().decode()
    except urllib.error.HTTPError as error:
        return error.url, error.read().decode()


def test_a_user_logs_in_by_a_link_and_sessions_use_the_tokens(client: anthropic.Anthropic):
    with loopback_server(AuthorizingServer()) as server:
        vault = client.beta.vaults.create(display_name="mine")
        asked = {"vault_id": vault.id, "mcp_server_url": server.mcp, "display_name": "books"}
        links = [client.post("/v1/mainspring/mcp_logins", body=asked, cast_to=dict[str, str])
                 for _ in range(2)]  # fmt: skip
        for link in links:
            _, shown = follow(link["authorization_url"])
            assert "You are logged in." in shown
        [token] = server.tokens
        live = [item for item in client.beta.vaults.credentials.list(vault.id)
                if item.archived_at is None]  # fmt: skip
        assert [(item.auth.type, item.display_name) for item in live] == [("mcp_oauth", "books")]
        session = create_session(client, server)
        session = client.beta.sessions.create(
            agent=session.agent.id, environment_id=session.environment_id, vault_ids=[vault.id]
        )
        events = send_text(client, session.id, 'call mcp__word_book__look_up {"text": "tea"}')
        assert server.sent_tokens()[-1] == token
        assert token not in str(links) + str(events)


@pytest.mark.parametrize(
    ("callback", "why"),
    [
        ({"state": "AAAA"}, "this link was not created here"),
        ({"iss": "https://evil.example"}, "from another authorization server"),
        ({"code": None, "error": "access_denied"}, "not authorized: access_denied"),
        ({"code": "guessed"}, "grants no token"),
    ],
)
def test_a_forged_login_callback_gives_no_credential(
    client: anthropic.Anthropic, callback: dict, why: str
):
    with loopback_server(AuthorizingServer(callback=callback)) as server:
        vault = client.beta.vaults.create(display_name="mine")
        asked = {"vault_id": vault.id, "mcp_server_url": server.mcp}
        link = client.post("/v1/mainspring/mcp_logins", body=asked, cast_to=dict[str, str])
        _, shown = follow(link["authorization_url"])
        assert why in shown
        assert client.beta.vaults.credentials.list(vault.id).data == []
