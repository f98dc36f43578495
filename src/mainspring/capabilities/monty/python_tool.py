"""The python tool: small programs run at once in the interpreter, others in the sandbox. It also
defines the result of an interpreter run, without importing the interpreter."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Literal, Protocol, TypeAlias, cast

from msgspec import Struct, field

from mainspring.core.errors import SandboxFailed
from mainspring.core.events import Failure
from mainspring.core.model import ToolSpec
from mainspring.core.ports import CapturedOutput, ExecRequest, ExecResult, Sandbox, Workspace
from mainspring.core.tool import SAFE_READ, Call, Tool, ToolResult, Traits

RunEnd: TypeAlias = Literal[
    "done",
    "raised",  # it would fail in any Python
    "unsupported",  # full Python may support it
    "time",
    "memory",
    "output",
    "crashed",
]


class InterpreterResult(Struct, frozen=True, kw_only=True):
    run_end: RunEnd
    output: str
    """The printed text, up to the output limit."""
    value: str = ""
    """The value of the last expression; empty if it is `None`, or not an expression."""
    message: str = ""
    """The error of a failed run: a traceback with the program's own lines."""


CallTool: TypeAlias = Callable[[str, Mapping[str, object]], Awaitable[ToolResult]]


class CodeInterpreter(Protocol):
    async def run(
        self, code: str, workspace: Workspace | None, call_tool: CallTool | None = None
    ) -> InterpreterResult:
        """Run a program in a fresh interpreter; it can read files of the workspace but not change
        them. `call_tool`: how it calls other tools."""
        ...


_MAX_CODE_BYTES = 100_000  # of a program that a model writes
_SANDBOX_SECONDS = 120.0  # for a program that runs in the sandbox instead, as `bash` has
# fmt: off
_KNOWN = frozenset((
    "asyncio", "base64", "binascii", "bisect", "collections", "copy", "csv", "dataclasses",
    "datetime", "decimal", "functools", "hashlib", "itertools", "json", "math", "pathlib",
    "random", "re", "sys", "time", "typing", "unicodedata",
))
# fmt: on
_IMPORTS = re.compile(r"^[ \t;]*(?:import|from)[ \t]+([\w., \t]+)", re.MULTILINE)
# Syntax and functions that the interpreter is known to lack. A false alarm costs a question to a
# person, a miss costs the model another call; neither lets a program do what it is not allowed to.
_NEEDS_MORE = re.compile(
    r"\b(?:yield|del|input|__import__|exec|compile|mkdir|unlink|i?glob|rglob|iterdir|walk|scandir|listdir"
    r"|write_text|write_bytes)\b"
    r"|\bclass\s+\w+\s*\(|^\s*@|^\s*type\s+\w+\s*=|\bexcept\s*\*|\bopen\([^)\n]*[,=]\s*[\"'][rbt]*[wax+]",
    re.MULTILINE,
)
_CALLS_TOOLS = re.compile(r"\bcall_tool\b")
# In the sandbox too, the last expression is the result.
_RUNNER = (
    "import ast, sys\n"
    "tree = ast.parse(sys.stdin.read(), 'program.py')\n"
    "last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None\n"
    "names = {'__name__': '__main__'}\n"
    "exec(compile(tree, 'program.py', 'exec'), names)\n"
    "if last is not None:\n"
    "    value = eval(compile(ast.Expression(last.value), 'program.py', 'eval'), names)\n"
    "    if value is not None: print(repr(value))\n"
)
_DESCRIPTION = (
    "Run a small Python program at once: computations, text and data. It starts from nothing each"
    " time, can read files of the workspace and change none, and has no network. There are the"
    " usual builtins and " + ", ".join(sorted(_KNOWN)) + "; no generators, inheritance or del."
    ' call_tool("name", key=value, ...) calls another tool of yours that needs no approval, and'
    " returns its result as text; only what the program prints or returns comes back to you."
)
_MORE = "What that lacks is run in full Python in the sandbox instead, or with full: true."
_LOST = (
    "The system stopped while this ran. Whether it took effect is not known: look before you do it"
    " again."
)
_STOPPED: Mapping[RunEnd, str] = {
    "time": "stopped: it took too long",
    "memory": "stopped: it used too much memory",
    "output": "stopped: it printed too much",
    "crashed": "stopped: the interpreter crashed on it",
}


