"""The service tools: programs that keep running while the session works, each by its name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from mainspring.capabilities.tools.define import tool
from mainspring.capabilities.tools.shell_script import MAX_COMMAND_BYTES
from mainspring.capabilities.tools.shell_text import read_captured
from mainspring.capabilities.tools.wrap import filtered
from mainspring.core.errors import SandboxFailed
from mainspring.core.hands import Captured
from mainspring.core.tool import Call, Outcome, Tool, Traits

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")


class Services(Protocol):
    """Programs of a session that outlive a call and end with the session's sandbox."""

    async def start_service(self, name: str, argv: tuple[str, ...]) -> None:
        """Start a program in the workspace under a name that no running one has.

        Raises:
            SandboxFailed: it was not started; it says why.
        """
        ...

    async def service_output(self, name: str) -> tuple[Captured, int | None]:
        """What it has written, both streams together, and its exit status: `None` while it runs.

        Raises:
            SandboxFailed: none was started under that name.
        """
        ...

    async def stop_service(self, name: str) -> None:
        """End it, and all that it started.

        Raises:
            SandboxFailed: none was started under that name.
        """
        ...


def service_tools(
    services: Services, *, judge: Callable[[str], tuple[bool, bool]]
) -> tuple[Tool, Tool, Tool]:
    """`service_start`, `service_output`, `service_stop`."""
    return _starts(services, judge), _shows(services), _stops(services)


def _starts(services: Services, judge: Callable[[str], tuple[bool, bool]]) -> Tool:
    @tool
    async def service_start(name: str, command: str) -> Outcome:
        """Start a program that keeps running while you go on: a development server, a watcher, a
        database. What it writes can be read with service_output.

        Args:
            name: What to call it: lower-case letters, digits, - and _.
            command: The bash command that runs it in the foreground, without &.
        """
        try:
            await services.start_service(name, ("bash", "--noprofile", "--norc", "-c", command))
        except SandboxFailed as error:
            return Outcome.text(f"Not started: {error}", ok=False, error="unavailable")
        return Outcome.text(f"{name} is started; look at service_output to see how it does.")

    async def probe(call: Call) -> Outcome | None:
        try:
            found = await services.service_output(str(call.input["name"]))
        except SandboxFailed:
            return None
        return Outcome.text(_told(str(call.input["name"]), *found))

    def traits(given: Mapping[str, object]) -> Traits:
        destructive = judge(str(given.get("command", "")))[1]
        return Traits(destructive=destructive, in_doubt="probe")

    async def preview(call: Call) -> str | None:
        return str(call.input.get("command", ""))

    made = replace(service_start, traits=traits, probe=probe, preview=preview)
    return filtered(made, _refusal)


def _shows(services: Services) -> Tool:
    @tool(read_only=True, concurrent=True)
    async def service_output(name: str) -> Outcome:
        """Show what a service has written, its beginning and its newest, and whether it runs.

        Args:
            name: The service.
        """
        try:
            output, status = await services.service_output(name)
        except SandboxFailed as error:
            return Outcome.text(str(error), ok=False, error="failed")
        return Outcome.text(_told(name, output, status))

    return filtered(service_output, _refusal)


def _stops(services: Services) -> Tool:
    @tool(in_doubt="retry")  # what is stopped already stays so
    async def service_stop(name: str) -> Outcome:
        """Stop a service, and all that it started.

        Args:
            name: The service.
        """
        try:
            await services.stop_service(name)
        except SandboxFailed as error:
            return Outcome.text(str(error), ok=False, error="failed")
        return Outcome.text(f"{name} is stopped.")

    return filtered(service_stop, _refusal)


def _refusal(given: Mapping[str, object]) -> str | None:
    if not _NAME.fullmatch(str(given["name"])):
        return "The input is not valid:\n- name: must be 1 to 40 lower-case letters, digits, - or _"
    command = str(given.get("command", "true"))
    if not command.strip() or "\0" in command or len(command.encode()) > MAX_COMMAND_BYTES:
        return f"The input is not valid:\n- command: must be 1 to {MAX_COMMAND_BYTES} bytes, no NUL"
    return None


def _told(name: str, output: Captured, status: int | None) -> str:
    state = f"{name} runs" if status is None else f"{name} has ended with status {status}"
    return f"[{state}]\n{read_captured(output).strip(chr(10)) or '(no output)'}"
