"""What holds for every route there is. A new one is swept too, or fails here until it can be."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import anyio
from tests.api.whole_api import Answer, Whole, filled, parameters, skill_form

from mainspring.edges.api.route import Route
from mainspring.service.access.principal import ROLES

MINE, THEIRS = "rival", "acme"
PLATFORM = "/v1/mainspring/tenants"
"""Not a tenant's own: these are for the platform's administrators."""
BODIES: Mapping[str, object] = {
    "post /v1/memory_stores/{memory_store_id}/memories": {"path": "/b.md", "content": "tea"},
    "post /v1/mainspring/webhooks/{webhook_id}/rotate_secret": {},
    "post /v1/sessions/{session_id}/commands": {"name": "cost"},
    "post /v1/sessions/{session_id}/events": {"events": [{"type": "user.interrupt"}]},
    "post /v1/sessions/{session_id}/move": {"transfer": f"tran_{'0' * 32}"},
    "post /v1/sessions/{session_id}/policy/test": {"rules": {}},
    "post /v1/sessions/{session_id}/resources": {"type": "file", "file_id": "file_none"},
    "post /v1/sessions/{session_id}/resources/{resource_id}": {"authorization_token": "t"},
    "post /v1/vaults/{vault_id}/credentials": {
        "auth": {
            "type": "static_bearer",
            "mcp_server_url": "https://mcp.example.com/mcp",
            "token": "t",
        }
    },
    "post /v1/agents/{agent_id}": {"version": 1},
    "post /v1/environments/{environment_id}/work/{work_id}": {"metadata": {}},
    "post /v1/mainspring/approvals/{approval_id}/answer": {"result": "deny"},
    "post /v1/mainspring/workflow_runs/{workflow_run_id}/fork": {"at": "look"},
    "post /v1/mainspring/workflow_runs/{workflow_run_id}/respond": {"decision": "approve"},
    "post /v1/mainspring/workflow_runs/{workflow_run_id}/steer": {"action": "pause"},
    "post /v1/mainspring/campaigns/{campaign_id}/promote": {"diff_hash": "0" * 64},
    "post /v1/sessions/{session_id}/rewind": {"to": 1, "head": 1},
}
"""What is sent, where `{}` is not enough to be understood."""
QUERIES = {
    "get /v1/mainspring/memory_stores/{memory_store_id}/search": "?query=anything",
    "get /v1/sessions/{session_id}/log/blob": f"?hash={'0' * 64}",
    "get /v1/sessions/{session_id}/log/event": "?seq=1",
    "get /v1/sessions/{session_id}/log/search": "?query=anything",
    "get /v1/mainspring/search": "?query=anything",
    "get /v1/mainspring/workflow_runs/{workflow_run_id}/node": "?node=look",
}


def routes_with_ids(api: Whole) -> list[Route]:
    """The routes with an id in their path; those without a key have no tenant."""
    return [
        r for r in api.routes if parameters(r) and not r.is_open and not r.path.startswith(PLATFORM)
    ]


async def ask(api: Whole, route: Route, ids: Mapping[str, str], *, key: str | None) -> Answer:
    body: object = BODIES.get(route.operation, {})
    if route.upload is not None:
        body = skill_form()
    if route.method != "POST":
        body = None
    with anyio.fail_after(60):
        path = filled(route, ids) + QUERIES.get(route.operation, "")
        return await api.ask(route.method, path, key=key, body=body)


def unknown(ids: Mapping[str, str]) -> dict[str, str]:
    """Of the same shape, and nobody's."""
    return {
        name: f"{id_.partition('_')[0]}_{number:032x}"
        for number, (name, id_) in enumerate(ids.items(), 1)
    }


def normalize_response(answer: Answer, ids: Mapping[str, str]) -> tuple[int, str]:
    """What was answered, but for the ids and for which request it was."""
    text = answer.body.replace(answer.json.get("request_id", "-"), "REQUEST")
    for name, id_ in ids.items():
        text = text.replace(id_, f"<{name}>")
    return answer.status, text


async def read_everything(api: Whole, tenant: str) -> dict[tuple[str, str], object]:
    """All that a tenant has, as it is stored, but for when its keys were used."""
    store = api.service.infrastructure.store
    found: dict[tuple[str, str], object] = {}
    after = None
    while page := await store.records.everything(after=after):
        after = page[-1]
        for item in page:
            if item.tenant == tenant and item.kind != "api_key":
                found[item.kind, item.id] = item
    session = api.ids[tenant]["session_id"]
    found["log", session] = await store.session(session)
    found["inbox", session] = await store.pending(session)
    return found


async def test_ids_of_another_tenant_are_not_found_and_nothing_changes(api: Whole):
    before = await read_everything(api, THEIRS)
    theirs = api.ids[THEIRS]
    for route in routes_with_ids(api):
        answer = await ask(api, route, theirs, key=api.keys[MINE, "admin"])
        assert answer.status == 404, (route.operation, answer.body)
        assert answer.json["error"]["type"] == "not_found_error"
    assert await read_everything(api, THEIRS) == before


async def test_an_id_of_another_tenant_looks_like_an_unknown_id(api: Whole):
    theirs, nobodys = api.ids[THEIRS], unknown(api.ids[THEIRS])
    for route in routes_with_ids(api):
        foreign = await ask(api, route, theirs, key=api.keys[MINE, "admin"])
        missing = await ask(api, route, nobodys, key=api.keys[MINE, "admin"])
        assert normalize_response(foreign, theirs) == normalize_response(missing, nobodys), (
            route.operation
        )


