"""`mainspring approvals`, on a store that a service has left."""

import json
import os
import pwd
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest
from tests.api.sessions_api import service, session
from tests.cli.terminal import at_terminal
from tests.cli.upstream import Upstream, call
from tests.fork_server import Run
from tests.keys import KEY

from mainspring.core.events import (
    AgentToolUse,
    ApprovalAnswered,
    StatusIdle,
    StatusRunning,
    StopReason,
    ToolCallAuthorized,
    UserToolConfirmation,
)
from mainspring.log.session_lease import hold_session
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite
from mainspring.log.upcast import read_payload
from mainspring.runtime.approvals import (
    ApprovalQuestion,
    answer_to,
    evidence_of,
    request_approval,
)
from mainspring.service.access.audit import Audit
from mainspring.service.access.tenants import Tenants
from mainspring.service.approvals.approvals import Approvals
from mainspring.service.storage.repository import ListQuery
from mainspring.testing import Scripted

T = TypeVar("T")
WHO = f"cli:{pwd.getpwuid(os.getuid()).pw_name}"
"""By the uid, whatever USER says."""
DIFF = "--- a.txt\n+++ a.txt\n@@ -1 +1 @@\n-old words\n+new words"


@pytest.fixture
def waiting_session(store: Path) -> str:
    """A session with two calls that wait; one would change a file."""
    store.parent.mkdir()
    session_id = anyio.run(write_approvals, store.parent)
    (store.parent / "log.db").rename(store)
    return session_id


async def write_approvals(folder: Path) -> str:
    async with service(folder, Scripted()) as home, home.client("default:admin") as client:
        home.worker.is_asleep = True
        await Tenants(home.log.store.records).ensure_root()
        made = await session(client)
        writer = await home.log.hold(made.id, owner="worker-1")
        [edit, shell] = await writer.append(
            AgentToolUse(name="edit", input={"file_path": "a.txt"}),
            AgentToolUse(name="shell", input={"command": "make \x1b[31mclean"}),
        )
        await writer.append(
            StatusRunning(),
            ToolCallAuthorized(
                tool_use_id=edit.id, decision="ask", gate="rule", reason="edits ask", preview=DIFF
            ),
            ToolCallAuthorized(tool_use_id=shell.id, decision="ask", gate="default"),
            StatusIdle(
                stop_reason=StopReason(type="requires_action", event_ids=(edit.id, shell.id))
            ),
        )
        await writer.release()
        await Approvals(home.log).keeper.catch_up("default", made.id)
        return made.id


def on_store(store: Path, look: Callable[[SessionLog], Awaitable[T]]) -> T:
    async def opened() -> T:
        async with open_sqlite(store, key=KEY) as found:
            return await look(SessionLog(found))

    return anyio.run(opened)


def inbox(store: Path, session_id: str) -> list[UserToolConfirmation]:
    async def look(log: SessionLog) -> list[UserToolConfirmation]:
        items = await log.store.pending(session_id)
        payloads = [read_payload(item.type, item.body, item.version) for item in items]
        return [payload for payload in payloads if isinstance(payload, UserToolConfirmation)]

    return on_store(store, look)


def list_approvals(mainspring: Run, *arguments: str) -> list[dict[str, Any]]:
    shown = mainspring("approvals", "ls", "--json", *arguments)
    assert shown.returncode == 0, shown.stderr
    return [json.loads(line) for line in shown.stdout.splitlines()]


def test_waiting_approvals_are_listed_and_shown_with_the_effect_of_the_call(
    mainspring: Run, waiting_session: str
):
    shown = mainspring("approvals", "ls")
    assert shown.returncode == 0, shown.stderr
    head, edit, shell = shown.stdout.splitlines()
    assert head.split() == ["ID", "AGENT", "TOOL", "WHAT", "ASKED"]
    assert "edit" in edit
    assert "make" in shell
    [one, two] = list_approvals(mainspring)
    assert (one["session_id"], one["status"]) == (waiting_session, "waiting")
    whole = mainspring("approvals", "show", one["id"][-14:])
    assert whole.returncode == 0, whole.stderr
    for words in (*DIFF.splitlines(), "asked because: edits ask", "user or more", waiting_session):
        assert words in whole.stdout
    assert "\x1b" not in mainspring("approvals", "show", two["id"]).stdout


def test_a_denial_goes_into_the_inbox_with_the_name_of_the_person(
    mainspring: Run, store: Path, waiting_session: str
):
    one, _ = list_approvals(mainspring)
    denied = mainspring("approvals", "deny", one["tool_use_id"], "-m", "not that", USER="olga")
    assert denied.returncode == 0, denied.stderr
    assert denied.stdout.startswith("denied edit")
    [said] = inbox(store, waiting_session)
    assert (said.tool_use_id, said.result) == (one["tool_use_id"], "deny")
    assert (said.deny_message, said.answered_by) == ("not that", WHO)
    closed, left = list_approvals(mainspring, "--all")
    assert (closed["status"], left["status"]) == ("answered", "waiting")
    again = mainspring("approvals", "allow", one["id"], USER="vera")
    assert again.returncode == 1
    assert f"answered already: deny by {WHO}" in again.stderr
    assert len(inbox(store, waiting_session)) == 1

    async def noted(log: SessionLog) -> list[str]:
        page = await Audit(log.store.records).page("default", ListQuery())
        return [item.operation for item in page.data]

    assert on_store(store, noted) == ["cli approvals deny"]


