"""A program written with the official SDK, pointed at `mainspring serve` by its base URL only."""
# pyright: basic, reportArgumentType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# as its users write: with dictionaries, and without telling kinds of events apart by their classes

import re
import urllib.request
from typing import Any

import anthropic
import pytest
from tests.abilities import session_folder

TOOLSET = {
    "type": "agent_toolset_20260401",
    "default_config": {"permission_policy": {"type": "always_allow"}},
    "configs": [{"name": "write", "permission_policy": {"type": "always_ask"}}],
}
LOOKUP = {
    "type": "custom",
    "name": "lookup",
    "description": "Looks a word up in the client's own book.",
    "input_schema": {"type": "object", "properties": {"word": {"type": "string"}}},
}


def create_session(client: anthropic.Anthropic, name: str, *tools: object):
    agent = client.beta.agents.create(name=name, model="claude-sonnet-4-5", tools=tools)
    environment = client.beta.environments.create(name=f"{name}-environment")
    return client.beta.sessions.create(agent=agent.id, environment_id=environment.id, title=name)


def send_text(client: anthropic.Anthropic, session_id: str, text: str):
    """Every event that a message leads to, until the session is idle again."""
    with client.beta.sessions.events.stream(session_id) as stream:
        client.beta.sessions.events.send(
            session_id,
            events=[{"type": "user.message", "content": [{"type": "text", "text": text}]}],
        )
        return read_until_idle(stream)


def send_event(client: anthropic.Anthropic, session_id: str, event: object):
    with client.beta.sessions.events.stream(session_id) as stream:
        client.beta.sessions.events.send(session_id, events=[event])
        return read_until_idle(stream)


def read_until_idle(stream: anthropic.Stream):
    events = []
    for event in stream:
        events.append(event)
        if event.type == "session.status_idle":
            break
    return events


def test_a_session_is_created_used_and_archived(client: anthropic.Anthropic):
    session = create_session(client, "clerk", TOOLSET, LOOKUP)
    assert (session.status, session.title) == ("idle", "clerk")

    script = (
        'call write {"file_path": "note.txt", "content": "tea"}\n'
        'call bash {"command": "cat note.txt"}\n'
        'call lookup {"word": "tea"}\n'
        "say It is a drink."
    )
    events = send_text(client, session.id, script)
    [use] = [event for event in events if event.type == "agent.tool_use"]
    assert (use.name, use.evaluated_permission) == ("write", "ask")
    idle = events[-1]
    assert idle.stop_reason.type == "requires_action"
    assert idle.stop_reason.event_ids == [use.id]
    approvals: Any = client.get("/v1/mainspring/approvals", cast_to=object)
    assert use.id in [
        approval["tool_use_id"] for approval in approvals["data"]
    ]  # not some time later

    events = send_event(
        client,
        session.id,
        {"type": "user.tool_confirmation", "tool_use_id": use.id, "result": "allow"},
    )
    [custom] = [event for event in events if event.type == "agent.custom_tool_use"]
    assert (custom.name, custom.input) == ("lookup", {"word": "tea"})
    results = [event for event in events if event.type == "agent.tool_result"]
    assert "tea" in results[-1].content[0].text
    assert events[-1].stop_reason.event_ids == [custom.id]

    events = send_event(
        client,
        session.id,
        {
            "type": "user.custom_tool_result",
            "custom_tool_use_id": custom.id,
            "content": [{"type": "text", "text": "a hot drink"}],
        },
    )
    assert events[-1].stop_reason.type == "end_turn"
    [message] = [event for event in events if event.type == "agent.message"]
    assert message.content[0].text == "It is a drink."

    kept = client.beta.sessions.retrieve(session.id)
    assert kept.status == "idle"
    assert kept.usage.output_tokens
    archived = client.beta.sessions.archive(session.id)
    assert archived.archived_at is not None
    with pytest.raises(anthropic.BadRequestError):
        send_text(client, session.id, "say more")


