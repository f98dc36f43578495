"""Agents that call others, by a program with the official SDK and `mainspring serve`."""
# pyright: basic, reportArgumentType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# as its users write: with dictionaries, and without telling kinds of events apart by their classes

import json

import anthropic

ALLOWED = {
    "type": "agent_toolset_20260401",
    "default_config": {"permission_policy": {"type": "always_allow"}},
}
CAREFUL = {
    "type": "agent_toolset_20260401",
    "default_config": {"permission_policy": {"type": "always_allow"}},
    "configs": [{"name": "write", "permission_policy": {"type": "always_ask"}}],
}


def agent_call(kind: str, task: str, **more: object) -> str:
    given = {"description": kind, "prompt": task, "subagent_type": kind, **more}
    return f"call agent {json.dumps(given)}"


def team(client: anthropic.Anthropic, name: str, *members: object, **fields: object):
    agent = client.beta.agents.create(
        name=name,
        model="claude-sonnet-4-5",
        multiagent={"type": "coordinator", "agents": list(members)},
        **fields,
    )
    environment = client.beta.environments.create(name=f"{name}-environment")
    return client.beta.sessions.create(agent=agent.id, environment_id=environment.id)


def member(client: anthropic.Anthropic, name: str, *tools: object) -> str:
    agent = client.beta.agents.create(
        name=name, model="claude-haiku-4-5", system=f"You are {name}.", tools=tools
    )
    return agent.id


def message(text: str):
    return {"type": "user.message", "content": [{"type": "text", "text": text}]}


def send_event(client: anthropic.Anthropic, session_id: str, event: object):
    """Every event that this leads to, until the session is idle."""
    events = []
    with client.beta.sessions.events.stream(session_id) as stream:
        client.beta.sessions.events.send(session_id, events=[event])
        for item in stream:
            events.append(item)
            if item.type == "session.status_idle":
                return events
    raise AssertionError("the stream has ended before the session was idle")


def of_type(events: list, type_: str) -> list:
    return [event for event in events if event.type == type_]


def test_a_coordinator_calls_two_agents_at_once(client: anthropic.Anthropic):
    scout, clerk = member(client, "scout"), member(client, "clerk", ALLOWED)
    session = team(client, "lead", scout, {"type": "agent", "id": clerk, "version": 1})
    counting = agent_call("clerk", 'call bash {"command": "echo 3"}\nsay Three.')
    events = send_event(
        client, session.id, message(f"{agent_call('scout', 'say Land.')} && {counting}")
    )

    assert events[-1].stop_reason.type == "end_turn"
    assert len(of_type(events, "session.status_idle")) == 1
    made = of_type(events, "session.thread_created")
    assert {item.agent_name for item in made} == {"scout", "clerk"}
    ids = {item.agent_name: item.session_thread_id for item in made}
    idled = of_type(events, "session.thread_status_idle")
    assert {(item.agent_name, item.session_thread_id) for item in idled} == set(ids.items())
    assert len(of_type(events, "session.thread_status_running")) == 2
    assert {item.name for item in of_type(events, "agent.tool_use")} == {"agent"}
    results = [item.content[0].text for item in of_type(events, "agent.tool_result")]
    assert any("Land." in result for result in results)
    assert any("Three." in result for result in results)

    threads = {t.agent.name: t for t in client.beta.sessions.threads.list(session.id)}
    assert set(threads) == {"lead", "scout", "clerk"}
    main = threads["lead"]
    assert (threads["clerk"].agent.id, threads["clerk"].agent.system) == (clerk, "You are clerk.")
    assert {thread.parent_thread_id for thread in threads.values()} == {None, main.id}
    assert {thread.status for thread in threads.values()} == {"idle"}
    assert all(t.usage.output_tokens and t.stats.duration_seconds for t in threads.values())
    whole = client.beta.sessions.retrieve(session.id)
    assert whole.status == "idle"
    spent = sum(thread.usage.output_tokens for thread in threads.values())
    assert whole.usage.output_tokens == spent

    own = list(client.beta.sessions.threads.events.list(ids["clerk"], session_id=session.id))
    assert own[0].type == "agent.thread_message_received"
    [use] = of_type(own, "agent.tool_use")
    assert (use.name, use.session_thread_id) == ("bash", None)
    assert [item.type for item in own].count("session.thread_status_idle") == 1
    assert not of_type(own, "session.status_idle")
    listed = client.beta.sessions.events.list(session.id, types=["session.thread_status_idle"])
    assert {item.session_thread_id for item in listed} == set(ids.values())
    [idle] = client.beta.sessions.events.list(session.id, types=["session.status_idle"])
    assert idle.id == events[-1].id


