"""One filled-in payload of every type: what the golden files hold and the round trips run on."""

from pathlib import Path

from tests.core.evolution_samples import EVOLUTION_SAMPLES
from tests.core.learning_samples import LEARNING_SAMPLES

from mainspring.core import content, events
from mainspring.core.envelope import FORMAT, encode_payload, payload_type
from mainspring.core.events import KnownPayload

TEXT = content.TextBlock('Grüße, 世界 🌍\n\t"quoted" \u0000 </script>')
PICTURE = content.ImageBlock(source=content.Base64Source(media_type="image/png", data="aGk="))
LINKED = content.ImageBlock(source=content.UrlSource(url="https://example.com/a.png"))
REPORT = content.DocumentBlock(
    source=content.PlainTextSource(data="Findings"), title="Report", context="for the board"
)
UPLOADED = content.DocumentBlock(source=content.FileSource(file_id="file_1"))
KEPT = content.ImageBlock(
    source=content.BlobSource(hash="sha256:" + "ab" * 32, size=70_000, media_type="image/png")
)
FOUND = content.SearchResultBlock(
    source="https://example.com",
    title="A page",
    content=(content.TextBlock("first"), content.TextBlock("second")),
    citations=content.SearchResultCitations(enabled=True),
)
LONG = content.BlobBlock(preview="the first lines", hash="sha256:" + "cd" * 32, size=200_000)
USAGE = events.Usage(
    input_tokens=12, cache_creation_input_tokens=300, cache_read_input_tokens=9000, output_tokens=77
)
BROKEN = events.ErrorDetail(
    type="model_overloaded_error",
    message="try later",
    retry_status=events.RetryStatus(type="retrying"),
)
ABORTED = events.ErrorDetail(
    type="unknown_error", message="it broke", retry_status=events.RetryStatus(type="terminal")
)
INPUT: dict[str, object] = {
    "command": "ls -la",
    "deep": {"list": [1, 2.5, True, None, "x"], "big": 2**53 + 1},
    "empty": {},
}

