from pathlib import Path
from typing import Any

import anthropic
import anyio
import pytest
from tests.api.approvals_api import PATH, Office, erasing, person, session_context
from tests.api.sessions_api import agent_id, idles, message, waiting

from mainspring.core.errors import MainspringError, StaleVersion
from mainspring.core.events import AgentToolResult, UserToolConfirmation
from mainspring.service.approvals.approvals import ApprovalAnswer
from mainspring.service.storage.repository import ListQuery
from mainspring.testing import Scripted, calls, says

FIRST = ListQuery(is_ascending=True)


def confirmation(call: str, result: str = "allow") -> Any:  # noqa: ANN401 (one of the SDK's many params)
    return {"type": "user.tool_confirmation", "tool_use_id": call, "result": result}


async def answers(context: Office, session_id: str) -> list[UserToolConfirmation]:
    found = await context.home.log.read(session_id, types=["user.tool_confirmation"])
    return [item.payload for item in found if isinstance(item.payload, UserToolConfirmation)]


async def results(context: Office, session_id: str) -> list[str]:
    found = await context.home.log.read(session_id, types=["agent.tool_result"])
    return [item.payload.tool_use_id for item in found if isinstance(item.payload, AgentToolResult)]


async def test_waiting_approvals_are_listed_and_answered_with_the_name_of_the_person(
    tmp_path: Path,
):
    async with (
        session_context(tmp_path, erasing("a", "b")) as context,
        context.home.client() as client,
    ):
        session_id = await context.asked(client)
        first, second = await waiting(client, session_id)
        async with context.http(x_name="vera") as http:
            listed = (await http.get(PATH)).json()
            assert [item["tool_use_id"] for item in listed["data"]] == [first, second]
            [one, two] = listed["data"]
            assert (one["name"], one["input"], one["status"]) == ("erase", {"x": "a"}, "waiting")
            assert one["may_answer"] == {"role": "user", "four_eyes": False}
            assert one["session_id"] == session_id
            assert (await http.get(f"{PATH}/{one['id']}")).json() == one
            answer = f"{PATH}/{one['id']}/answer"
            said = await http.post(answer, json={"result": "deny", "message": "keep it"})
            assert said.status_code == 200, said.text
            assert said.json()["answered_by"] == "key_vera:vera"
            again = await http.post(answer, json={"result": "deny", "message": "keep it"})
            assert again.json() == said.json()
            other = await http.post(answer, json={"result": "allow"})
            assert other.status_code == 409
            assert "deny by key_vera:vera" in other.json()["error"]["message"]
            await context.settled(session_id)
            assert await waiting(client, session_id) == [second]
            assert [item["id"] for item in (await http.get(PATH)).json()["data"]] == [two["id"]]
        await client.beta.sessions.events.send(session_id, events=[confirmation(second)])
        await context.settled(session_id)
        async with context.http() as http:
            assert (await http.get(PATH)).json()["data"] == []
            closed = (await http.get(PATH, params={"include_closed": "true"})).json()["data"]
        assert [(item["status"], item["result"]) for item in closed] == [
            ("answered", "deny"),
            ("answered", "allow"),
        ]
        assert [item.answered_by for item in await answers(context, session_id)] == [
            "key_vera:vera",
            "key_test:acme",
        ]
        assert (await idles(client, session_id))[-1].stop_reason.type == "end_turn"


async def test_the_list_is_filtered_and_paged(tmp_path: Path):
    async with session_context(tmp_path, Scripted(*[calls("erase", x="a")] * 3)) as context:
        async with context.home.client() as client:
            agent = await agent_id(client)
            sessions = [await context.asked(client), await context.asked(client, agent=agent)]
            sessions.append(await context.asked(client))
        async with context.http() as http:
            ids: list[str] = []
            page: dict[str, str] = {}
            while True:
                shown = (await http.get(PATH, params={"limit": "2", **page})).json()
                ids += [item["session_id"] for item in shown["data"]]
                if shown["next_page"] is None:
                    break
                page = {"page": shown["next_page"]}
            assert ids == sessions
            filters: list[tuple[dict[str, str], list[str]]] = [
                ({"agent_id": agent}, sessions[1:2]),
                ({"session_id": sessions[2]}, sessions[2:]),
                ({"asked_at[lte]": "2020-01-01T00:00:00Z"}, []),
                ({"order": "desc", "limit": "1"}, sessions[2:]),
            ]
            for query, expected in filters:
                found = (await http.get(PATH, params=query)).json()["data"]
                assert [item["session_id"] for item in found] == expected, query
        async with context.http(f"acme:user:{agent}") as http:
            [own] = (await http.get(PATH)).json()["data"]
            assert own["session_id"] == sessions[1]
            foreign = (await context.approvals.page(person(), FIRST)).data[0].id
            assert (await http.get(f"{PATH}/{foreign}")).status_code == 404
        async with context.http("evil:admin") as http:
            assert (await http.get(PATH)).json()["data"] == []
            assert (await http.get(f"{PATH}/{foreign}")).status_code == 404
            stolen = await http.post(f"{PATH}/{foreign}/answer", json={"result": "allow"})
            assert stolen.status_code == 404


