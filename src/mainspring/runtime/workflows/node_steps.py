"""One conversation or one program of a node, with the values that it refers to."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable
from dataclasses import replace

from mainspring.core.errors import InvalidInput
from mainspring.runtime.workflows.format.definition import Node, input_variable
from mainspring.runtime.workflows.format.program_text import (
    ProgramText,
    bash_program,
    script_program,
)
from mainspring.runtime.workflows.format.references import (
    VARIABLES,
    Reference,
    fill_text,
    value_text,
)
from mainspring.runtime.workflows.format.structure import node_texts
from mainspring.runtime.workflows.run_context import RunContext
from mainspring.runtime.workflows.run_scope import Scope, bound_values
from mainspring.runtime.workflows.step_runner import AgentStep, ProgramStep, StepResult

MAX_TIMEOUT_MS = 600_000
"""The longest time of one program; the sandbox allows no more by default."""
_INLINE_CODE = frozenset(";(){}&|<>$`\"' \n")
"""A script with one of these is code; any other is the name of a file."""


async def run_agent(  # parameters: a conversation of a loop has its own text and predecessor
    context: RunContext,
    scope: Scope,
    node: Node,
    attempt: int,
    *,
    text: str | None = None,
    path: str | None = None,
    continues: str | None = None,
) -> StepResult:
    """One conversation. A command may have inputs of its own."""
    template, own = text or node.text, scope
    path = path or scope.path(node)
    values = await context.value_reader(scope, *(item for _, item in node_texts(node)), template)
    if node.kind == "command" and text is None:
        template = context.files.command(node.text)
        bound = bound_values(scope, context.state, node, values)
        own = replace(scope, inputs={**scope.inputs, **bound})
        values = await context.value_reader(own, template)
    if continues is None and (source := _conversation(scope, node)) is not None:
        before = context.state.nodes.get(source)
        continues = None if before is None else before.session_id
    system = node.system_prompt
    async with context.limiter:
        return await context.runner.run_agent(
            AgentStep(
                path=path,
                node=node,
                workflow=scope.workflow,
                prompt=fill_text(template, values),
                session_id=context.step_id(path, attempt),
                workspace=scope.workspace,
                system_prompt=None if system is None else fill_text(system, values),
                continues=continues,
                servers=() if node.mcp is None else context.files.servers[node.mcp],
            )
        )


def _conversation(scope: Scope, node: Node) -> str | None:
    """The path of the node whose conversation a node continues."""
    if node.resumes is not None:
        return f"{scope.prefix}{node.resumes}"
    if node.context != "shared":
        return None
    agents = {item.id for item in scope.nodes if item.kind in ("prompt", "command")}
    return next((scope.prefix + dep for dep in reversed(node.depends_on) if dep in agents), None)


async def run_program(
    context: RunContext,
    scope: Scope,
    node: Node,
    attempt: int,
    *,
    text: str | None = None,
    path: str | None = None,
) -> StepResult:
    """One program, or the check of a loop, with its own text and path."""
    is_check = text is not None
    code, path = text or node.text, path or scope.path(node)
    values = await context.value_reader(scope, *(item for _, item in node_texts(node)), code)
    variables = {name: value_text(values(Reference(name=name))) for name in sorted(VARIABLES)}
    bound = bound_values(scope, context.state, node, values) if node.kind == "script" else {}
    for name, value in {**scope.inputs, **bound}.items():
        variables[input_variable(name)] = value_text(value)
    is_script = node.kind == "script" and not is_check
    program = _script(context, node, values) if is_script else bash_program(code, values)
    variables |= program.variables
    async with context.limiter:
        return await context.runner.run_program(
            ProgramStep(
                path=path,
                command=program.text,
                variables={
                    name: value.replace("\0", "")
                    for name, value in variables.items()
                    if value or name in program.variables or name.startswith("INPUTS_")
                },
                session_id=context.step_id(path, attempt),
                workspace=scope.workspace,
                timeout_ms=min(node.timeout_ms or MAX_TIMEOUT_MS, MAX_TIMEOUT_MS),
            )
        )


def is_inline(script: str) -> bool:
    """Whether a script is code, not the name of a file."""
    return not _INLINE_CODE.isdisjoint(script)


def _script(context: RunContext, node: Node, values: Callable[[Reference], object]) -> ProgramText:
    """The program that passes a script to its runtime by standard input, as it is."""
    runtime = node.runtime or "bun"
    if is_inline(node.text):
        program = script_program(node.text, values, runtime)
    elif (code := context.files.scripts.get(node.text)) is not None:
        program = ProgramText(text=code, variables={})  # a file gets values by its environment only
    else:
        raise InvalidInput(f"there is no script {node.text}")
    end = f"END_{hashlib.sha256(program.text.encode()).hexdigest()[:16]}"
    if runtime == "bun":
        command = f"bun run - <<'{end}'"
    elif node.deps:
        packages = " ".join(f"--with {shlex.quote(item)}" for item in node.deps)
        command = f"uv run --no-project --quiet {packages} python - <<'{end}'"
    else:
        command = (
            "if command -v uv >/dev/null; then set -- uv run --no-project --quiet python -;"
            f" else set -- python3 -; fi\n\"$@\" <<'{end}'"
        )
    return ProgramText(text=f"{command}\n{program.text}\n{end}\n", variables=program.variables)
