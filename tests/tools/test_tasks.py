"""The task tools: dependencies, failures and notes; what is wrong changes nothing."""

from collections.abc import Mapping

import msgspec
import pytest
from tests.function_tools.samples import call

from mainspring.capabilities.providers.token_estimate import text_tokens
from mainspring.capabilities.tools.tasks import MAX_TASKS, task_tools
from mainspring.core.content import plain_text
from mainspring.core.events import Task, TaskWritten


class TaskList:
    """What a log would have of these calls."""

    def __init__(self, *tasks: Task) -> None:
        self.tasks = {task.id: task for task in tasks}
        self._tools = {tool.spec.name: tool for tool in task_tools(self.tasks)}

    async def use(self, name: str, **given: object) -> str:
        tool = self._tools[name]
        assert tool.traits({}).concurrent is False, "calls of one turn must not overtake each other"
        result = await tool.run(call(**given))
        for fact in result.facts:
            assert isinstance(fact, TaskWritten)
            self.tasks[fact.task.id] = fact.task
        assert result.ok == (tool.invalid(given) is None and result.error is None)
        return plain_text(result.content)


async def test_a_task_waits_for_its_dependencies():
    plan = TaskList()
    await plan.use("task_create", subject="Parse", description="With tests.")
    await plan.use("task_create", subject="Render", blocked_by=["1"])
    assert await plan.use("task_list") == "[ ] #1 Parse\n[ ] #2 Render (after #1)"
    assert "waits for 1" in await plan.use("task_update", task_id="2", status="in_progress")
    assert plan.tasks["2"].status == "pending"
    await plan.use("task_update", task_id="1", status="in_progress", note="the grammar is LL(1)")
    done = await plan.use("task_update", task_id="1", status="completed")
    assert done == "[x] #1 Parse\n#2 can begin: Render"
    await plan.use("task_update", task_id="2", status="failed", note="no terminal here")
    assert await plan.use("task_get", task_id="2") == (
        "[!] #2 Render\nstatus: failed\nnote: no terminal here"
    )
    assert plan.tasks["1"].notes == ("the grammar is LL(1)",)


async def test_a_deleted_task_blocks_nothing_and_its_number_is_not_reused():
    plan = TaskList()
    for subject in ("a", "b"):
        await plan.use("task_create", subject=subject)
    await plan.use("task_update", task_id="2", add_blocked_by=["1"])
    assert "#2 can begin" in await plan.use("task_update", task_id="1", status="deleted")
    assert await plan.use("task_create", subject="c") == "Created #3: c"
    assert await plan.use("task_list") == "[ ] #2 b\n[ ] #3 c"


@pytest.mark.parametrize(
    ("name", "given", "word"),
    [
        ("task_create", {"subject": " "}, "subject"),
        ("task_create", {"subject": "x", "blocked_by": ["9"]}, "no task 9; the tasks are 1, 2"),
        ("task_create", {"subject": "x" * 301}, "subject"),
        ("task_update", {"task_id": "9"}, "no task 9"),
        ("task_update", {"task_id": "1", "status": "done"}, "status"),
        ("task_update", {"task_id": "1", "status": "failed"}, "why the task failed"),
        ("task_update", {"task_id": "1", "add_blocked_by": ["1"]}, "wait for itself"),
        ("task_update", {"task_id": "1", "add_blocked_by": ["2"]}, "wait for itself"),
        ("task_get", {"task_id": "0"}, "no task 0"),
    ],
)
async def test_an_invalid_call_is_explained_and_changes_nothing(
    name: str, given: Mapping[str, object], word: str
):
    plan = TaskList(Task(id="1", subject="a"), Task(id="2", subject="b", blocked_by=("1",)))
    before = dict(plan.tasks)
    assert word in await plan.use(name, **given)
    assert plan.tasks == before


async def test_a_full_list_accepts_no_more_tasks():
    plan = TaskList(*(Task(id=str(number + 1), subject="x") for number in range(MAX_TASKS)))
    assert f"at most {MAX_TASKS}" in await plan.use("task_create", subject="one more")


def test_task_tool_definitions_are_short_and_validate_their_input():
    tools = {tool.spec.name: tool for tool in task_tools({})}
    definitions = [msgspec.json.encode(tool.spec).decode() for tool in tools.values()]
    assert sum(map(text_tokens, definitions)) <= 400
    assert tools["task_create"].invalid({"subject": "x" * 301}) is not None
    assert tools["task_create"].invalid({"subject": " "}) is not None
    assert tools["task_create"].invalid({"subject": "a", "colour": "red"}) is not None
    assert tools["task_update"].invalid({"task_id": "1", "status": "done"}) is not None
    assert tools["task_update"].invalid({"task_id": "1", "status": None}) is None