async def test_answers_by_agents_viewers_or_without_sense_are_refused(tmp_path: Path):
    async with session_context(tmp_path, erasing("a")) as context, context.home.client() as client:
        session_id = await context.asked(client)
        async with context.http() as http:
            [one] = (await http.get(PATH)).json()["data"]
            answer = f"{PATH}/{one['id']}/answer"
            wrong: list[dict[str, object]] = [
                {"result": "maybe"},
                {"result": "allow", "message": "why"},
                {"result": "deny", "message": ""},
                {"result": "allow", "answered_by": "somebody"},
            ]
            for body in wrong:
                assert (await http.post(answer, json=body)).status_code == 400, body
            session = await http.post(answer, json={"result": "allow", "for_session": True})
            assert session.status_code == 403
        async with context.http("acme:viewer") as http:
            assert (await http.post(answer, json={"result": "allow"})).status_code == 403
        async with context.http("acme:admin", x_mainspring_agent="agent_1") as http:
            refused = await http.post(answer, json={"result": "allow"})
            assert refused.status_code == 403
            assert "agent" in refused.json()["error"]["message"]
            assert (await http.post(f"{PATH}/policy", json={"role": "user"})).status_code == 403
        assert await waiting(client, session_id) == [one["tool_use_id"]]
        assert await answers(context, session_id) == []


async def test_several_approvals_are_answered_independently(tmp_path: Path):
    async with (
        session_context(tmp_path, erasing("a", "b", "c")) as context,
        context.home.client() as client,
    ):
        session_id = await context.asked(client)
        async with context.http() as http:
            ids = [item["id"] for item in (await http.get(PATH)).json()["data"]]
            body = {"approval_ids": [*ids, "appr_none"], "result": "allow"}
            answered = (await http.post(f"{PATH}/answer", json=body)).json()["data"]
        assert [item["id"] for item in answered] == [*ids, "appr_none"]
        assert [item["error"] is None for item in answered] == [True, True, True, False], answered
        await context.settled(session_id)
        assert (await idles(client, session_id))[-1].stop_reason.type == "end_turn"
        assert len(await results(context, session_id)) == 3


async def test_the_first_answer_counts_on_either_endpoint(tmp_path: Path):
    async with session_context(tmp_path, erasing("a")) as context, context.home.client() as client:
        id_ = await context.asked(client)
        [call] = await waiting(client, id_)
        [approval] = (await context.approvals.page(person(), FIRST)).data
        accepted: list[str] = []
        refused: list[str] = []

        async def by_sdk(result: str) -> None:
            try:
                await client.beta.sessions.events.send(id_, events=[confirmation(call, result)])
                accepted.append(f"{result} key_test:acme")
            except (anthropic.BadRequestError, anthropic.ConflictError) as error:
                refused.append(str(error))

        async def by_office(name: str) -> None:
            try:
                await context.approvals.answer(
                    person(name), approval.id, ApprovalAnswer(result="deny")
                )
                accepted.append(f"deny key_{name}:{name}")
            except StaleVersion as error:
                refused.append(str(error))

        async with anyio.create_task_group() as group:
            for index in range(4):
                group.start_soon(by_sdk, "allow" if index % 2 else "deny")
                group.start_soon(by_office, f"p{index}")
        await context.settled(id_)
        [said] = await answers(context, id_)
        assert set(accepted) == {f"{said.result} {said.answered_by}"}
        assert all("answered already" in item or "is not waiting" in item for item in refused)
        assert await results(context, id_) == [call]


