"""Slash commands by the API: no way around what somebody may do."""

from pathlib import Path
from typing import Any

from tests.api.whole_api import Whole, whole

from mainspring.service.access.principal import Role


async def give(api: Whole, role: Role, name: str, arguments: str = "") -> tuple[int, Any]:
    session = api.ids["acme"]["session_id"]
    answer = await api.ask(
        "POST",
        f"/v1/sessions/{session}/commands",
        key=api.keys["acme", role],
        body={"name": name, "arguments": arguments},
    )
    return answer.status, answer.json


async def test_only_operators_can_widen_the_permissions_of_a_session(tmp_path: Path):
    async with whole(tmp_path) as api:
        assert (await give(api, "viewer", "plan"))[0] == 403
        assert (await give(api, "user", "plan", "Paint the house."))[0] == 200
        assert (await give(api, "user", "mode", "default"))[0] == 200
        assert (await give(api, "user", "mode"))[1]["reply"]["type"] == "said"
        status, refused = await give(api, "user", "mode", "bypassPermissions")
        assert (status, refused["error"]["type"]) == (403, "permission_error")
        assert (await give(api, "operator", "mode", "acceptEdits"))[0] == 200
        pending = await api.service.infrastructure.store.pending(api.ids["acme"]["session_id"])
        assert [item.type for item in pending] == [
            "permission.updated",
            "user.message",
            "permission.updated",
            "permission.updated",
        ]


async def test_an_archived_session_accepts_no_commands(tmp_path: Path):
    async with whole(tmp_path) as api:
        session = api.ids["acme"]["session_id"]
        await api.make("acme", f"/v1/sessions/{session}/archive", None)
        status, told = await give(api, "user", "compact")
        assert status == 400
        assert "archived" in told["error"]["message"]


async def test_people_can_rate_events_of_the_session(tmp_path: Path):
    async with whole(tmp_path) as api:
        session = api.ids["acme"]["session_id"]

        async def rate(role: Role, type_: str, id_: str, **fields: object) -> tuple[int, str]:
            event = {"type": "feedback.given", "subject": {"type": type_, "id": id_}, **fields}
            answer = await api.ask(
                "POST",
                f"/v1/sessions/{session}/events",
                key=api.keys["acme", role],
                body={"events": [event]},
            )
            return answer.status, answer.body

        assert (await rate("user", "session", session, rating="good", text="quick"))[0] == 200
        assert (await rate("user", "skill", "release", rating="bad"))[0] == 200
        assert (await rate("viewer", "session", session, rating="good"))[0] == 403
        for type_, id_, rating, problem in (
            ("session", "sesn_other", "good", "sent to the session it is about"),
            ("message", "sevt_none", "good", "this session has no message sevt_none"),
            ("tool_call", "sevt_none", "bad", "this session has no tool_call sevt_none"),
            ("session", session, "fine", "rating"),
            ("planet", session, "good", "subject.type"),
        ):
            status, body = await rate("user", type_, id_, rating=rating)
            assert (status, problem in body) == (400, True), body
        assert (await give(api, "user", "bad", "too slow"))[1]["reply"]["type"] == "sent"
        pending = await api.service.infrastructure.store.pending(session)
        rated = [item.body for item in pending if item.type == "feedback.given"]
        assert len(rated) == 3
        assert '"rating":"bad","text":"too slow"' in rated[2]
