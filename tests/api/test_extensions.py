"""What our API has beside the Managed Agents API, asked of `mainspring serve`."""

from decimal import Decimal
from typing import Any, cast

import anthropic
import pytest
from anthropic import Anthropic
from tests.api.test_official_sdk import send_text

TOOLSET: dict[str, Any] = {
    "type": "agent_toolset_20260401",
    "default_config": {"permission_policy": {"type": "always_allow"}},
}
NOTE = 'call write {"file_path": "note.txt", "content": "tea"}\nsay Noted.'
CHANGE = 'call write {"file_path": "note.txt", "content": "coffee"}\nsay Changed.'
SHOW = 'call bash {"command": "cat note.txt"}\nsay So it is.'


def get(client: Anthropic, path: str, **query: object) -> Any:  # noqa: ANN401 (JSON)
    return cast("Any", client.get(path, cast_to=object, options={"params": query}))


def post(client: Anthropic, path: str, **body: object) -> Any:  # noqa: ANN401 (JSON)
    return cast("Any", client.post(path, cast_to=object, body=body))


@pytest.fixture(scope="module")
def session_id(client: Anthropic) -> str:
    """One that has written a note, and then changed it."""
    agent = client.beta.agents.create(
        name="clerk", model="claude-sonnet-4-5", tools=cast("Any", [TOOLSET])
    )
    environment = client.beta.environments.create(name="desk")
    session = client.beta.sessions.create(agent=agent.id, environment_id=environment.id)
    for words in (NOTE, CHANGE):
        send_text(client, session.id, words)
    return session.id


def results(client: Anthropic, session_id: str) -> str:
    """What tools have answered."""
    found = client.beta.sessions.events.list(session_id, types=["agent.tool_result"])
    return str([item.to_dict() for item in found])


def messages(client: Anthropic, session_id: str) -> list[int]:
    """After which events something was asked."""
    with client.beta.sessions.events.with_streaming_response.stream(
        session_id, extra_query={"after": 0}
    ) as response:
        seqs: list[int] = []
        seq = 0
        for line in response.iter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                seq = int(value)
            if name == "data" and '"user.message"' in value:
                seqs.append(seq)
            if len(seqs) == 2:
                break
    return seqs


def test_a_fork_continues_with_the_current_files(client: Anthropic, session_id: str):
    forked = post(client, f"/v1/sessions/{session_id}/fork", title="another way")
    assert forked["id"] != session_id
    assert forked["title"] == "another way"
    send_text(client, forked["id"], SHOW)
    assert "coffee" in results(client, forked["id"])


def test_a_fork_at_an_earlier_event_has_the_files_of_that_event(client: Anthropic, session_id: str):
    second = messages(client, session_id)[1]
    forked = post(client, f"/v1/sessions/{session_id}/fork", at=second - 1)
    send_text(client, forked["id"], SHOW)
    answers = results(client, forked["id"])
    assert "tea" in answers
    assert "coffee" not in answers
    again = post(client, f"/v1/sessions/{forked['id']}/fork")
    send_text(client, again["id"], SHOW)
    assert "coffee" not in results(client, again["id"])
    parent = post(client, f"/v1/sessions/{session_id}/fork")
    send_text(client, parent["id"], SHOW)
    assert "coffee" in results(client, parent["id"])


def test_a_fork_has_mounted_files_as_its_parent_left_them(client: Anthropic, session_id: str):
    current = client.beta.sessions.retrieve(session_id)
    file = client.beta.files.upload(file=("rows.csv", b"one\n", "text/csv"))
    session = client.beta.sessions.create(
        agent=current.agent.id,
        environment_id=current.environment_id,
        resources=[{"type": "file", "file_id": file.id, "mount_path": "/workspace/rows.csv"}],
    )
    send_text(client, session.id, 'call bash {"command": "echo two >> rows.csv"}\nsay Added.')
    forked = post(client, f"/v1/sessions/{session.id}/fork")
    send_text(client, forked["id"], 'call bash {"command": "cat rows.csv"}\nsay So it is.')
    assert "one\\ntwo" in results(client, forked["id"])


def test_a_fork_at_an_unknown_event_is_refused(client: Anthropic, session_id: str):
    with pytest.raises(anthropic.BadRequestError, match="cannot fork at 9999"):
        post(client, f"/v1/sessions/{session_id}/fork", at=9999)