_PAYLOADS: tuple[KnownPayload, ...] = (
    events.UserMessage(skill="review", content=(TEXT, PICTURE, LINKED, REPORT, UPLOADED)),
    events.UserInterrupt(session_thread_id="sthr_1"),
    events.UserToolConfirmation(
        tool_use_id="sevt_1",
        result="deny",
        deny_message="not today",
        session_thread_id="sthr_1",
        answered_by="key_1",
    ),
    events.UserCustomToolResult(
        custom_tool_use_id="sevt_1", content=(TEXT,), is_error=True, session_thread_id="sthr_1"
    ),
    events.UserToolResult(
        tool_use_id="sevt_1", content=(TEXT,), is_error=True, session_thread_id="sthr_1"
    ),
    events.UserDefineOutcome(
        description="a report",
        rubric=events.TextRubric(content="has sources"),
        outcome_id="outc_1",
        max_iterations=3,
    ),
    events.SystemMessage(content=(TEXT,)),
    events.AgentMessage(content=(TEXT, content.RedactedBlock())),
    events.AgentThinking(text="hm", signature="c2ln"),
    events.AgentToolUse(name="bash", input=INPUT, evaluated_permission="ask"),
    events.AgentToolResult(
        tool_use_id="sevt_1", content=(TEXT, KEPT, FOUND, LONG), is_error=True, error="failed"
    ),
    events.AgentMcpToolUse(
        mcp_server_name="git", name="log", input=INPUT, evaluated_permission="allow"
    ),
    events.AgentMcpToolResult(mcp_tool_use_id="sevt_1", content=(TEXT,), is_error=True),
    events.AgentCustomToolUse(name="lookup", input=INPUT),
    events.ThreadMessageSent(
        to_session_thread_id="sthr_2", content=(TEXT,), to_agent_name="explorer"
    ),
    events.ThreadMessageReceived(
        from_session_thread_id="sthr_1", content=(TEXT,), from_agent_name="lead", sent_id="sevt_1"
    ),
    events.ContextCompacted(
        layer="collapse",
        first_seq=3,
        last_seq=40,
        dropped_event_ids=("sevt_1", "sevt_2"),
        kept_bytes=4000,
        summary="tests were fixed",
        freed_tokens=12_000,
    ),
    events.StatusRunning(),
    events.StatusIdle(
        stop_reason=events.StopReason(type="requires_action", event_ids=("sevt_1",)),
        reason="requires_action",
        detail="one call waits",
    ),
    events.StatusRescheduled(),
    events.StatusTerminated(),
    events.SessionFailed(error=BROKEN),
    events.SessionUpdated(title="New title", metadata={"team": "core"}),
    events.SessionUsage(usage=USAGE),
    events.SessionDeleted(),
    events.ThreadCreated(
        session_thread_id="sthr_2",
        agent_name="explorer",
        parent_thread_id="sthr_1",
        workflow_run_id="wfr_1",
        tool_use_id="sevt_1",
        mode="background",
        is_fork=True,
        model="haiku",
        isolation="worktree",
        description="find the cause",
    ),
    events.ThreadStatusRunning(session_thread_id="sthr_2", agent_name="explorer"),
    events.ThreadStatusIdle(
        session_thread_id="sthr_2",
        agent_name="explorer",
        stop_reason=events.StopReason(type="end_turn"),
    ),
    events.ThreadStatusRescheduled(session_thread_id="sthr_2", agent_name="explorer"),
    events.ThreadStatusTerminated(session_thread_id="sthr_2", agent_name="explorer"),
    events.ModelRequestStarted(
        model="scripted:demo",
        purpose="summary",
        request_id="mreq_1",
        estimated_input_tokens=9400,
        max_tokens=8000,
        prefix="sha256:" + "56" * 32,
        cache_break="compaction",
    ),
    events.ModelRequestEnded(
        model_request_start_id="sevt_1",
        model_usage=USAGE,
        is_error=True,
        purpose="summary",
        model="scripted:demo",
        stop_reason="max_tokens",
        cost_usd="0.001234",
    ),
    events.OutcomeEvaluationStarted(outcome_id="outc_1", iteration=1),
    events.OutcomeEvaluationOngoing(outcome_id="outc_1", iteration=1),
    events.OutcomeEvaluationEnded(
        outcome_evaluation_start_id="sevt_1",
        outcome_id="outc_1",
        iteration=1,
        result="needs_revision",
        explanation="no sources",
        usage=USAGE,
    ),
    events.WorkflowRunCreated(
        workflow_run_id="wfr_1",
        name="review",
        phases=(events.WorkflowPhase(id="p1", name="plan", description="think first"),),
        description="by concern",
    ),
    events.WorkflowRunRunning(workflow_run_id="wfr_1"),
    events.WorkflowRunIdle(workflow_run_id="wfr_1"),
    events.WorkflowRunEnded(
        workflow_run_id="wfr_1", result=events.WorkflowResult(type="completed")
    ),
    events.WorkflowRunFailed(error=ABORTED, workflow_run_id="wfr_1"),
    events.WorkflowPhaseStarted(workflow_run_id="wfr_1", workflow_run_phase_id="p1"),
    events.WorkflowPhaseEnded(
        workflow_run_id="wfr_1", workflow_run_phase_id="p1", phase_started_id="sevt_1"
    ),
    events.WorkflowNodeStarted(
        workflow_run_id="wfr_1", node="fix/2/edit", kind="prompt", attempt=2, session_id="sesn_2"
    ),
    events.WorkflowNodeEnded(
        workflow_run_id="wfr_1",
        node="fix/2/edit",
        status="failed",
        attempt=2,
        output="1 failed",
        output_blob="ab12",
        structured={"passed": False},
        error=ABORTED,
        reason="complete after 2",
        cost_usd="0.5",
        session_id="sesn_2",
    ),
    events.WorkflowNodeReset(
        workflow_run_id="wfr_1", nodes=("check", "review"), reason="the rework changed files"
    ),
    events.WorkflowRunControlled(
        workflow_run_id="wfr_1", action="skip", node="review", text="not needed"
    ),
    events.SessionCreated(
        agent_name="maintainer", agent_version="3", title="Fix", metadata={"issue": "7"}
    ),
    events.SessionImported(
        format="codex",
        path="rollout-1.jsonl",
        source_session_id="1",
        sha256="00",
        source_ids="sha256:00",
        note="Imported.",
        metadata={"cwd": "/project"},
    ),
    events.SessionForked(parent_session_id="sesn_1", parent_seq=12, title="Another way"),
    events.SessionMoved(transfer_id="tran_1"),
    events.SessionReceived(transfer_id="tran_1", workspace="/home/me/shop"),
    events.SessionWoken(owner="wrkr_1", epoch=4, attempt=2),
    events.LoopContinued(reason="next_turn", detail="2 results"),
    events.ContextStatus(text="Half of the budget is left."),
    events.ToolCallAuthorized(
        tool_use_id="sevt_1",
        decision="allow",
        gate="rule",
        rule="Bash(git status)",
        reason="read-only",
        call_hash="sha256:" + "ef" * 32,
        preview="--- a\n+++ b",
        updated_input=INPUT,
    ),
    events.ToolCallStarted(
        tool_use_id="sevt_1",
        idempotency_key="k" * 8,
        attempt=2,
        sandbox="bwrap/isolated/12ab",
        by_client=True,
    ),
    events.ToolCallInDoubt(tool_use_id="sevt_1", policy="report"),
    events.BudgetReserved(
        reservation_id="rsrv_1", cost_usd="0.25", input_tokens=10_000, output_tokens=8_000
    ),
    events.BudgetSettled(reservation_id="rsrv_1", cost_usd="0.011"),
    events.HookRan(
        hook_event="PreToolUse",
        handler="check.sh",
        outcome="blocked",
        tool_use_id="sevt_1",
        reason="protected",
        milliseconds=12,
    ),
    events.MemoryWritten(
        store_id="memstore_1", path="notes/a.md", operation="modified", version="memver_2"
    ),
    events.ProgramCallStarted(
        tool_use_id="sevt_1",
        call_id="sevt_2",
        name="price",
        input={"item": "lamp"},
        gate="rule",
        rule="price",
    ),
    events.ProgramCallEnded(
        tool_use_id="sevt_1",
        call_id="sevt_2",
        name="price",
        is_error=False,
        content=(content.TextBlock("19.50"),),
    ),
    events.MemoryRecalled(
        store_id="agent", path="a.md", version="9f86", rank=1, score_parts={"own": 2.5}, tokens=12
    ),
    *LEARNING_SAMPLES,
    *EVOLUTION_SAMPLES,
    events.ProviderFailedOver(from_model="a:x", to_model="b:y", reason="forbidden"),
    events.FeedbackGiven(
        subject=events.RatedSubject(type="message", id="sevt_1", version="2"),
        rating="bad",
        text="the wrong file",
    ),
    events.CompactionRequested(instructions="the names of the files"),
    events.PermissionUpdated(
        updates=(
            events.PermissionUpdate(
                type="addRules",
                rules=(events.RuleText(tool_name="Bash", rule_content="npm test *"),),
                behavior="allow",
                grant_id="grnt_1",
                expires_at="2026-11-16T12:00:00Z",
                max_uses=3,
            ),
            events.PermissionUpdate(type="setMode", mode="acceptEdits", destination="session"),
            events.PermissionUpdate(type="addDirectories", directories=("/srv/data",)),
        ),
        by="hook",
        tool_use_id="sevt_1",
    ),
    events.ContextAdded(text="the build is red", source="SessionStart hook"),
    events.MessageWithheld(event_id="sevt_1", reason="it holds a secret"),
    events.PolicyAdopted(policy="sha256:" + "34" * 32, mode="default"),
    events.AgentAdopted(definition="sha256:" + "78" * 32, version="3@78787878"),
    events.ThreadStopped(by_session_thread_id="sthr_1"),
    events.SkillUsed(
        name="release-notes",
        hash="sha256:" + "9a" * 32,
        by="model",
        tool_use_id="sevt_1",
        allowed_tools=("Bash(git log *)",),
        disallowed_tools=("Write",),
    ),
    events.ToolCallStashed(tool_use_id="sevt_1", value={"page": 3}),
    events.OutputProduced(tool_use_id="sevt_1", value={"city": "Bergen"}),
    events.ThreadHandedOff(
        to_session_thread_id="sthr_2", to_agent_name="billing", tool_use_id="sevt_1"
    ),
    events.ApprovalRequested(
        approval_id="aprv_1",
        subject=events.ApprovalSubject(
            type="elicitation",
            id="sevt_1:1",
            hash="ab" * 32,
            evidence=(events.Evidence(title="ticket", text="42", ref="sevt_1"),),
            stale_when=("content_changed", "call_ended"),
        ),
        question="Which seat?",
        form_schema={"type": "object", "properties": {"seat": {"type": "string"}}},
        tool_use_id="sevt_1",
    ),
    events.ApprovalAnswered(
        approval_id="aprv_1",
        decision="allow",
        text="by the window",
        form={"seat": "12A"},
        tool_use_id="sevt_1",
        answered_by="key_1:olga",
    ),
    events.ApprovalVoided(
        approval_id="aprv_1", reason="the call that asked has ended", tool_use_id="sevt_1"
    ),
    events.WorktreeOpened(path="/work/.trees/a", branch="mainspring/a", commit="ab12"),
    events.WorktreeClosed(
        path="/work/.trees/a", outcome="kept", commit="cd34", reason="conflict in a.py"
    ),
    events.SandboxOpened(backend="bwrap", level="isolated", flags_hash="ab12", workspace="/work"),
    events.NetworkRequested(
        host="api.example.com",
        decision="allow",
        rule="api.example.com",
        method="GET",
        path="/v1/things",
        status=200,
        credential="EXAMPLE_TOKEN",
    ),
    events.ToolsLoaded(names=("mcp__crm__find", "mcp__crm__note")),
    events.TodosWritten(todos=(events.Todo(content="mend the gate", status="in_progress"),)),
    events.TaskWritten(
        task=events.Task(
            id="2",
            subject="paint the gate",
            status="failed",
            blocked_by=("1",),
            notes=("it rains",),
        )
    ),
    events.WorkspaceRestored(snapshot="sha256:" + "12" * 32, files=3),
    events.WorkspaceSnapshotted(snapshot="sha256:" + "12" * 32, files=14),
    events.ArtifactPublished(
        name="report.pdf", hash="sha256:" + "34" * 32, size=10_240, media_type="application/pdf"
    ),
    events.EvalRunCreated(
        run_id="sesn_eval",
        suite="basics",
        suite_hash="56" * 32,
        agent_name="helper",
        model="anthropic:claude-sonnet-4-5",
        cases={"greets": "78" * 32},
        trials=3,
        agent_version="v7",
        budget_usd="2.50",
    ),
    events.EvalCaseEnded(
        case_id="greets",
        trial=1,
        case_hash="78" * 32,
        outcome="failed",
        score=0.5,
        session_id="sesn_trial",
        grades=(
            events.EvalGrade(
                grader="contains",
                passed=False,
                score=0.5,
                checks=(
                    events.EvalCheck(name="contains:hello", passed=True),
                    events.EvalCheck(name="contains:bye", passed=False, detail="not there"),
                ),
                weight=2.0,
                error="none",
                note="uncalibrated judge",
            ),
        ),
        error="it took more than 60 s",
        tags=("greeting",),
        turns=2,
        tool_calls=3,
        failed_calls=1,
        usage=USAGE,
        cost_usd="0.0123",
        grading_usd="0.001",
        seconds=1.5,
        from_run="sesn_before",
    ),
    events.EvalRunEnded(status="completed", passed=1, failed=1, errors=0, cost_usd="0.0133"),
)

SAMPLES: dict[str, KnownPayload] = {payload_type(payload): payload for payload in _PAYLOADS}

if __name__ == "__main__":  # python -m tests.core.samples: golden files for what has none yet
    folder = Path(__file__).parent.parent / "golden" / f"v{FORMAT}"
    folder.mkdir(parents=True, exist_ok=True)
    for kind, payload in SAMPLES.items():
        path = folder / f"{kind}.json"
        if not path.exists():  # never changes one: released is released
            path.write_bytes(encode_payload(payload))