async def test_without_a_key_known_and_unknown_ids_look_alike(api: Whole):
    theirs, nobodys = api.ids[THEIRS], unknown(api.ids[THEIRS])
    for route in api.routes:
        if route.is_open and parameters(route):
            current = await api.ask(route.method, filled(route, theirs), key=None, body={})
            missing = await api.ask(route.method, filled(route, nobodys), key=None, body={})
            assert current.status == 401
            assert normalize_response(current, theirs) == normalize_response(missing, nobodys), (
                route.operation
            )


async def test_ids_of_another_tenant_are_not_found_below_own_parents(api: Whole):
    before = await read_everything(api, THEIRS)
    for route in routes_with_ids(api):
        *above, last = parameters(route)
        if not above:
            continue
        mixed = {**api.ids[MINE], last: api.ids[THEIRS][last]}
        answer = await ask(api, route, mixed, key=api.keys[MINE, "admin"])
        assert answer.status == 404, (route.operation, answer.body)
    assert await read_everything(api, THEIRS) == before


async def test_a_resource_is_found_only_under_its_own_parent(api: Whole):
    ids = api.ids[MINE]
    begun = {"agent": ids["agent_id"], "environment_id": ids["environment_id"]}
    second = {
        "session_id": await api.make(MINE, "/v1/sessions", begun),
        "environment_id": await api.make(MINE, "/v1/environments", {"name": "second"}),
        "vault_id": await api.make(MINE, "/v1/vaults", {"display_name": "second"}),
        "memory_store_id": await api.make(MINE, "/v1/memory_stores", {"name": "second"}),
        "skill_id": await api.make(MINE, "/v1/skills", skill_form()),
    }
    for route in routes_with_ids(api):
        parent, *below = parameters(route)
        if below:
            elsewhere = {**ids, parent: second[parent]["id"]}
            answer = await ask(api, route, elsewhere, key=api.keys[MINE, "admin"])
            assert answer.status == 404, (route.operation, answer.body)


def is_endless(route: Route) -> bool:
    """Whether its response does not end, or is not about one tenant."""
    return route.media_type == "text/event-stream" or route.path.startswith(PLATFORM)


async def test_lists_contain_nothing_of_other_tenants(api: Whole):
    theirs = {id_ for name, id_ in api.ids[THEIRS].items() if name != "tenant_id"}
    for route in api.routes:
        if route.method == "GET" and not parameters(route) and not is_endless(route):
            answer = await ask(api, route, {}, key=api.keys[MINE, "admin"])
            assert [id_ for id_ in theirs if id_ in answer.body] == [], route.operation


async def test_own_resources_are_found(api: Whole):
    """Else all of the above would hold for nothing."""
    looks = [r for r in routes_with_ids(api) if r.method == "GET" and r.response_type is not None]
    for route in looks:
        # neither tenant has any: see service/test_campaigns, service/test_eval_runs
        if not {"campaign_id", "eval_run_id"}.isdisjoint(parameters(route)):
            continue
        if route.path.endswith("/snapshots/diff"):  # the session has run nothing: see test_views
            continue
        answer = await ask(api, route, api.ids[THEIRS], key=api.keys[THEIRS, "admin"])
        assert answer.status == 200, (route.operation, answer.body)


async def test_every_route_except_open_ones_needs_a_key(api: Whole):
    for route in api.routes:
        answer = await ask(api, route, api.ids[THEIRS], key=None)
        if not route.is_open:
            assert answer.status == 401, (route.operation, answer.body)
            assert answer.json["error"]["type"] == "authentication_error"


async def test_every_route_refuses_a_role_below_its_own(api: Whole):
    before = await read_everything(api, THEIRS)
    for route in api.routes:
        for role in ROLES[: ROLES.index(route.role)]:
            answer = await ask(api, route, api.ids[THEIRS], key=api.keys[THEIRS, role])
            assert answer.status == 403, (route.operation, role, answer.body)
    assert await read_everything(api, THEIRS) == before


async def test_only_platform_administrators_can_access_tenants(api: Whole):
    for route in api.routes:
        if route.path.startswith(PLATFORM):
            body: dict[str, Any] = {"id": "fresh"} if "{" not in route.path else {}
            answer = await api.ask(
                route.method,
                filled(route, api.ids[THEIRS]),
                key=api.keys[THEIRS, "admin"],
                body=body if route.method == "POST" else None,
            )
            assert answer.status == 403, (route.operation, answer.body)


async def test_unsupported_methods_get_405_with_the_allowed_ones(api: Whole):
    for path, methods in _paths(api):
        for method in sorted({"GET", "POST", "PUT", "PATCH", "DELETE"} - methods):
            answer = await api.ask(method, path, key=api.keys[THEIRS, "admin"])
            assert answer.status == 405, (method, path, answer.body)
            assert set(answer.headers["allow"].split(", ")) == methods


def _paths(api: Whole) -> Iterator[tuple[str, set[str]]]:
    """Each path with the methods of all routes that it may be meant for: `poll` may be an id."""
    for path in {filled(route, api.ids[THEIRS]) for route in api.routes}:
        yield (
            path,
            {
                route.method
                for route in api.routes
                if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", route.path), path)
            },
        )
