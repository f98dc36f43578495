"""The service tools: named programs that keep running while the session works."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from mainspring.capabilities.tools.shell import captured_text
from mainspring.capabilities.tools.shell_script import MAX_COMMAND_BYTES
from mainspring.core.errors import SandboxFailed
from mainspring.core.ports import ExecRequest, ExecResult
from mainspring.core.tool import Call, Tool, ToolResult, Traits
from mainspring.function_tools.define import tool
from mainspring.function_tools.wrap import filtered

_TOGETHER = 'exec 2>&1; eval "$1"'
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")


class ServiceProgress(Protocol):
    @property
    def is_running(self) -> bool: ...
    @property
    def result(self) -> ExecResult:
        """The output so far; all of it, once the program has ended."""
        ...


class BackgroundServices(Protocol):
    """Named programs of a session that outlive a call."""

    async def start(self, name: str, request: ExecRequest) -> None:
        """Start a service. Starting it again under the same key has no effect.

        Raises:
            SandboxFailed: it was not started; it says why.
        """
        ...

    async def output(self, name: str) -> ServiceProgress | None:
        """`None` if there is no such service."""
        ...

    async def stop(self, name: str) -> ExecResult | None:
        """Kill a service and all its processes; `None` if there is no such service."""
        ...


def service_tools(
    services: BackgroundServices,
    *,
    judge: Callable[[str], tuple[bool, bool]],
    max_seconds: float = 3600,
) -> tuple[Tool, Tool, Tool]:
    """`service_start`, `service_output`, `service_stop`; a service is stopped after
    `max_seconds`."""
    return (_start_tool(services, judge, max_seconds), _output_tool(services), _stop_tool(services))


def _start_tool(
    services: BackgroundServices, judge: Callable[[str], tuple[bool, bool]], max_seconds: float
) -> Tool:
    @tool
    async def service_start(call: Call, name: str, command: str) -> ToolResult:
        """Start a program that keeps running while you continue: a development server, a watcher,
        a database. Read its output with service_output.

        Args:
            name: Its name: lower-case letters, digits, - and _.
            command: The bash command that runs it in the foreground, without &.
        """
        exec_request = ExecRequest(
            key=call.idempotency_key,
            argv=("bash", "--noprofile", "--norc", "-c", _TOGETHER, "bash", command),
            wall_seconds=max_seconds,
        )
        try:
            await services.start(name, exec_request)
        except SandboxFailed as error:
            return ToolResult.text(f"Not started: {error}", ok=False, error="unavailable")
        return ToolResult.text(f"{name} has started; service_output shows its output.")

    def traits(args: Mapping[str, object]) -> Traits:
        # A service is started once per key, however often the call is repeated.
        return Traits(destructive=judge(str(args.get("command", "")))[1], in_doubt="retry")

    async def preview(call: Call) -> str | None:
        return str(call.input.get("command", ""))

    return filtered(replace(service_start, traits=traits, preview=preview), _refusal)


def _output_tool(services: BackgroundServices) -> Tool:
    @tool(read_only=True, concurrent=True)
    async def service_output(name: str) -> ToolResult:
        """Show the beginning and the end of a service's output, and whether it is running.

        Args:
            name: The service.
        """
        try:
            progress = await services.output(name)
        except SandboxFailed as error:
            return ToolResult.text(str(error), ok=False, error="unavailable")
        if progress is None:
            return _unknown_service(name)
        state = "runs" if progress.is_running else f"has ended: {_exit_text(progress.result)}"
        return ToolResult.text(f"[{name} {state}]\n{_output_text(progress.result)}")

    return filtered(service_output, _refusal)


def _stop_tool(services: BackgroundServices) -> Tool:
    @tool(in_doubt="retry")
    async def service_stop(name: str) -> ToolResult:
        """Stop a service, and all that it started.

        Args:
            name: The service.
        """
        try:
            result = await services.stop(name)
        except SandboxFailed as error:
            return ToolResult.text(str(error), ok=False, error="unavailable")
        if result is None:
            return _unknown_service(name)
        return ToolResult.text(f"[{name} is stopped]\n{_output_text(result)}")

    return filtered(service_stop, _refusal)


def _unknown_service(name: str) -> ToolResult:
    return ToolResult.text(f"There is no service {name}.", ok=False, error="failed")


def _exit_text(result: ExecResult) -> str:
    ending = result.stop_cause and f"stopped, {result.stop_cause}"
    return ending or f"exit status {result.status}"


def _output_text(result: ExecResult) -> str:
    output = captured_text(result.stdout) + captured_text(result.stderr)
    return output.strip("\n") or "(no output)"


def _refusal(args: Mapping[str, object]) -> str | None:
    if not _NAME.fullmatch(str(args["name"])):
        return "The input is not valid:\n- name: must be 1 to 40 lower-case letters, digits, - or _"
    command = str(args.get("command", "true"))
    if not command.strip() or "\0" in command or len(command.encode()) > MAX_COMMAND_BYTES:
        return f"The input is not valid:\n- command: must be 1 to {MAX_COMMAND_BYTES} bytes, no NUL"
    return None
