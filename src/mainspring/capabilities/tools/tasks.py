"""The task tools: a list of tasks with dependencies. The log has the last state of each task, so
that no compaction loses the list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import replace

from mainspring.core.content import TextBlock
from mainspring.core.events import Task, TaskWritten
from mainspring.core.tool import Tool, ToolResult
from mainspring.function_tools.define import tool
from mainspring.function_tools.wrap import with_short_schema

MAX_TASKS = 200  # of a thread
MAX_NOTES = 20  # of one task
_MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]", "failed": "[!]"}

TaskId = Annotated[str, Meta(min_length=1, max_length=10)]
Subject = Annotated[str, Meta(min_length=1, max_length=300, pattern=r"\S")]
Text = Annotated[str, Meta(max_length=4_000)]
Note = Annotated[str, Meta(max_length=1_000)]
Ids = Annotated[tuple[TaskId, ...], Meta(max_length=50)]
NewStatus = Literal["pending", "in_progress", "completed", "failed", "deleted"]


def task_tools(tasks: Mapping[str, Task]) -> list[Tool]:
    """`tasks`: the thread's tasks in the log, by id; updated with the log."""
    # They change only the log's own record. They are not concurrent: calls of one turn number the
    # tasks in the order in which the model made them. Every request has their definitions, so
    # these are short.
    tools = (_create(tasks), _get(tasks), _list(tasks), _update(tasks))
    return [with_short_schema(tool) for tool in tools]


def _create(tasks: Mapping[str, Task]) -> Tool:
    @tool(read_only=True, in_doubt="retry")
    async def task_create(
        subject: Subject, description: Text = "", blocked_by: Ids = ()
    ) -> ToolResult:
        """Add a task to your list: before you begin work of three or more steps.

        Args:
            blocked_by: Ids of tasks to complete first.
        """
        if len(tasks) >= MAX_TASKS:
            return _refusal(f"a task list has at most {MAX_TASKS} tasks")
        if unknown := _unknown_ids_problem(tasks, blocked_by):
            return _refusal(unknown)
        task = Task(
            id=str(len(tasks) + 1),
            subject=subject.strip(),
            description=description.strip(),
            blocked_by=tuple(dict.fromkeys(blocked_by)),
        )
        return _stored_result(f"Created #{task.id}: {task.subject}", task)

    return task_create


def _update(tasks: Mapping[str, Task]) -> Tool:
    @tool(read_only=True, in_doubt="retry")
    async def task_update(
        task_id: TaskId,
        status: NewStatus | None = None,
        subject: Subject | None = None,
        description: Text | None = None,
        note: Note | None = None,
        add_blocked_by: Ids = (),
    ) -> ToolResult:
        """Change a task: in_progress when you begin, completed once it is done and checked, failed
        with a note why.

        Args:
            note: Stored with the task: a finding, a decision.
        """
        if problem := _unknown_ids_problem(tasks, [task_id, *add_blocked_by]):
            return _refusal(problem)
        old = tasks[task_id]
        task = replace(
            old,
            status=status or old.status,
            subject=(subject or old.subject).strip(),
            description=old.description if description is None else description.strip(),
            notes=(*old.notes, note.strip())[-MAX_NOTES:] if note and note.strip() else old.notes,
            blocked_by=tuple(dict.fromkeys((*old.blocked_by, *add_blocked_by))),
        )
        if problem := _problem(tasks, old, task):
            return _refusal(problem)
        return _stored_result(_changes(tasks, task), task)

    return task_update


def _get(tasks: Mapping[str, Task]) -> Tool:
    @tool(read_only=True, in_doubt="retry")
    async def task_get(task_id: TaskId) -> ToolResult:
        """Read a task with its notes."""
        if problem := _unknown_ids_problem(tasks, [task_id]):
            return _refusal(problem)
        task = tasks[task_id]
        lines = [_task_line(tasks, task), f"status: {task.status}"]
        lines += [task.description] if task.description else []
        lines += [f"note: {note}" for note in task.notes]
        return ToolResult.text("\n".join(lines))

    return task_get


def _list(tasks: Mapping[str, Task]) -> Tool:
    @tool(read_only=True, in_doubt="retry")
    async def task_list() -> ToolResult:
        """List your tasks."""
        lines = [_task_line(tasks, task) for task in _not_deleted(tasks)]
        return ToolResult.text("\n".join(lines) or "The task list is empty.")

    return task_list


def _task_line(tasks: Mapping[str, Task], task: Task) -> str:
    blockers = [f"#{blocker}" for blocker in task.open_blockers(tasks)]
    after = f" (after {', '.join(blockers)})" if blockers else ""
    return f"{_MARKS.get(task.status, '[-]')} #{task.id} {task.subject}{after}"


def _not_deleted(tasks: Mapping[str, Task]) -> Iterable[Task]:
    return (task for task in tasks.values() if task.status != "deleted")


def _unknown_ids_problem(tasks: Mapping[str, Task], ids: Sequence[str]) -> str | None:
    present = [task.id for task in _not_deleted(tasks)]
    missing_ids = [task_id for task_id in ids if task_id not in present]
    listing = f"the tasks are {', '.join(present)}" if present else "the list is empty"
    return f"there is no task {', '.join(missing_ids)}; {listing}" if missing_ids else None


def _problem(tasks: Mapping[str, Task], old: Task, task: Task) -> str | None:
    if _is_in_cycle(tasks, task):
        return f"task {task.id} would wait for itself"
    if task.status == "failed" and len(task.notes) == len(old.notes) and old.status != "failed":
        return "say in `note` why the task failed"
    blockers = task.open_blockers(tasks)
    if task.status in ("in_progress", "completed") and blockers:
        return f"task {task.id} waits for {', '.join(blockers)}; complete or delete that first"
    return None


def _is_in_cycle(tasks: Mapping[str, Task], task: Task) -> bool:
    visited: set[str] = set()
    ahead = [*task.blocked_by]
    while ahead:
        current = ahead.pop()
        if current == task.id:
            return True
        if current not in visited and current in tasks:
            visited.add(current)
            ahead += tasks[current].blocked_by
    return False


def _changes(tasks: Mapping[str, Task], task: Task) -> str:
    """The text for the model: the task, and the tasks that can now begin."""
    now = {**tasks, task.id: task}
    lines = [_task_line(now, task)]
    if task.status in ("completed", "deleted"):
        lines += [
            f"#{other.id} can begin: {other.subject}"
            for other in _not_deleted(now)
            if task.id in other.blocked_by
            and other.status == "pending"
            and not other.open_blockers(now)
        ]
    return "\n".join(lines)


def _stored_result(text: str, task: Task) -> ToolResult:
    return ToolResult((TextBlock(text),), facts=(TaskWritten(task=task),))


def _refusal(why: str) -> ToolResult:
    return ToolResult.text(f"{why[0].upper()}{why[1:]}.", ok=False, error="invalid")