def python(
    interpreter: CodeInterpreter, sandbox: Sandbox | None = None, workspace: Workspace | None = None
) -> Tool:
    """The tool that runs Python. A program that needs what the interpreter lacks runs in the
    sandbox only if it was judged as one that may write: this fallback must not bypass a
    permission."""
    runs = _PythonRuns(interpreter, sandbox, workspace)
    return Tool(
        spec=ToolSpec(
            name="python",
            description=_DESCRIPTION if sandbox is None else f"{_DESCRIPTION} {_MORE}",
            input_schema=_schema(has_sandbox=sandbox is not None),
        ),
        run=runs.run,
        traits=runs.traits,
        probe=None if sandbox is None else runs.probe,
        invalid=partial(_invalid, has_sandbox=sandbox is not None),
        preview=_preview,
    )


def _schema(*, has_sandbox: bool) -> dict[str, object]:
    code = {"type": "string", "description": "The program; its last expression is the result."}
    full = {"type": "boolean", "description": "Run it in full Python, in the sandbox."}
    full |= {"default": False}
    return {
        "type": "object",
        "properties": {"code": code, "full": full} if has_sandbox else {"code": code},
        "required": ["code"],
        "additionalProperties": False,
    }


def _invalid(args: Mapping[str, object], *, has_sandbox: bool) -> str | None:
    fields = ("code", "full") if has_sandbox else ("code",)
    problem = f"unknown; the fields are: {', '.join(fields)}"
    problems = [f"{name}: {problem}" for name in args if name not in fields]
    code = args.get("code")
    if not isinstance(code, str) or not code.strip():
        problems.append("code: must be a program")
    elif len(code.encode("utf-8", "replace")) > _MAX_CODE_BYTES:
        problems.append(f"code: over {_MAX_CODE_BYTES} bytes")
    if not isinstance(args.get("full", False), bool):
        problems.append("full: must be true or false")
    if not problems:
        return None
    return "\n".join(["The input is not valid:", *(f"- {problem}" for problem in problems)])


async def _preview(call: Call) -> str | None:
    return str(call.input.get("code", ""))


def needs_full_python(code: str) -> bool:
    """Whether a program, by its words, needs what the interpreter lacks."""
    modules = {
        name.strip().partition(" ")[0].partition(".")[0]
        for imported in _IMPORTS.findall(code)
        for name in str(imported).partition(" import ")[0].split(",")
    }
    return not modules <= _KNOWN or _NEEDS_MORE.search(code) is not None


