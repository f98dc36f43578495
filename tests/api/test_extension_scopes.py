"""Hooks that ran, and sessions that are parked: who may see them, and let them go on."""

from tests.api.whole_api import Whole

from mainspring.core.events import HookRan
from mainspring.log.session_lease import hold_session
from mainspring.service.access.api_keys import CreateKey, Keys
from mainspring.service.access.principal import Principal

BOSS = Principal(tenant="acme", key_id="cli", role="admin", name="olga")


async def key(api: Whole, asked: CreateKey) -> str:
    return (await Keys(api.service.infrastructure.store.records).create(BOSS, asked)).key


async def test_hook_runs_are_listed_in_pages_in_order(api: Whole):
    session_id = api.ids["acme"]["session_id"]
    outcomes = ("ok", "blocked", "failed", "timed_out", "ok")
    async with hold_session(api.service.infrastructure.log, session_id) as writer:
        for number, outcome in enumerate(outcomes):
            await writer.append(
                HookRan(hook_event="PreToolUse", handler=f"hook {number}", outcome=outcome)
            )
    path = f"/v1/sessions/{session_id}/hooks?limit=2"
    viewer = api.keys["acme", "viewer"]
    found: list[tuple[str, str]] = []
    page = ""
    while True:
        answer = (await api.ask("GET", f"{path}{page}", key=viewer)).json
        found += [(item["handler"], item["outcome"]) for item in answer["data"]]
        if answer["next_page"] is None:
            break
        page = f"&page={answer['next_page']}"
    assert found == [(f"hook {number}", outcome) for number, outcome in enumerate(outcomes)]
    assert (await api.ask("GET", f"{path}&page=nonsense", key=viewer)).status == 400


async def test_a_parked_session_is_listed_with_its_reason_and_unparked_by_an_operator(api: Whole):
    session_id = api.ids["acme"]["session_id"]
    one = f"/v1/mainspring/parked/{session_id}"
    listed = await api.ask("GET", "/v1/mainspring/parked", key=api.keys["acme", "viewer"])
    assert [(i["id"], i["reason"]) for i in listed.json["data"]] == [(session_id, "broken")]
    operator = api.keys["acme", "operator"]
    agent = {"x-mainspring-agent": "agent_x"}
    refused = await api.ask("POST", f"{one}/unpark", key=operator, headers=agent)
    assert (refused.status, refused.json["error"]["type"]) == (403, "permission_error")
    assert (await api.ask("GET", one, key=operator)).status == 200
    let_go = await api.ask("POST", f"{one}/unpark", key=operator)
    assert (let_go.status, let_go.json["id"]) == (200, session_id)
    assert (await api.ask("GET", one, key=operator)).status == 404
    assert (await api.ask("POST", f"{one}/unpark", key=operator)).status == 404


async def test_a_key_of_one_agent_sees_only_its_own_sessions_costs_and_budgets(api: Whole):
    ids = api.ids["acme"]
    own = await key(api, CreateKey(name="own", role="user", agent_id=ids["agent_id"]))
    other = await key(api, CreateKey(name="other", role="user", agent_id="agent_other"))
    assert (await api.ask("GET", "/v1/mainspring/cost", key=own)).json["sessions"] >= 1
    assert (await api.ask("GET", "/v1/mainspring/cost", key=other)).json["sessions"] == 0
    foreign = f"/v1/mainspring/cost?agent_id={ids['agent_id']}"
    assert (await api.ask("GET", foreign, key=other)).status == 403
    for what in ("budget", "context", "hooks"):
        path = f"/v1/sessions/{ids['session_id']}/{what}"
        assert (await api.ask("GET", path, key=own)).status == 200
        assert (await api.ask("GET", path, key=other)).status in (403, 404)
    budget = (await api.ask("GET", f"/v1/sessions/{ids['session_id']}/budget", key=own)).json
    assert [item["of"] for item in budget["today"]] == ["agent"]