def test_the_context_of_each_model_call_and_single_requests_are_returned(
    client: Anthropic, session_id: str
):
    path = f"/v1/sessions/{session_id}/context"
    first = get(client, path, limit=3)
    rest = get(client, path, limit=3, page=first["next_page"])
    assert [item["call"] for item in (*first["data"], *rest["data"])] == [1, 2, 3, 4]
    assert rest["next_page"] is None
    assert all(item["request"] is None for item in first["data"])
    [second] = get(client, path, call=2)["data"]
    assert "note.txt" in str(second["request"]["messages"])
    assert second["parts"]["tools"] > 0
    with pytest.raises(anthropic.NotFoundError):
        get(client, path, call=99)


def test_an_unchanged_session_replays_identically(client: Anthropic, session_id: str):
    replayed = post(client, f"/v1/sessions/{session_id}/replay")
    assert (replayed["ok"], replayed["calls"], replayed["what"]) == (True, 4, None)
    with pytest.raises(anthropic.BadRequestError, match="start"):
        post(client, f"/v1/sessions/{session_id}/replay", start=9999)


def test_costs_add_up_over_pages_and_groupings(client: Anthropic, session_id: str):
    for by in ("agent", "session", "model", "day"):
        report = get(client, "/v1/mainspring/cost", by=by)
        assert report["total"]["calls"] == sum(item["calls"] for item in report["data"])
    pages: list[Any] = []
    page: dict[str, object] = {}
    while True:
        pages.append(get(client, "/v1/mainspring/cost", by="session", limit=1, **page))
        if pages[-1]["next_page"] is None:
            break
        page = {"page": pages[-1]["next_page"]}
    bills = {item["key"]: item for report in pages for item in report["data"]}
    assert bills[session_id]["calls"] == 4
    whole = get(client, "/v1/mainspring/cost", by="session")
    assert sum(item["total"]["calls"] for item in pages) == whole["total"]["calls"]
    late = {"created_at[gte]": "2100-01-01T00:00:00Z"}
    assert get(client, "/v1/mainspring/cost", **late)["sessions"] == 0


def test_a_session_reports_its_remaining_budgets(client: Anthropic, session_id: str):
    budget = get(client, f"/v1/sessions/{session_id}/budget")
    assert budget["session"]["limit_usd"] is None
    assert [item["of"] for item in budget["today"]] == ["agent", "key", "tenant"]
    assert [item["agent_name"] for item in budget["threads"]] == ["clerk"]
    limited = client.beta.sessions.create(
        agent=client.beta.sessions.retrieve(session_id).agent.id,
        environment_id=client.beta.sessions.retrieve(session_id).environment_id,
        budget={"type": "limit", "max_list_cost": {"amount": "250", "currency": "USD"}},
    )
    left = get(client, f"/v1/sessions/{limited.id}/budget")["session"]
    assert (Decimal(left["limit_usd"]), Decimal(left["left_usd"])) == (Decimal("2.5"),) * 2


def test_rules_are_tested_on_a_call_with_the_reason(client: Anthropic):
    rules = {"allow": ["Bash(git status *)"], "deny": ["Bash(git push *)"]}
    path = "/v1/mainspring/policy/test"
    push = {"tool": "Bash", "input": {"command": "git push origin"}}
    denied = post(client, path, rules=rules, call=push)
    assert (denied["decision"], denied["rule"]) == ("deny", "Bash(git push *)")
    assert [item["behavior"] for item in denied["rules"]] == ["deny", "allow"]
    look = {"tool": "Bash", "input": {"command": "git status -s"}}
    assert post(client, path, rules=rules, call=look)["decision"] == "allow"
    with pytest.raises(anthropic.BadRequestError, match=r"rules\.deny\[0\]"):
        post(client, path, rules={"deny": ["Bash("]}, call=look)


def test_rules_are_tested_on_the_calls_of_a_session(client: Anthropic, session_id: str):
    retrial = post(client, f"/v1/sessions/{session_id}/policy/test", rules={"deny": ["Write"]})
    assert (retrial["calls"], retrial["changed"]) == (2, 2)
    assert {item["now"] for item in retrial["data"]} == {"deny"}


def test_a_session_without_hooks_or_failures_lists_none(client: Anthropic, session_id: str):
    assert get(client, f"/v1/sessions/{session_id}/hooks")["data"] == []
    assert get(client, "/v1/mainspring/parked")["data"] == []
    with pytest.raises(anthropic.NotFoundError):
        post(client, f"/v1/mainspring/parked/{session_id}/unpark")


def test_the_openapi_document_needs_no_key(client: Anthropic):
    with Anthropic(api_key="none", base_url=client.base_url, max_retries=0) as stranger:
        document = get(stranger, "/v1/mainspring/openapi.json")
    assert document["openapi"] == "3.1.0"
    assert "/v1/sessions/{session_id}/fork" in document["paths"]
