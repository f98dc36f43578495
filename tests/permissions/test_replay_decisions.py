"""Past calls, judged by other rules."""

from dataclasses import dataclass, field
from datetime import timedelta

from msgspec.structs import replace
from tests.permissions.cases import NOW, rules

from mainspring.core.envelope import FORMAT, GENESIS, Event, encode_payload
from mainspring.core.events import (
    AgentMcpToolUse,
    AgentToolUse,
    KnownPayload,
    Permission,
    PermissionUpdate,
    PermissionUpdated,
    PolicyAdopted,
    RuleText,
    SandboxOpened,
    ToolCallAuthorized,
)
from mainspring.harness.permissions.policy import Policy
from mainspring.harness.permissions.replay_decisions import ReplayedDecision, replay_decisions


@dataclass
class PastCalls:
    events: list[Event] = field(default_factory=list[Event])

    def add(self, payload: KnownPayload) -> str:
        number = len(self.events) + 1
        event = Event(
            id=f"e{number}",
            session_id="s",
            seq=number,
            thread_id="t",
            time=NOW + timedelta(minutes=number),
            payload=payload,
            body=encode_payload(payload),
            version=FORMAT,
            prev=GENESIS,
        )
        self.events.append(event)
        return event.id

    def bash(self, command: str, was: Permission, person: Permission | None = None) -> None:
        call_id = self.add(AgentToolUse(name="bash", input={"command": command}))
        self.add(ToolCallAuthorized(tool_use_id=call_id, decision=was, gate="rule"))
        if person is not None:
            self.add(ToolCallAuthorized(tool_use_id=call_id, decision=person, gate="person"))

    def judged(self, policy: Policy) -> list[ReplayedDecision]:
        return replay_decisions(self.events, policy)


def test_past_decisions_are_compared_with_new_ones():
    past = PastCalls()
    past.bash("npm test", "ask", "allow")
    past.bash("git push", "allow")
    past.bash("ls", "allow")
    found = past.judged(rules(allow=("Bash(npm test)",), deny=("Bash(git push *)",)))
    assert [(item.was, item.person, item.now.decision) for item in found] == [
        ("ask", "allow", "allow"),
        ("allow", None, "deny"),
        ("allow", None, "allow"),
    ]
    assert [item.is_changed for item in found] == [True, True, False]


def test_a_call_without_a_decision_is_decided_now():
    past = PastCalls()
    past.add(AgentMcpToolUse(mcp_server_name="gh", name="get", input={}))
    past.add(AgentMcpToolUse(mcp_server_name="gh", name="mcp__gh__get", input={}))
    found = past.judged(rules(deny=("mcp__gh__get",)))
    assert [(item.was, item.now.decision) for item in found] == [(None, "deny"), (None, "deny")]


def test_modes_and_grants_of_the_time_are_used():
    past = PastCalls()
    past.add(PolicyAdopted(policy="x", mode="dontAsk"))
    past.bash("make", "deny")
    granted = PermissionUpdate(
        type="addRules",
        behavior="allow",
        rules=(RuleText(tool_name="Bash", rule_content="make"),),
        expires_at=(NOW + timedelta(minutes=6)).isoformat(),
    )
    past.add(PermissionUpdated(updates=(granted,)))
    past.bash("make", "allow")
    past.bash("make", "deny")
    assert [item.now.decision for item in past.judged(rules())] == ["deny", "allow", "deny"]
    others = past.judged(replace(rules(), mode="default"))
    assert [other.now.decision for other in others] == ["ask", "allow", "ask"]


def test_the_workspace_and_sandbox_of_the_time_are_used():
    past = PastCalls()
    read = AgentToolUse(name="read", input={"file_path": "/elsewhere/a"})
    past.add(read)
    past.add(SandboxOpened(backend="x", level="isolated", flags_hash="", workspace="/elsewhere"))
    past.add(read)
    past.bash("make", "allow")
    found = past.judged(replace(rules(), sandbox_allows_bash=True))
    assert [item.now.decision for item in found] == ["ask", "allow", "allow"]
