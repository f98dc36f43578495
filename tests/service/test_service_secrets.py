"""Secrets of every kind, given to the real service at its most talkative: nothing repeats one."""

import json
import urllib.request
from pathlib import Path
from typing import Any

from anthropic import Anthropic
from tests.api.conftest import Platform, platform

VALUES = {
    "variable": "plain-value-Zq81hfKd02",
    "bearer": "bearer-value-Xw92kkPq77",
    "repository": "repository-value-Lm33ppQa19",
}


def ask(running: Platform, path: str, body: object = None) -> str:
    request = urllib.request.Request(
        running.url + path,
        data=None if body is None else json.dumps(body).encode(),
        headers={"x-api-key": running.key, "content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read().decode()


def make(running: Platform, path: str, **body: object) -> Any:  # noqa: ANN401 (JSON)
    return json.loads(ask(running, path, body))


def provide_secrets(running: Platform) -> tuple[str, dict[str, str]]:
    """A session with all that can be secret around it, and the secrets."""
    vault = make(running, "/v1/vaults", display_name="v")
    credentials = f"/v1/vaults/{vault['id']}/credentials"
    variable = {
        "type": "environment_variable",
        "secret_name": "MY_VARIABLE",
        "secret_value": VALUES["variable"],
        "networking": {"type": "unrestricted"},
    }
    bearer = {
        "type": "static_bearer",
        "mcp_server_url": "https://mcp.example.com/mcp",
        "token": VALUES["bearer"],
    }
    make(running, credentials, auth=variable)
    make(running, credentials, auth=bearer)
    tools = [{"type": "agent_toolset_20260401"}]
    agent = make(running, "/v1/agents", name="a", model="claude-opus-5-5", tools=tools)
    environment = make(running, "/v1/environments", name="e", config={"type": "cloud"})
    begun = {"agent": agent["id"], "environment_id": environment["id"]}
    hook = make(
        running,
        "/v1/mainspring/webhooks",
        url="https://hooks.example.com/in",
        event_types=["session.created"],
    )
    trigger = make(
        running,
        "/v1/mainspring/triggers",
        **begun,
        name="t",
        scheme={"type": "github"},
        message="x",
    )
    key = make(running, "/v1/mainspring/keys", name="k")
    repository = {
        "type": "github_repository",
        "url": "https://127.0.0.1/owner/name",
        "authorization_token": VALUES["repository"],
    }
    script = f"call bash {json.dumps({'command': 'env; cat /proc/self/environ'})}"
    said = {"type": "user.message", "content": [{"type": "text", "text": script}]}
    session = make(
        running,
        "/v1/sessions",
        **begun,
        vault_ids=[vault["id"]],
        resources=[repository],
        initial_events=[said],
    )
    made = {"webhook": hook["secret"], "trigger": trigger["secret"], "key": key["key"]}
    return session["id"], {**VALUES, **made, "admin": running.key}


def test_no_secret_is_in_the_log_audit_metrics_or_any_file(tmp_path: Path):
    with (
        platform(tmp_path, "--log-level", "debug") as running,
        Anthropic(api_key=running.key, base_url=running.url, max_retries=0, timeout=60) as client,
    ):
        session_id, secrets = provide_secrets(running)
        with client.beta.sessions.events.stream(session_id, extra_query={"after": "0"}) as stream:
            for event in stream:
                if event.type == "session.status_idle":
                    break
        told = {
            path: ask(running, path)
            for path in (
                f"/v1/sessions/{session_id}",
                f"/v1/sessions/{session_id}/events?include=internal&limit=100",
                f"/v1/sessions/{session_id}/context?call=1",
                "/v1/mainspring/audit?limit=100",
                "/metrics",
            )
        }
    for file in tmp_path.rglob("*"):
        if file.is_file():
            told[file.name] = file.read_bytes().decode("latin1")
    assert {"stderr.txt", "mainspring.db"} <= told.keys()
    for name, secret in secrets.items():
        assert [place for place, text in told.items() if secret in text] == [], name
