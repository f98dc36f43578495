"""The python tool: at once where that does, in the sandbox where it was allowed to."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.at_once import at_once
from tests.function_tools.samples import call
from tests.row_checks import for_each
from tests.tools.open_sandbox import OpenSandbox

from mainspring.capabilities.monty.interpreter import Interpreter, InterpreterLimits
from mainspring.capabilities.monty.python_tool import needs_full_python, python
from mainspring.capabilities.workspace.folder_workspace import FolderWorkspace
from mainspring.core.content import plain_text
from mainspring.core.tool import SAFE_READ, Tool, ToolResult


@pytest.fixture(scope="module")
async def interpreter() -> AsyncGenerator[Interpreter]:
    async with Interpreter(limits=InterpreterLimits(seconds=0.5)) as made:
        yield made


@pytest.fixture
def sandbox(tmp_path: Path) -> OpenSandbox:
    return OpenSandbox(tmp_path)


async def use_tool(made: Tool, **given: object) -> ToolResult:
    with anyio.fail_after(60):
        return await made.run(call(**given))


async def result_text(made: Tool, code: str, **given: object) -> str:
    return plain_text((await use_tool(made, code=code, **given)).content)


async def test_output_and_the_last_expression_are_returned(interpreter: Interpreter):
    made = python(interpreter)
    assert await result_text(made, "print('hi')\n[n * n for n in range(4)]") == "hi\n[0, 1, 4, 9]"
    assert await result_text(made, "x = 1") == "(no output)"


async def test_no_state_is_left_for_the_next_program(interpreter: Interpreter):
    made = python(interpreter)
    await result_text(made, "x = 1")
    assert "NameError" in await result_text(made, "x")


async def test_workspace_files_can_be_read(interpreter: Interpreter, tmp_path: Path):
    (tmp_path / "a.json").write_text('{"a": [1, 2]}')
    made = python(interpreter, None, FolderWorkspace(tmp_path))
    assert (
        await result_text(made, "import json\nsum(json.loads(open('a.json').read())['a'])") == "3"
    )
    assert "no such file" in await result_text(made, "open('b.json').read()")


async def test_a_failing_program_is_reported_with_its_line(interpreter: Interpreter):
    outcome = await use_tool(python(interpreter), code="x = 1\n1 / 0")
    assert outcome.error == "failed"
    assert "line 2" in plain_text(outcome.content)


@pytest.mark.parametrize(
    ("code", "error", "word"),
    [
        ("while True: pass", "timed_out", "too long"),
        ("[0] * 10**9", "failed", "memory"),
        ("print('x' * 10**6)", "failed", "too much"),
    ],
)
async def test_exceeded_limits_are_reported(
    interpreter: Interpreter, code: str, error: str, word: str
):
    outcome = await use_tool(python(interpreter), code=code)
    assert outcome.error == error
    assert word in plain_text(outcome.content)


async def test_unsupported_modules_run_in_the_sandbox(
    interpreter: Interpreter, sandbox: OpenSandbox
):
    made = python(interpreter, sandbox)
    shown = await result_text(made, "import subprocess\nprint('in', subprocess.__name__)\n6 * 7")
    assert shown.startswith("[run in full Python, in the sandbox: ModuleNotFoundError")
    assert shown.endswith("]\nin subprocess\n42")


async def test_full_python_can_be_requested(interpreter: Interpreter, sandbox: OpenSandbox):
    assert await result_text(python(interpreter, sandbox), "print(1)\n2", full=True) == "1\n2"


async def test_a_failure_in_the_sandbox_is_reported(interpreter: Interpreter, sandbox: OpenSandbox):
    outcome = await use_tool(python(interpreter, sandbox), code="print('é')\n1/0", full=True)
    assert outcome.error == "failed"
    assert "é" in plain_text(outcome.content)
    assert "ZeroDivisionError" in plain_text(outcome.content)


async def test_stored_results_are_deleted_at_the_next_sandbox_run(
    interpreter: Interpreter, sandbox: OpenSandbox
):
    made = python(interpreter, sandbox)
    await made.run(replace(call(code="1", full=True), idempotency_key="first"))
    assert sandbox.forgotten == []
    await made.run(replace(call(code="2", full=True), idempotency_key="second"))
    assert sandbox.forgotten == ["first"]


async def test_a_read_only_program_does_not_escalate_to_the_sandbox(
    interpreter: Interpreter, sandbox: OpenSandbox
):
    made = python(interpreter, sandbox)
    given: dict[str, object] = {"code": "frozenset.mro()"}
    assert made.traits(given) == SAFE_READ
    assert "full: true" in plain_text((await use_tool(made, **given)).content)
    assert sandbox.asked == []


async def test_a_program_that_needs_the_sandbox_is_not_read_only(
    interpreter: Interpreter, sandbox: OpenSandbox
):
    made = python(interpreter, sandbox)
    for given in ({"code": "import os"}, {"code": "1", "full": True}):
        traits = made.traits(given)
        assert (traits.read_only, traits.concurrent, traits.in_doubt) == (False, False, "probe")
    assert python(interpreter).traits({"code": "import os"}) == SAFE_READ


@for_each(
    ("code", "expected"),
    [
        ("import json, math\nfrom collections import Counter, deque", False),
        ("import json.decoder as d", False),
        ("x = 'import numpy'", False),
        ("import json, numpy", True),
        ("if 1:\n    import requests", True),
        ("from os import path", True),
        ("x = 1; import os", False),  # missed, so it is run in the interpreter only
        ("def f():\n    yield 1", True),
        ("class A(B): pass", True),
        ("open('x', 'w')", True),
        ("open('x')", False),
        ("for p in Path('.').glob('*'): pass", True),
    ],
)
def test_the_need_for_full_python_is_seen_in_the_code(code: str, expected: bool):
    assert needs_full_python(code) is expected


async def test_results_are_collected_after_a_crash(interpreter: Interpreter, sandbox: OpenSandbox):
    made = python(interpreter, sandbox)
    assert made.probe is not None
    asked = call(code="print(1)", full=True)
    assert await made.probe(asked) is None
    await made.run(asked)
    found = await made.probe(asked)
    assert found is not None
    assert plain_text(found.content) == "1"
    sandbox.lose(asked.idempotency_key)
    lost = await made.probe(asked)
    assert lost is not None
    assert lost.error == "in_doubt"


async def test_a_broken_sandbox_is_reported(interpreter: Interpreter, sandbox: OpenSandbox):
    sandbox.is_broken = True
    assert (
        await use_tool(python(interpreter, sandbox), code="1", full=True)
    ).error == "unavailable"


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({}, "code"),
        ({"code": " "}, "code"),
        ({"code": 3}, "code"),
        ({"code": "x" * 200_000}, "bytes"),
        ({"code": "1", "full": "yes"}, "full"),
        ({"code": "1", "stdin": ""}, "stdin: unknown; the fields are: code, full"),
    ],
)
async def test_invalid_inputs_are_explained(
    interpreter: Interpreter, sandbox: OpenSandbox, given: dict[str, object], word: str
):
    assert word in (python(interpreter, sandbox).invalid(given) or "")


async def test_programs_run_concurrently(interpreter: Interpreter):
    made = python(interpreter)
    shown = await at_once(lambda number: result_text(made, f"sum(range({number}))"), range(10))
    assert shown == [str(sum(range(number))) for number in range(10)]
