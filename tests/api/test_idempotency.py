"""`Idempotency-Key` on every POST that creates something."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.api.test_all_routes import read_everything
from tests.api.whole_api import Answer, skill_form, whole

from mainspring.capabilities.vault.aes_seal import AesSeal
from mainspring.core import clock
from mainspring.core.errors import Forbidden, StaleVersion
from mainspring.edges.api.app import Api, http_server
from mainspring.edges.api.idempotency import fingerprint
from mainspring.edges.api.route import Empty
from mainspring.log.sqlite import open_sqlite
from mainspring.service.access.api_keys import CreateKey
from mainspring.service.access.idempotency import (
    ABANDONED_AFTER,
    KIND,
    LIFETIME,
    IdempotentRequests,
)
from mainspring.service.access.principal import Principal
from mainspring.service.authorization.authentication import Authenticator


def file_form(content: bytes = b"1,2") -> aiohttp.FormData:
    form = aiohttp.FormData()
    form.add_field("file", content, filename="rows.csv")
    return form


def creations(ids: dict[str, str]) -> dict[str, Callable[[], Any]]:
    begun = {"agent": ids["agent_id"], "environment_id": ids["environment_id"]}
    said = [{"type": "user.message", "content": [{"type": "text", "text": "Scan."}]}]
    secret = {
        "type": "environment_variable",
        "secret_name": "OTHER_KEY",
        "secret_value": "a-secret-value",
        "networking": {"type": "unrestricted"},
    }
    bodies: dict[str, Any] = {
        "/v1/agents": {"name": "once", "model": "claude-opus-5-5"},
        "/v1/environments": {"name": "once"},
        "/v1/sessions": begun,
        "/v1/vaults": {"display_name": "once"},
        f"/v1/vaults/{ids['vault_id']}/credentials": {"auth": secret},
        "/v1/memory_stores": {"name": "once"},
        f"/v1/memory_stores/{ids['memory_store_id']}/memories": {"path": "/b.md", "content": "x"},
        "/v1/deployments": {**begun, "name": "once", "initial_events": said},
        f"/v1/sessions/{ids['session_id']}/fork": {},
        "/v1/mainspring/keys": {"name": "once"},
        "/v1/mainspring/webhooks": {
            "url": "https://hooks.example.com/once",
            "event_types": ["session.created"],
        },
        "/v1/mainspring/triggers": {
            **begun,
            "name": "once",
            "scheme": {"type": "standard_webhooks"},
            "message": "Look.",
        },
    }
    makers: dict[str, Callable[[], Any]] = {path: lambda b=body: b for path, body in bodies.items()}
    return {**makers, "/v1/files": file_form, "/v1/skills": skill_form}


async def test_a_repeated_creation_is_applied_once_and_answered_alike(tmp_path: Path):
    async with whole(tmp_path) as api:
        records, key = api.service.infrastructure.store.records, api.keys["acme", "admin"]

        async def post(path: str, body: object, to: str = "", name: str = "k") -> Answer:
            headers = {"Idempotency-Key": name}
            return await api.ask("POST", f"{to}{path}", key=key, body=body, headers=headers)

        made = creations(api.ids["acme"])
        first = {path: await post(path, body()) for path, body in made.items()}
        assert {path: each.body for path, each in first.items() if each.status != 200} == {}
        before = await read_everything(api, "acme")
        door = Authenticator(records)
        repeated = IdempotentRequests(records, api.service.infrastructure.seal)
        again = Api(api.routes, access_control=door, repeated=repeated).application()
        async with http_server(again) as restarted:
            for path, body in made.items():
                answer = await post(path, body(), to=restarted)
                assert (answer.body, answer.headers["idempotent-replayed"]) == (
                    first[path].body,
                    "true",
                )
        assert await read_everything(api, "acme") == before
        for path in made:
            is_upload = path in ("/v1/files", "/v1/skills")
            other = file_form(b"3") if is_upload else {"name": "other", "title": "other"}
            assert (await post(path, other)).status == 400, path
        kept = [each for name, each in before.items() if name[0] == KIND]
        assert len(kept) == len(made)
        assert "a-secret-value" not in str(kept)
        assert first["/v1/mainspring/keys"].json["key"] not in str(kept)
        plain = fingerprint(Empty(), CreateKey(name="once"))
        assert "fingerprint" not in str(kept)  # secrets in a body could be guessed from it
        assert plain not in str(kept)
        by_agent = {"Idempotency-Key": "k", "x-mainspring-agent": "agent_1"}
        keys_path = "/v1/mainspring/keys"
        answer = await api.ask("POST", keys_path, key=key, body={"name": "once"}, headers=by_agent)
        assert (answer.status, "idempotent-replayed" in answer.headers) == (403, False)
        assert first[keys_path].json["key"] not in answer.body
        assert (await post("/v1/environments", {"name": "once"}, name="other")).status == 409
        assert (await post("/v1/environments", {"name": "new"}, name="other")).status == 200
        assert (await post("/v1/environments", {"name": "x"}, name="ü" * 3)).status == 400
        rival = await api.ask(
            "POST",
            "/v1/environments",
            key=api.keys["rival", "admin"],
            body={"name": "once"},
            headers={"Idempotency-Key": "k"},
        )
        assert rival.json["id"] != first["/v1/environments"].json["id"]


@pytest.mark.parametrize(
    ("other", "refusal"),
    [
        ({"role": "user"}, Forbidden),
        ({"agent_id": "agent_1"}, Forbidden),
        ({"grants": frozenset({"env_1"})}, Forbidden),
        ({"acting_agent": "agent_1"}, None),
        ({"issuer": "https://two.example.com"}, None),
        ({"key_id": "oidc:eve\0POST /v1/a"}, None),
    ],
)
async def test_a_stored_response_is_returned_only_to_the_same_principal_and_rights(
    tmp_path: Path, other: dict[str, Any], refusal: type[Exception] | None
):
    who = Principal(
        tenant="acme", key_id="oidc:eve", issuer="https://one.example.com", role="admin"
    )
    async with open_sqlite(tmp_path / "mainspring.db") as store:
        requests = IdempotentRequests(store.records, AesSeal(b"k" * 32))
        begun = await requests.begin(who, "POST /v1/a", "k", "print")
        await requests.finish("acme", begun, b"secret")
        assert requests.answer(await requests.begin(who, "POST /v1/a", "k", "print")) == b"secret"
        changed = replace(who, **other)
        if refusal is None:  # somebody else: it is done for them, if they may
            again = await requests.begin(changed, "POST /v1/a", "k", "print")
            assert requests.answer(again) is None
        else:
            with pytest.raises(refusal, match="other permissions"):
                await requests.begin(changed, "POST /v1/a", "k", "print")


async def test_an_abandoned_request_is_retried_and_responses_expire(tmp_path: Path):
    now = clock.now()
    async with whole(tmp_path) as api:
        requests = IdempotentRequests(
            api.service.infrastructure.store.records,
            api.service.infrastructure.seal,
            clock=lambda: now,
        )
        who = Principal(tenant="acme", key_id="key_1", role="user")
        begun = await requests.begin(who, "POST /v1/agents", "k", "print")
        with pytest.raises(StaleVersion, match="still being handled"):
            await requests.begin(who, "POST /v1/agents", "k", "print")
        now += ABANDONED_AFTER
        taken = await requests.begin(who, "POST /v1/agents", "k", "print")
        assert taken.attempt_id == begun.attempt_id
        await requests.finish("acme", taken, b"{}")
        assert requests.answer(await requests.begin(who, "POST /v1/agents", "k", "print")) == b"{}"
        now += LIFETIME + timedelta(seconds=1)
        assert await requests.remove_expired() == 1
        anew = await requests.begin(who, "POST /v1/agents", "k", "another")
        assert anew.attempt_id != begun.attempt_id
