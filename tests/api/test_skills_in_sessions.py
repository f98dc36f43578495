"""Uploaded skills and slash commands in sessions, with the official SDK and `mainspring serve`."""
# pyright: basic, reportArgumentType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false
# as its users write: with dictionaries, and without telling kinds of events apart by their classes

import anthropic
import pytest

TOOLSET = {"type": "agent_toolset_20260401"}
MANIFEST = b"""---
name: tea-making
description: Makes tea. Use it when somebody wants tea.
allowed-tools: Bash
---
say Tea with $ARGUMENTS.
"""
SCRIPT = b"#!/bin/sh\necho the kettle boils\n"


def upload_skill(client: anthropic.Anthropic):
    return client.beta.skills.create(
        files=[("tea-making/SKILL.md", MANIFEST), ("tea-making/scripts/boil.sh", SCRIPT)]
    )


def create_session(client: anthropic.Anthropic, name: str, *skills: object):
    agent = client.beta.agents.create(
        name=name, model="claude-sonnet-4-5", tools=[TOOLSET], skills=skills
    )
    environment = client.beta.environments.create(name=f"{name}-environment")
    return client.beta.sessions.create(agent=agent.id, environment_id=environment.id)


def send_text(client: anthropic.Anthropic, session_id: str, text: str):
    events = []
    with client.beta.sessions.events.stream(session_id) as stream:
        content = [{"type": "text", "text": text}]
        client.beta.sessions.events.send(
            session_id, events=[{"type": "user.message", "content": content}]
        )
        for event in stream:
            events.append(event)
            if event.type == "session.status_idle":
                return events
    raise AssertionError("the stream has ended before the session was idle")


def results(events: list) -> list[str]:
    return [event.content[0].text for event in events if event.type == "agent.tool_result"]


def test_a_session_has_the_skills_of_its_agent(client: anthropic.Anthropic):
    skill = upload_skill(client)
    session = create_session(
        client,
        "butler",
        {"type": "custom", "skill_id": skill.id, "version": "latest"},
        {"type": "anthropic", "skill_id": "xlsx"},
    )
    assert session.agent.skills[0].version == skill.latest_version_id
    events = send_text(client, session.id, 'call skill {"name": "tea-making", "arguments": "milk"}')
    [text] = results(events)
    assert "say Tea with milk." in text
    assert "scripts/boil.sh" in text
    folder = text.partition("Files in ")[2].partition(":")[0]
    client.beta.skills.delete(skill.id)  # what a session has got, it keeps
    events = send_text(
        client, session.id, f'call bash {{"command": "sh {folder}/scripts/boil.sh"}}'
    )
    assert "the kettle boils" in results(events)[0]
    writing = "python3 -c 'open(chr(120), chr(119))'"  # the words of which name no path
    events = send_text(client, session.id, f'call bash {{"command": "cd {folder}; {writing}"}}')
    assert "ead-only" in results(events)[0] or "denied" in results(events)[0]
    events = send_text(client, session.id, "/tea-making lemon")
    assert [e.content[0].text for e in events if e.type == "agent.message"] == ["Tea with lemon."]
    path = f"/v1/sessions/{session.id}/events?include=internal&types=skill.used"
    used = client.get(path, cast_to=object)["data"]
    assert [(i["name"], i["by"]) for i in used] == [("tea-making", "model"), ("tea-making", "user")]


def test_slash_commands_are_listed_and_executed(client: anthropic.Anthropic):
    skill = upload_skill(client)
    session = create_session(client, "page", {"type": "custom", "skill_id": skill.id})
    path = f"/v1/sessions/{session.id}/commands"

    def give(name: str, arguments: str = ""):
        body = {"name": name, "arguments": arguments}
        return client.post(path, cast_to=object, body=body)["reply"]

    names = [item["name"] for item in client.get(path, cast_to=object)["data"]]
    assert {"compact", "cost", "plan", "tea-making"} <= set(names)
    events = send_text(client, session.id, "/etc is a folder\nsay Indeed.")
    assert events[-1].stop_reason.type == "end_turn"
    assert give("/cost")["turns"] == 1
    assert give("skills")["skills"][0]["name"] == "tea-making"
    assert give("agents") == {"type": "agents", "types": [], "threads": []}
    assert give("approve")["calls"] == []
    with client.beta.sessions.events.stream(session.id) as stream:
        assert give("tea-making", "sugar")["type"] == "sent"
        said_last = ""
        for event in stream:
            if event.type == "agent.message":
                said_last = event.content[0].text
            if event.type == "session.status_idle":
                break
    assert said_last == "Tea with sugar."
    for name, arguments, words in (
        ("costs", "", "did you mean /cost"),
        ("clear", "", "client"),
        ("approve", "1 yes", "user.tool_confirmation"),
        ("mode", "nonsense", "nonsense"),
    ):
        with pytest.raises(anthropic.BadRequestError, match=words):
            give(name, arguments)
