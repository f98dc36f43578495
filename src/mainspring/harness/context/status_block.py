"""The status block that ends a request: goal, done, now, left, budget. A pure function of the log.

It is a note in the newest user turn and stays there, so that the next request extends this one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mainspring.core.events import Task
from mainspring.core.model import Assistant
from mainspring.harness.budget import BudgetTier, budget_status
from mainspring.harness.state.thread import Thread

GOAL_LABEL = "Goal: "
_GOAL_CHARS = 200  # the block is in every request
_SUBJECT_CHARS = 80  # of a task
_SHOWN_TASKS = 5  # in each state


def due_status(thread: Thread, tiers: Sequence[BudgetTier]) -> str | None:
    """The status block of the next request. The first request of a task ends with its goal, so it
    gets one only if there is more to say."""
    messages = thread.transcript.messages
    has_replied = bool(messages) and isinstance(messages[-1], Assistant)
    goal = thread.transcript.pins.goal if has_replied else ""
    lines = [f"{GOAL_LABEL}{_shortened(goal, _GOAL_CHARS)}"] if goal else []
    lines += _task_lines(thread.tasks)
    lines += [budget] if (budget := budget_status(tiers)) is not None else []
    text = "\n".join(lines)
    return text if text and (goal or text != thread.status) else None


def _task_lines(tasks: Mapping[str, Task]) -> list[str]:
    """Open tasks in full, and the number of completed ones. `task_list` has the whole list."""
    present = [task for task in tasks.values() if task.status != "deleted"]
    completed = [task for task in present if task.status == "completed"]
    if not present:
        return []
    last = f", last {_named(completed[-1])}" if completed else ""
    lines = [f"Done: {len(completed)} of {len(present)} tasks{last}"]
    for label, status in (("Now", "in_progress"), ("Left", "pending"), ("Failed", "failed")):
        tasks_of_status = [task for task in present if task.status == status]
        if tasks_of_status:
            names = [_named(task, tasks) for task in tasks_of_status[:_SHOWN_TASKS]]
            more = len(tasks_of_status) - len(names)
            lines.append(f"{label}: {'; '.join([*names, *([f'{more} more'] if more else [])])}")
    return lines


def _named(task: Task, tasks: Mapping[str, Task] | None = None) -> str:
    waiting = [] if tasks is None else task.open_blockers(tasks)
    after = f" (after {', '.join(f'#{blocker}' for blocker in waiting)})" if waiting else ""
    why = f" ({_shortened(task.notes[-1], _SUBJECT_CHARS)})" if task.status == "failed" else ""
    return f"#{task.id} {_shortened(task.subject, _SUBJECT_CHARS)}{after}{why}"


def _shortened(text: str, max_chars: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= max_chars else f"{line[: max_chars - 1]}…"
