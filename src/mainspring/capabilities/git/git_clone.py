"""Clones repositories from URLs that clients name: from allowed addresses, within limits.

Git itself runs outside of any sandbox, so it does as little as possible: no redirects, which would
forward the token; no protocols but HTTP; no configuration files.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from subprocess import DEVNULL, PIPE
from urllib.parse import urlsplit

import anyio
from anyio import to_thread
from anyio.abc import ByteReceiveStream

from mainspring.core.errors import InvalidInput, NetworkRefused
from mainspring.log.task_groups import run_in_background
from mainspring.processes import start_process

_SECONDS = 600.0  # for a whole clone; then it fails with an error
# Between looks at the size; a clone grows past its limit by a second at most.
_SIZE_CHECK_SECONDS = 1.0
_MAX_ERROR_BYTES = 500  # of git's message, whose end says what failed
_PORTS = {"https": 443, "http": 80}
_SAFE_SETTINGS = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GitCloner:
    resolve: Callable[[str], Awaitable[Sequence[str]]]
    """The addresses of a host that may be connected to. Raises: NetworkRefused."""
    allow_http: bool = False
    max_bytes: int = 4 << 30

    async def clone(
        self,
        url: str,
        to: Path,
        *,
        token: str | None,
        branch: str | None = None,
        commit: str | None = None,
    ) -> None:
        """Clone into a folder that does not exist yet.

        Raises: InvalidInput: why it failed, without the token.
        """
        config = {"http.followRedirects": "false", **_authorization_settings(token)}
        config |= await self._pinned(url)
        git = partial(self._git, environment=self._environment(config), token=token)
        options = [] if branch is None else ["--branch", branch]
        async with run_in_background(partial(self._watch, to.parent)):
            await git("clone", "--quiet", *options, "--", url, str(to))
            if commit is not None:
                await git("-C", str(to), "checkout", "--quiet", "--detach", commit)
        await to_thread.run_sync(self._require_small, to)

    async def _pinned(self, url: str) -> dict[str, str]:
        """Make git connect to the addresses that were checked, whatever the name resolves to
        later."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        except (ValueError, KeyError):
            raise InvalidInput("its address is not on the web") from None
        try:
            addresses = await self.resolve(host)
        except NetworkRefused as error:
            raise InvalidInput(str(error)) from error
        with suppress(ValueError):
            ip_address(host)
            return {}
        return {"http.curloptResolve": f"{host}:{port}:{','.join(addresses)}"}

    def _environment(self, config: Mapping[str, str]) -> dict[str, str]:
        """Settings are passed in the environment: every user of the machine can read arguments."""
        settings = {"GIT_CONFIG_COUNT": str(len(config))}
        for index, (name, value) in enumerate(config.items()):
            settings |= {f"GIT_CONFIG_KEY_{index}": name, f"GIT_CONFIG_VALUE_{index}": value}
        protocols = "https:http" if self.allow_http else "https"
        return {"PATH": os.defpath, **_SAFE_SETTINGS, "GIT_ALLOW_PROTOCOL": protocols, **settings}

    async def _git(
        self, *arguments: str, environment: Mapping[str, str], token: str | None
    ) -> None:
        program = shutil.which("git")
        if program is None:
            raise InvalidInput("git is not installed on the worker")
        with anyio.move_on_after(_SECONDS) as scope:
            code, output = await _run_git([program, *arguments], environment)
            if code != 0:
                raise InvalidInput(f"git says: {_redact_token(token, output)}")
        if scope.cancelled_caught:
            raise InvalidInput(f"git took more than {_SECONDS:.0f} s")

    async def _watch(self, folder: Path) -> None:
        while True:
            await anyio.sleep(_SIZE_CHECK_SECONDS)
            await to_thread.run_sync(self._require_small, folder)

    def _require_small(self, folder: Path) -> None:
        size = 0
        for place, _, names in os.walk(folder):
            for name in names:
                with suppress(FileNotFoundError):  # git removed a temporary file
                    size += os.lstat(os.path.join(place, name)).st_size
            if size > self.max_bytes:
                raise InvalidInput(f"it has more than {self.max_bytes:,} bytes")


async def _run_git(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """The exit code of git and the end of its error output. On cancellation, all its processes are
    killed."""
    async with start_process(command, env=environment, stdout=DEVNULL, stderr=PIPE) as process:
        assert process.stderr is not None
        output = await _read_tail(process.stderr)
        return await process.wait(), output.decode(errors="replace").strip()


async def _read_tail(stream: ByteReceiveStream) -> bytes:
    """The end of the stream: git forwards whatever a server sends, so it is bounded."""
    tail = b""
    async for piece in stream:
        tail = (tail + piece)[-_MAX_ERROR_BYTES:]
    return tail


def _authorization_settings(token: str | None) -> dict[str, str]:
    if token is None:
        return {}
    login = base64.b64encode(f"x-access-token:{token}".encode()).decode()
    return {"http.extraHeader": f"Authorization: Basic {login}"}


def _redact_token(token: str | None, text: str) -> str:
    return text if token is None else re.sub(re.escape(token), "***", text)