async def test_a_policy_belongs_to_the_tenant_or_to_an_agent(tmp_path: Path):
    async with session_context(tmp_path, erasing("a")) as context:
        path = f"{PATH}/policy"
        async with context.http("acme:operator") as http:
            assert (await http.get(path)).json()["updated_at"] is None
            whole = {"role": "operator", "expires_after_seconds": 60}
            assert (await http.post(path, json=whole)).json()["role"] == "operator"
            own = await http.post(path, json={"agent_id": "agent_1", "four_eyes": True})
            assert own.json()["role"] == "operator"
            assert own.json()["expires_after_seconds"] == 60
            changed = await http.post(path, json={"expires_after_seconds": None})
            assert changed.json()["expires_after_seconds"] is None
            held = (await http.get(path, params={"agent_id": "agent_1"})).json()
            assert (held["four_eyes"], held["expires_after_seconds"]) == (True, 60)
            wrong: list[dict[str, object]] = [
                {"expires_after_seconds": 0},
                {"role": "viewer"},
                {"escalate_to": "the night shift"},
                {"expires_after_seconds": 60, "escalate_after_seconds": 60},
                {"unknown": 1},
            ]
            for body in wrong:
                assert (await http.post(path, json=body)).status_code == 400, body
        async with context.http("acme:user") as http:
            assert (await http.post(path, json={"role": "user"})).status_code == 403
        async with context.http("other:operator") as http:
            assert (await http.get(path)).json()["updated_at"] is None


async def test_the_policy_also_applies_to_answers_by_events(tmp_path: Path):
    async with session_context(tmp_path, erasing("a")) as context:
        async with context.http("acme:operator") as http:
            await http.post(f"{PATH}/policy", json={"role": "operator"})
        async with context.home.client("acme:user") as client:
            async with context.home.client("acme:admin") as admin:
                session_id = await context.asked(admin)
            [call] = await waiting(client, session_id)
            with pytest.raises(anthropic.PermissionDeniedError, match="role operator"):
                await client.beta.sessions.events.send(session_id, events=[confirmation(call)])
        async with context.http("acme:operator") as http:
            await http.post(f"{PATH}/policy", json={"role": "user", "four_eyes": True})
        async with context.home.client("acme:admin") as client:
            with pytest.raises(anthropic.PermissionDeniedError, match="four eyes"):
                await client.beta.sessions.events.send(session_id, events=[confirmation(call)])
        async with context.http("acme:user", x_name="vera") as http:
            [one] = (await http.get(PATH)).json()["data"]
            said = await http.post(f"{PATH}/{one['id']}/answer", json={"result": "allow"})
            assert said.status_code == 200, said.text


async def test_with_four_eyes_a_participant_of_the_session_cannot_approve(tmp_path: Path):
    model = Scripted(says("Hello."), calls("erase", x="a"), says("Done."))
    async with session_context(tmp_path, model) as context, context.home.client() as client:
        session_id = await context.asked(client)
        async with context.home.client(f"acme:user:{await _agent_of(client, session_id)}") as other:
            await other.beta.sessions.events.send(session_id, events=[message("erase it")])
        await context.settled(session_id)
        async with context.http("acme:operator") as http:
            await http.post(f"{PATH}/policy", json={"four_eyes": True})
        [approval] = (await context.approvals.page(person(), FIRST)).data
        for name in ("a", "test"):
            with pytest.raises(MainspringError, match="four eyes"):
                await context.approvals.answer(
                    person(name), approval.id, ApprovalAnswer(result="allow")
                )
        await context.approvals.answer(person("vera"), approval.id, ApprovalAnswer(result="allow"))


async def _agent_of(client: anthropic.AsyncAnthropic, session_id: str) -> str:
    return (await client.beta.sessions.retrieve(session_id)).agent.id


async def test_an_approval_can_allow_similar_calls_for_the_session(tmp_path: Path):
    model = Scripted(calls("erase", x="a"), calls("erase", x="b"), says("Done."))
    async with session_context(tmp_path, model) as context, context.home.client() as client:
        session_id = await context.asked(client)
        async with context.http("acme:operator") as http:
            [one] = (await http.get(PATH)).json()["data"]
            said = await http.post(
                f"{PATH}/{one['id']}/answer", json={"result": "allow", "for_session": True}
            )
            assert said.status_code == 200, said.text
        await context.settled(session_id)
        assert "permission.updated" in [i.type for i in await context.home.log.read(session_id)]


async def test_custom_tool_calls_wait_for_the_client_and_are_not_approvals(tmp_path: Path):
    model = Scripted(calls("ask_owner", question="Why?"), says("I see."))
    async with session_context(tmp_path, model) as context, context.home.client() as client:
        assert len(await waiting(client, await context.asked(client))) == 1
        async with context.http() as http:
            assert (await http.get(PATH)).json()["data"] == []