def test_a_question_of_another_part_is_answered_with_a_choice(
    mainspring: Run, store: Path, waiting_session: str
):
    question = ApprovalQuestion(
        type="workflow_node",
        id="review",
        text="Merge it?",
        evidence=(evidence_of("tests", "7 passed"),),
        choices=("merge", "squash"),
    )

    async def ask(log: SessionLog) -> None:
        async with hold_session(log, waiting_session) as writer:
            await request_approval(log, writer, question)
        await Approvals(log).keeper.catch_up("default", waiting_session)

    on_store(store, ask)
    [*_, asked] = list_approvals(mainspring)
    shown = mainspring("approvals", "show", asked["id"])
    for words in ("question: Merge it?", "tests: 7 passed", "choices: merge, squash"):
        assert words in shown.stdout
    refused = mainspring("approvals", "allow", asked["id"])
    assert (refused.returncode, "choose one of merge, squash" in refused.stderr) == (1, True)
    target = (waiting_session, question.approval_id)
    answered = mainspring("sessions", "answer", *target, "allow", "--choice", "squash")
    assert answered.returncode == 0, answered.stderr

    async def find(log: SessionLog) -> ApprovalAnswered | None:
        return await answer_to(log, waiting_session, question)

    found = on_store(store, find)
    assert found is not None
    assert (found.decision, found.choice) == ("allow", "squash")
    later = mainspring("approvals", "allow", asked["id"], "--choice", "merge")
    assert (later.returncode, "answered already: allow" in later.stderr) == (1, True)


def test_answering_several_approvals_shows_them_first_and_needs_yes(
    mainspring: Run, store: Path, waiting_session: str, place: Path, environ: dict[str, str]
):
    ids = [item["id"] for item in list_approvals(mainspring)]
    refused = mainspring("approvals", "allow", *ids)
    assert refused.returncode == 1
    assert "+new words" in refused.stderr
    assert "add --yes" in refused.stderr
    assert inbox(store, waiting_session) == []
    with at_terminal("approvals", "allow", *ids, cwd=place, env=environ) as terminal:
        terminal.expect("+new words")
        terminal.expect("allow these 2? [y/N]")
        terminal.type("n\n")
        assert terminal.wait() != 0
    assert inbox(store, waiting_session) == []
    allowed = mainspring("approvals", "allow", *ids, "--yes", "--json")
    assert allowed.returncode == 0, allowed.stderr
    assert [json.loads(line)["id"] for line in allowed.stdout.splitlines()] == ids
    assert [item.result for item in inbox(store, waiting_session)] == ["allow", "allow"]


def test_invalid_approval_commands_are_refused_with_a_reason(mainspring: Run, waiting_session: str):
    assert "there is no approval" in mainspring("approvals", "allow", "appr_none").stderr
    several = mainspring("approvals", "show", "sevt_0")
    assert several.returncode == 1
    assert "could be any of 2" in several.stderr
    assert mainspring("approvals", "ls", "--tenant", "nowhere").returncode == 1
    assert mainspring("approvals", "policy", "--reset", "--role", "user").returncode == 2
    wrong = mainspring("approvals", "policy", "--escalate-to", "the night shift")
    assert wrong.returncode == 1
    assert "required with escalate_to" in wrong.stderr


def test_the_policy_is_shown_changed_and_reset(mainspring: Run, waiting_session: str):
    changed = mainspring(
        *("approvals", "policy", "--expires-after", "2h", "--escalate-after", "30m"),
        *("--escalate-to", "the night shift", "--escalated-role", "operator", "--four-eyes"),
    )
    assert changed.returncode == 0, changed.stderr
    for words in ("after 2:00:00, then denied", "to the night shift", "except those who wrote"):
        assert words in changed.stdout
    own = mainspring("approvals", "policy", "--agent", "agent_1", "--role", "admin", "--json")
    assert json.loads(own.stdout)["expires_after_seconds"] == 7200
    never = mainspring("approvals", "policy", "--escalate-after", "never", "--json")
    assert json.loads(never.stdout)["escalate_to"] is None
    assert "built in" in mainspring("approvals", "policy", "--reset").stdout


def test_listing_approvals_without_a_store_creates_no_store(mainspring: Run, store: Path):
    assert mainspring("approvals", "ls").returncode == 1
    assert not store.exists()


def test_calls_of_run_and_chat_are_listed_and_answered_in_a_store_without_a_tenant(
    mainspring: Run, upstream: Upstream, place: Path
):
    upstream.says(call("write", file_path="a.txt", content="one"))
    upstream.says("Written.")
    assert mainspring("run", "write it", **upstream.variables).returncode == 3
    listed = mainspring("approvals", "ls")
    assert "write" in listed.stdout, listed.stderr
    [line] = mainspring("approvals", "ls", "--json").stdout.splitlines()
    approval = json.loads(line)
    assert mainspring("approvals", "allow", "nonsense").returncode == 1
    refused = mainspring("approvals", "allow", approval["id"], "--for-session")
    assert "for sessions of the service" in refused.stderr
    allowed = mainspring("approvals", "allow", approval["id"][-8:])
    assert "continue: mainspring run --resume" in allowed.stderr
    assert "nothing waits" in mainspring("approvals", "ls").stderr
    assert not (place / "a.txt").exists()
    done = mainspring("run", "--resume", approval["session_id"], **upstream.variables)
    assert "Written." in done.stdout
    assert (place / "a.txt").read_text() == "one"