def test_a_call_of_a_subagent_is_answered_by_the_ids_the_session_waits_for(
    client: anthropic.Anthropic,
):
    session = team(client, "careful-lead", member(client, "writer", CAREFUL), tools=[ALLOWED])
    task = 'call write {"file_path": "note.txt", "content": "tea"}\nsay Written.'
    events = send_event(client, session.id, message(f"{agent_call('writer', task)}\nsay All done."))
    stop = events[-1].stop_reason
    [use] = [item for item in of_type(events, "agent.tool_use") if item.name == "write"]
    assert (stop.type, stop.event_ids) == ("requires_action", [use.id])
    [made] = of_type(events, "session.thread_created")
    assert use.session_thread_id == made.session_thread_id

    yes = {"type": "user.tool_confirmation", "tool_use_id": use.id, "result": "allow"}
    events = send_event(client, session.id, yes)
    assert events[-1].stop_reason.type == "end_turn"
    [confirmed] = of_type(events, "user.tool_confirmation")
    assert confirmed.session_thread_id == made.session_thread_id
    assert of_type(events, "agent.message")[-1].content[0].text == "All done."
    [result] = of_type(events, "agent.tool_result")
    assert "Written." in result.content[0].text


def test_a_client_runs_the_custom_tool_of_a_subagent(client: anthropic.Anthropic):
    lookup = {
        "type": "custom",
        "name": "lookup",
        "description": "Looks a word up.",
        "input_schema": {"type": "object", "properties": {"word": {"type": "string"}}},
    }
    session = team(client, "reader", member(client, "librarian", lookup))
    task = 'call lookup {"word": "tea"}\nsay A drink.'
    events = send_event(client, session.id, message(agent_call("librarian", task)))
    [use] = of_type(events, "agent.custom_tool_use")
    assert events[-1].stop_reason.event_ids == [use.id]
    assert use.session_thread_id
    given = {"type": "text", "text": "a hot drink"}
    found = {"type": "user.custom_tool_result", "custom_tool_use_id": use.id, "content": [given]}
    events = send_event(client, session.id, found)
    assert events[-1].stop_reason.type == "end_turn"
    assert "A drink." in of_type(events, "agent.tool_result")[0].content[0].text


def test_one_thread_is_interrupted_and_archived_and_the_others_continue(
    client: anthropic.Anthropic,
):
    session = team(client, "captain", member(client, "sleeper", ALLOWED), {"type": "self"})
    sleeping = agent_call("sleeper", 'call bash {"command": "sleep 60"}')
    awake = agent_call("captain", "say I am here.")
    with client.beta.sessions.events.stream(session.id) as stream:
        client.beta.sessions.events.send(session.id, events=[message(f"{sleeping} && {awake}")])
        for event in stream:
            if event.type == "session.thread_created" and event.agent_name == "sleeper":
                sleeper = event.session_thread_id
            if event.type == "session.thread_status_idle" and event.agent_name == "captain":
                stop = {"type": "user.interrupt", "session_thread_id": sleeper}
                client.beta.sessions.events.send(session.id, events=[stop])
            if event.type == "session.status_idle":
                assert event.stop_reason.type == "end_turn"
                break
    listed = list(client.beta.sessions.events.list(session.id))
    results = [item.content[0].text for item in of_type(listed, "agent.tool_result")]
    assert any("I am here." in result for result in results)
    assert any("stopped" in result for result in results)
    archived = client.beta.sessions.threads.archive(sleeper, session_id=session.id)
    assert archived.status == "terminated"


def test_a_session_is_running_while_a_background_subagent_works(client: anthropic.Anthropic):
    session = team(client, "patient", member(client, "slow", ALLOWED), tools=[ALLOWED])
    task = 'call bash {"command": "while [ ! -e go ]; do sleep 0.05; done"}\nsay At last.'
    begin = agent_call("slow", task, run_in_background=True)
    go = 'call write {"file_path": "go", "content": "now"}'
    answers = []
    with client.beta.sessions.events.stream(session.id) as stream:
        client.beta.sessions.events.send(session.id, events=[message(f"{begin}\nsay I wait.")])
        for event in stream:
            if event.type == "agent.message" and event.content[0].text == "I wait.":
                assert client.beta.sessions.retrieve(session.id).status == "running"
                client.beta.sessions.events.send(session.id, events=[message(f"{go}\nsay Went.")])
            if event.type == "agent.thread_message_received":
                answers.append(event)
            if event.type == "session.status_idle":
                break
    [answer] = answers
    assert "At last." in answer.content[0].text
    assert client.beta.sessions.retrieve(session.id).status == "idle"