class _PythonRuns(Struct, frozen=True):
    interpreter: CodeInterpreter
    sandbox: Sandbox | None
    workspace: Workspace | None
    collected: set[str] = field(default_factory=set[str])
    """Keys of results that the harness has received, and that the sandbox still stores."""

    def traits(self, args: Mapping[str, object]) -> Traits:
        if self._may_climb(args):
            return Traits(in_doubt="probe")
        if _CALLS_TOOLS.search(str(args.get("code", ""))):  # each of these calls is authorized
            return Traits(read_only=True)
        return SAFE_READ

    def _may_climb(self, args: Mapping[str, object]) -> bool:
        if self.sandbox is None:
            return False
        return args.get("full") is True or needs_full_python(str(args.get("code", "")))

    async def run(self, call: Call) -> ToolResult:
        code = str(call.input.get("code", ""))
        if self.sandbox is not None and call.input.get("full") is True:
            return await self._climb(self.sandbox, call, code, "")
        finished = await self.interpreter.run(code, self.workspace, call.call_tool)
        if finished.run_end == "unsupported" and self.sandbox is not None:
            why = finished.message.strip().rpartition("\n")[2]
            if self._may_climb(call.input):
                note = f"[run in full Python, in the sandbox: {why}]"
                return await self._climb(self.sandbox, call, code, note)
            advice = "full Python may have it: call again with full: true"
            return _interpreter_result(finished, advice)
        return _interpreter_result(finished, "")

    async def probe(self, call: Call) -> ToolResult | None:
        if self.sandbox is None:
            return None
        try:
            ran = await self.sandbox.find_result(call.idempotency_key)
        except SandboxFailed:
            return ToolResult.text(_LOST, ok=False, error="in_doubt")
        self.collected.add(call.idempotency_key)
        return None if ran is None else _sandbox_result(ran, "")

    async def _climb(self, sandbox: Sandbox, call: Call, code: str, note: str) -> ToolResult:
        request = ExecRequest(
            key=call.idempotency_key,
            argv=("python3", "-c", _RUNNER),
            stdin=code.encode("utf-8", "replace"),
            wall_seconds=_SANDBOX_SECONDS,
        )
        try:
            # Calls that may use the sandbox run alone, so all earlier results are in the log.
            while self.collected:
                await sandbox.forget(self.collected.pop())
            ran = await sandbox.run(request)
        except SandboxFailed as error:
            return ToolResult.text(f"Not run: {error}", ok=False, error="unavailable")
        self.collected.add(call.idempotency_key)
        return _sandbox_result(ran, note)


def _interpreter_result(result: InterpreterResult, advice: str) -> ToolResult:
    ok = result.run_end == "done"
    stopped = _STOPPED.get(result.run_end)
    parts = [
        result.output.rstrip("\n"),
        result.value,
        f"[{stopped}]" if stopped else result.message,
        f"[{advice}]" if advice else "",
    ]
    error: Failure = "timed_out" if result.run_end == "time" else "failed"
    return _tool_result(parts, ok=ok, error=error)


def _sandbox_result(result: ExecResult, note: str) -> ToolResult:
    if result.stop_cause == "lost":
        return ToolResult.text(_LOST, ok=False, error="in_doubt")
    stopped = result.stop_cause
    ending = f"exit status {result.status}" if stopped is None else f"stopped: {stopped}"
    ok = result.status == 0 and result.stop_cause is None
    parts = [note, _text(result.stdout), _text(result.stderr), "" if ok else f"[{ending}]"]
    error: Failure = "timed_out" if result.stop_cause == "time" else "failed"
    return _tool_result(parts, ok=ok, error=error)


def _tool_result(parts: list[str], *, ok: bool, error: Failure) -> ToolResult:
    text = "\n".join(part for part in parts if part) or "(no output)"
    plain = text.encode("utf-8", "replace").decode()
    return ToolResult.text(plain, ok=ok, error=None if ok else error)


def _text(stream: CapturedOutput) -> str:
    left_out = f"\n[... {stream.left_out} bytes left out ...]\n".encode()
    content = stream.head + (left_out if stream.left_out > 0 else b"") + stream.tail
    return content.decode("utf-8", "replace").replace("\x1b", "").rstrip("\n")


class LazyInterpreter:
    """A `CodeInterpreter` for all sessions of a process, started on first use and closed with the
    stack."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._interpreter: CodeInterpreter | None = None

    @classmethod
    def of(cls, stack: AsyncExitStack) -> LazyInterpreter | None:
        return None if find_spec("pydantic_monty") is None else cls(stack)

    async def run(
        self, code: str, workspace: Workspace | None = None, call_tool: CallTool | None = None
    ) -> InterpreterResult:
        if self._interpreter is None:
            # imported by name: it is an optional dependency, and slow to import
            module = import_module("mainspring.capabilities.monty.interpreter")
            self._interpreter = cast(
                "CodeInterpreter", await self._stack.enter_async_context(module.Interpreter())
            )
        return await self._interpreter.run(code, workspace, call_tool)
