"""The report of a subagent's run, as a text for its parent."""

from __future__ import annotations

import msgspec

from mainspring.core.tool import ToolResult
from mainspring.harness.state.thread_tree import ThreadNode

_STOP_REASONS = {
    "max_turns": "it has used all its turns",
    "budget_reached": "its budget is used up",
    "interrupted_streaming": "it was stopped",
    "interrupted_tools": "it was stopped",
    "prompt_too_long": "its context is full",
    "output_invalid": "it gave no valid result",
    "output_truncated": "its answer was cut off",
    "model_error": "its model failed",
    "loop_detected": "it repeated the same calls",
    "refusal": "its model refused",
    "stop_hook_prevented": "a hook stopped it",
    "hook_stopped": "a hook stopped it",
    "recovery_exhausted": "it could not be resumed",
}


def report_text(node: ThreadNode, note: str = "") -> str:
    """The last message of a thread, its id and cost, and a note."""
    thread = node.thread
    answer = _answer(node)
    why = _STOP_REASONS.get(thread.last_reason or "")
    report = f"[It did not finish: {why}. Its last message:]\n{answer}" if why else answer
    spent = node.spend_account.spending
    cost = f", {spent.cost_usd:.4f} US dollars" if spent.cost_usd else ""
    text = f"{report}\n\n[{node.name} {node.id}: {spent.turns} turns{cost}]"
    return f"{text}\n{note}" if note else text


def _answer(node: ThreadNode) -> str:
    """Its typed output as JSON, or its last message."""
    if node.thread.output is not None:
        return msgspec.json.encode(node.thread.output.value).decode()
    return node.thread.transcript.last_words().strip() or "(it said nothing)"


def report_result(node: ThreadNode, note: str = "") -> ToolResult:
    is_done = node.thread.last_reason == "completed"
    return ToolResult.text(report_text(node, note), ok=is_done, error=None if is_done else "failed")