def test_an_interrupt_stops_a_running_session(client: anthropic.Anthropic):
    session = create_session(client, "sleeper", TOOLSET)
    with client.beta.sessions.events.stream(session.id) as stream:
        client.beta.sessions.events.send(
            session.id,
            events=[
                {
                    "type": "user.message",
                    "content": [{"type": "text", "text": 'call bash {"command": "sleep 60"}'}],
                }
            ],
        )
        for event in stream:
            if event.type == "agent.tool_use":
                client.beta.sessions.events.send(session.id, events=[{"type": "user.interrupt"}])
            if event.type == "session.status_idle":
                assert event.stop_reason.type == "end_turn"
                break
    assert client.beta.sessions.retrieve(session.id).status == "idle"


def test_an_outcome_is_accepted_and_worked_on(client: anthropic.Anthropic):
    session = create_session(client, "worker")
    events = send_event(
        client,
        session.id,
        {
            "type": "user.define_outcome",
            "description": "say The report is written.",
            "rubric": {"type": "text", "content": "It has a title."},
            "max_iterations": 2,
        },
    )
    assert events[-1].stop_reason.type == "end_turn"
    [outcome] = client.beta.sessions.retrieve(session.id).outcome_evaluations
    assert outcome.description == "say The report is written."


def test_the_session_of_a_deployment_works_on_its_outcome(client: anthropic.Anthropic):
    agent = client.beta.agents.create(name="deployed", model="claude-sonnet-4-5", tools=[])
    environment = client.beta.environments.create(name="deployed-environment")
    outcome = {
        "type": "user.define_outcome",
        "description": "say The report is written.",
        "rubric": {"type": "text", "content": "It has a title."},
        "max_iterations": 2,
    }
    deployment = client.beta.deployments.create(
        agent=agent.id, environment_id=environment.id, name="weekly", initial_events=[outcome]
    )
    run = client.beta.deployments.run(deployment.id)
    with client.beta.sessions.events.stream(run.session_id) as stream:
        before = client.beta.sessions.retrieve(run.session_id).outcome_evaluations
        if not before or before[0].completed_at is None:
            read_until_idle(stream)
    [graded] = client.beta.sessions.retrieve(run.session_id).outcome_evaluations
    assert graded.description == "say The report is written."
    assert graded.completed_at is not None
    assert graded.iteration == 1
    assert graded.result == "failed"  # this model repeats what it is told, which is no verdict


def test_deltas_come_before_the_message_they_add_up_to(client: anthropic.Anthropic):
    session = create_session(client, "speaker")
    with client.beta.sessions.events.stream(session.id, event_deltas=["agent.message"]) as stream:
        client.beta.sessions.events.send(
            session.id,
            events=[
                {
                    "type": "user.message",
                    "content": [{"type": "text", "text": "say one two three four"}],
                }
            ],
        )
        events = read_until_idle(stream)
    kinds = [event.type for event in events]
    assert kinds.index("event_start") < kinds.index("event_delta") < kinds.index("agent.message")
    pieces = [event.delta.content.text for event in events if event.type == "event_delta"]
    assert "".join(pieces).startswith("one two")
    [message] = [event for event in events if event.type == "agent.message"]
    assert message.content[0].text.startswith("".join(pieces))


def test_lists_are_paged_and_errors_have_their_sdk_classes(client: anthropic.Anthropic):
    session = create_session(client, "lister")
    send_text(client, session.id, "say hello")
    paged = [event.id for event in client.beta.sessions.events.list(session.id, limit=2)]
    whole = [event.id for event in client.beta.sessions.events.list(session.id, limit=100)]
    backwards = client.beta.sessions.events.list(session.id, order="desc", limit=100)
    assert paged == whole == [event.id for event in backwards][::-1]
    assert session.id in [item.id for item in client.beta.sessions.list(limit=1)]
    with pytest.raises(anthropic.NotFoundError) as missing:
        client.beta.sessions.retrieve("sesn_nowhere")
    assert missing.value.request_id
    with pytest.raises(anthropic.BadRequestError):
        client.beta.sessions.create(
            agent="agent_nowhere", environment_id="env_nowhere", title="x" * 9999
        )
    stranger = client.with_options(api_key="msk_wrong")
    with pytest.raises(anthropic.AuthenticationError):
        stranger.beta.agents.list()


