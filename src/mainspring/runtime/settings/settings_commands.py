"""Commands in settings files other than hooks: the status line, the API key helper and header
helpers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Protocol

import msgspec
from msgspec import Struct

from mainspring.core.errors import InvalidInput
from mainspring.runtime.definition_files.settings_file import StatusLineSetting
from mainspring.runtime.mcp_server import McpServer

_KEY_SECONDS = 30.0  # for `apiKeyHelper`, which may ask a vault
_HEADERS_SECONDS = 10.0  # for `otelHeadersHelper`
_STATUS_SECONDS = 5.0  # for `statusLine`, which a person waits for
_MAX_LINES = 3  # of its output
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class CommandRunner(Protocol):
    async def __call__(
        self,
        name: str,
        text: str,
        payload: bytes,
        *,
        seconds: float,
        variables: Mapping[str, str] | None = None,
    ) -> str:
        """Run the command `text` of the setting `name` and return its output.

        Raises: InvalidInput.
        """
        ...


class SettingsCommands(Struct, frozen=True, kw_only=True):
    status_line: StatusLineSetting | None
    api_key_helper: str | None
    run_command: CommandRunner

    async def show_status(self, about: dict[str, object]) -> list[str]:
        """The lines that the status line command prints.

        Raises: InvalidInput.
        """
        if self.status_line is None:
            return []
        payload = msgspec.json.encode({"hook_event_name": "Status", **about})
        output = await self.run_command(
            "statusLine", self.status_line.command, payload, seconds=_STATUS_SECONDS
        )
        lines = _COLOURS.sub("", output).rstrip().splitlines()[:_MAX_LINES]
        return [f"{' ' * max(0, self.status_line.padding)}{line}" for line in lines]

    async def api_key(self) -> str:
        """Raises: InvalidInput: the helper failed, or printed nothing."""
        helper = self.api_key_helper or ""
        output = await self.run_command("apiKeyHelper", helper, b"", seconds=_KEY_SECONDS)
        if not (key := output.strip()) or "\n" in key:
            raise InvalidInput("apiKeyHelper: it must print the key and nothing else")
        return key

    async def server_headers(self, server: McpServer) -> str:
        """The headers that the helper of an MCP server prints.

        Raises: InvalidInput: it failed.
        """
        variables = {
            "CLAUDE_CODE_MCP_SERVER_NAME": server.name,
            "CLAUDE_CODE_MCP_SERVER_URL": server.url,
        }
        return await self.run_command(
            "headersHelper",
            server.headers_helper or "",
            b"",
            seconds=_HEADERS_SECONDS,
            variables=variables,
        )
