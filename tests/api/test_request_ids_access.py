"""Every id that a request can name, by the types of all routes: what a key of one agent, or of
another tenant, may name. A new route is tried too, or fails here until it can be."""

import re
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.api.generated_requests import Place, places, request
from tests.api.test_all_routes import normalize_response, read_everything, unknown
from tests.api.whole_api import Answer, Whole, filled, parameters, whole

from mainspring.service.access.api_keys import CreateKey, Keys
from mainspring.service.access.principal import Principal
from mainspring.service.access.request_ids import ids_in_path

BOSS = Principal(tenant="acme", key_id="cli", role="admin", name="olga")
AN_ID = re.compile(r"(?:.+_)?ids?|agents?|environments?|vaults?|sessions?")
NOT_OF_THE_TENANT = frozenset({"model", "external", "tenant", "granted"})
MUST_EXIST = {"agent", "environment", "file", "skill", "vault", "memory_store"}
GRANTED = ("vault_id", "memory_store_id", "file_id", "skill_id", "environment_id")


@dataclass(frozen=True)
class Scene:
    api: Whole
    mine: Mapping[str, str]
    """By kind: what the agent has that the key is for."""
    theirs: Mapping[str, str]
    """By kind: what others of the same tenant have."""
    key: str
    """For that agent, without grants."""
    granted: str
    """For that agent, and for all of `theirs` that can be granted."""

    async def ask(self, place: Place, id_: str, key: str) -> Answer:
        own = {**self.mine, "kind": place.kind or ""}
        query, body = request(place, id_, own)
        ids = {**self.api.ids["acme"], **{f"{kind}_id": id_ for kind, id_ in self.mine.items()}}
        path = filled(place.route, ids)
        return await self.api.ask(place.route.method, f"{path}{query}", key=key, body=body)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncGenerator[Scene]:
    async with whole(tmp_path) as api:
        agent = await api.make("acme", "/v1/agents", {"name": "mine", "model": "claude-opus-5-5"})
        place = await api.make("acme", "/v1/environments", {"name": "mine"})
        session = await api.make(
            "acme", "/v1/sessions", {"agent": agent["id"], "environment_id": place["id"]}
        )
        listed = await api.ask(
            "GET", f"/v1/sessions/{session['id']}/threads", key=api.keys["acme", "admin"]
        )
        keys = Keys(api.service.infrastructure.store.records)
        ids = api.ids["acme"]
        only = CreateKey(name="only", role="admin", agent_id=agent["id"])
        more = CreateKey(
            name="more", role="admin", agent_id=agent["id"], grants=tuple(ids[n] for n in GRANTED)
        )
        yield Scene(
            api=api,
            mine={
                "agent": agent["id"],
                "environment": place["id"],
                "session": session["id"],
                "thread": listed.json["data"][0]["id"],
            },
            theirs={item.kind: item.id for item in ids_in_path(ids)} | {"tool_use": "sevt_1"},
            key=(await keys.create(BOSS, only)).key,
            granted=(await keys.create(BOSS, more)).key,
        )


async def test_every_id_in_a_request_is_typed_by_its_kind(scene: Scene):
    plain = [
        str(place)
        for route in scene.api.routes
        for place in places(route)
        if place.kind is None and AN_ID.fullmatch(place.name)
    ]
    assert plain == []
    names = {name for route in scene.api.routes for name in parameters(route)}
    assert [item for item in ids_in_path(dict.fromkeys(names, "")) if item.kind == item.where] == []


async def test_a_key_of_one_agent_cannot_name_ids_of_other_agents_in_any_request(scene: Scene):
    before = await read_everything(scene.api, "acme")
    tried = 0
    for route in scene.api.routes:
        for place in places(route):
            if route.is_open or place.kind is None or place.kind in NOT_OF_THE_TENANT:
                continue
            answer = await scene.ask(place, scene.theirs[place.kind], scene.key)
            is_within = place.kind in ("thread", "tool_use")  # of the session in the path
            expected = (400, 404) if is_within else (403, 404)
            assert answer.status in expected, (str(place), answer.status, answer.body)
            tried += 1
    assert tried > 60
    after = await read_everything(scene.api, "acme")
    assert {name: each for name, each in after.items() if name in before} == before
    assert {kind for kind, _ in after.keys() - before.keys()} <= {"audit"}


async def test_a_key_of_one_agent_can_name_the_ids_granted_to_it(scene: Scene):
    """Else all of the above would hold for nothing."""
    kinds: set[str] = set()
    for route in scene.api.routes:
        if not route.for_agent_keys or route.method == "DELETE":
            continue
        for place in places(route):
            if place.kind is not None and f"{place.kind}_id" in GRANTED:
                answer = await scene.ask(place, scene.theirs[place.kind], scene.granted)
                assert answer.status not in (401, 403), (str(place), answer.status, answer.body)
                kinds.add(place.kind)
    assert kinds == {name.removesuffix("_id") for name in GRANTED}
    own, others = scene.mine["session"], scene.theirs["session"]
    for query, status in (("", 403), (f"?scope_id={own}", 200), (f"?scope_id={others}", 403)):
        listed = await scene.api.ask("GET", f"/v1/files{query}", key=scene.granted)
        assert listed.status == status, (query, listed.body)
    made = await scene.api.ask(
        "POST",
        "/v1/sessions",
        key=scene.granted,
        body={
            "agent": scene.mine["agent"],
            "environment_id": scene.mine["environment"],
            "vault_ids": [scene.theirs["vault"]],
        },
    )
    assert made.status == 200, made.body


async def test_ids_of_another_tenant_look_unknown_in_every_request(scene: Scene):
    api = scene.api
    before = await read_everything(api, "acme")
    refused = set[str]()
    nobodys = {item.kind: item.id for item in ids_in_path(unknown(api.ids["acme"]))}
    own = {item.kind: item.id for item in ids_in_path(api.ids["rival"])}
    for route in api.routes:
        if route.is_open or route.path.startswith("/v1/mainspring/tenants"):
            continue
        for place in places(route):
            if place.kind is None or place.kind not in nobodys:
                continue
            replies: list[tuple[int, str]] = []
            for id_ in (scene.theirs[place.kind], nobodys[place.kind]):
                query, body = request(place, id_, {**own, "kind": place.kind})
                path = f"{filled(route, api.ids['rival'])}{query}"
                reply = await api.ask(route.method, path, key=api.keys["rival", "admin"], body=body)
                replies.append(normalize_response(reply, {"id": id_}))
            assert replies[0][0] == replies[1][0], (str(place), replies)
            if replies[0][0] != 200 or route.method == "GET":
                assert replies[0] == replies[1], str(place)
            if place.part == "body" and place.kind in MUST_EXIST:
                assert replies[1][0] in (400, 404), (str(place), replies)
                refused.add(place.kind)
    assert refused == MUST_EXIST
    granting = {"name": "g", "agent_id": own["agent"], "grants": [nobodys["vault"]]}
    granted = await api.ask(
        "POST", "/v1/mainspring/keys", key=api.keys["rival", "admin"], body=granting
    )
    assert granted.status == 404, granted.body
    assert await read_everything(api, "acme") == before