def test_files_vaults_memory_and_deployments_work(client: anthropic.Anthropic):
    file = client.beta.files.upload(file=("a.txt", b"hello", "text/plain"))
    assert client.beta.files.download(file.id).read() == b"hello"
    vault = client.beta.vaults.create(display_name="keys")
    credential = client.beta.vaults.credentials.create(
        vault.id,
        auth={
            "type": "environment_variable",
            "secret_name": "TOKEN",
            "secret_value": "very-secret-value",
            "networking": {"type": "limited", "allowed_hosts": ["api.example.com"]},
        },
    )
    assert "very-secret-value" not in credential.to_json()
    store = client.beta.memory_stores.create(name="notes")
    memory = client.beta.memory_stores.memories.create(store.id, path="/a.md", content="x")
    assert client.beta.memory_stores.memories.retrieve(memory.id, memory_store_id=store.id)
    agent = client.beta.agents.create(name="nightly", model="claude-sonnet-4-5")
    environment = client.beta.environments.create(name="nightly-environment")
    deployment = client.beta.deployments.create(
        name="nightly",
        agent=agent.id,
        environment_id=environment.id,
        initial_events=[
            {"type": "user.message", "content": [{"type": "text", "text": "say good night"}]}
        ],
        schedule={"type": "cron", "expression": "0 3 * * *", "timezone": "Europe/Berlin"},
    )
    run = client.beta.deployments.run(deployment.id)
    assert run.session_id
    assert client.beta.sessions.retrieve(run.session_id).deployment_id == deployment.id


def test_files_written_to_outputs_are_listed_and_downloaded(
    client: anthropic.Anthropic,
):
    session = create_session(client, "author", TOOLSET | {"configs": []})
    script = (
        f'call bash {{"command": "cd {session_folder()}/outputs; mkdir sub; echo one > sub/a.csv;'
        ' ln -s /etc/passwd link; ls"}\n'
        'call write {"file_path": "/mnt/session/outputs/b.md", "content": "two"}\n'
        "say Written."
    )
    events = send_text(client, session.id, script)
    results = [event for event in events if event.type == "agent.tool_result"]
    assert [result.is_error or False for result in results] == [False, False], str(results)
    files = {file.filename: file for file in client.beta.files.list(scope_id=session.id)}
    assert set(files) == {"a.csv", "b.md"}
    assert client.beta.files.download(files["a.csv"].id).read() == b"one\n"
    assert files["b.md"].downloadable

    client.beta.files.delete(files["a.csv"].id)
    again = 'call bash {"command": "echo three > b.md"}\nsay Again.'
    send_text(client, session.id, again)
    [changed] = client.beta.files.list(scope_id=session.id)
    assert client.beta.files.download(changed.id).read() == b"three\n"
    client.beta.sessions.archive(session.id)
    assert client.beta.files.download(changed.id).read() == b"three\n"
    client.beta.sessions.delete(session.id)
    assert list(client.beta.files.list(scope_id=session.id)) == []


def test_the_root_of_the_service_is_a_page_that_runs_only_its_own_files(
    client: anthropic.Anthropic,
):
    """The dashboard, or, in an installation without a build of it, a page about the API."""
    with urllib.request.urlopen(str(client.base_url), timeout=60) as answer:
        page, headers = answer.read().decode(), answer.headers
    assert headers.get_content_type() == "text/html"
    assert "<title>Mainspring" in page
    scripts = re.findall(r"<script[^>]*>", page)
    assert [tag for tag in scripts if not re.search(r' src="/dashboard/app\.js[^":]*"', tag)] == []
    assert bool(scripts) or "/v1/mainspring/openapi.json" in page
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
