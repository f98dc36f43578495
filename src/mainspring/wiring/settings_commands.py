"""Commands besides hooks that settings files name: the status line and the API key helper.

They run like hooks: outside the sandbox, only from files that are trusted, from copies of the
trusted bytes.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import msgspec
from anyio import to_thread

from mainspring.config import Settings
from mainspring.core.errors import InvalidInput, ProviderFailed
from mainspring.core.lazy_module import LazyModule
from mainspring.core.model import Delta, Model, Reply, Request
from mainspring.runtime.definition_files.settings_file import StatusLine
from mainspring.runtime.settings.policy_loader import LoadedPolicy
from mainspring.wiring.settings_files import load_policy

if TYPE_CHECKING:
    from mainspring.capabilities.hooks import command, config, scripts, verdict
else:
    command = LazyModule("mainspring.capabilities.hooks.command")
    config = LazyModule("mainspring.capabilities.hooks.config")
    scripts = LazyModule("mainspring.capabilities.hooks.scripts")
    verdict = LazyModule("mainspring.capabilities.hooks.verdict")

ANTHROPIC_KEY_VARIABLE = "ANTHROPIC_API_KEY"
_KEY_SECONDS = 30.0
_STATUS_SECONDS = 5.0
_KEY_LIFETIME_SECONDS = 300.0
"""How long a key is used before the helper is asked again, as in Claude Code."""
_MAX_LINES = 3
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsCommands:
    settings: Settings
    loaded: LoadedPolicy

    @property
    def status_line(self) -> StatusLine | None:
        return self.loaded.preferences.status_line

    async def show_status(self, about: dict[str, object]) -> list[str]:
        """The lines that the status line command prints.

        Raises: InvalidInput: it failed; it says why.
        """
        if self.status_line is None:
            return []
        payload = msgspec.json.encode({"hook_event_name": "Status", **about})
        printed = await self._run(
            "statusLine", self.status_line.command, payload, seconds=_STATUS_SECONDS
        )
        lines = _COLOURS.sub("", printed).rstrip().splitlines()[:_MAX_LINES]
        return [f"{' ' * max(0, self.status_line.padding)}{line}" for line in lines]

    async def api_key(self) -> str:
        """Raises: InvalidInput: the helper failed, or printed nothing."""
        helper = self.loaded.preferences.api_key_helper or ""
        printed = await self._run("apiKeyHelper", helper, b"", seconds=_KEY_SECONDS)
        if not (key := printed.strip()) or "\n" in key:
            raise InvalidInput("apiKeyHelper: it must print the key and nothing else")
        return key

    async def _run(self, name: str, text: str, payload: bytes, *, seconds: float) -> str:
        env = self.loaded.preferences.hook_env
        around = command.HookEnvironment(
            project=Path(self.loaded.policy.workspace),
            environment={**self.settings.environment, **env},
            also_passed=frozenset(env),
            scripts=scripts.Scripts(
                roots=(self.loaded.policy.workspace,), files=dict(self.loaded.scripts)
            ),
        )
        ended = verdict.HookFailure(f"did not end within {seconds:g} s")
        with anyio.move_on_after(seconds):
            variables = around.variables("Notification")
            del variables["MAINSPRING_HOOK_EVENT"]
            handler = config.CommandHook(command=text)
            ended = await command.run_program(handler, payload, around, variables)
        if isinstance(ended, verdict.HookFailure):
            raise InvalidInput(f"{name}: the command {ended.reason}")
        if ended.status != 0:
            raise InvalidInput(f"{name}: the command exited with {ended.status}")
        return ended.stdout.decode(errors="replace")


async def read_settings_commands(settings: Settings, folder: Path) -> SettingsCommands:
    """Raises: InvalidInput: a settings file cannot be understood."""
    home = Path(settings.home)
    loaded = await to_thread.run_sync(lambda: load_policy(folder, home=home))
    return SettingsCommands(settings=settings, loaded=loaded)


async def with_key_helper(settings: Settings, folder: Path) -> Settings:
    """Settings that know where the key of Anthropic comes from, if `apiKeyHelper` says it and the
    environment does not.

    Raises: InvalidInput.
    """
    if ANTHROPIC_KEY_VARIABLE in settings.keys:
        return settings
    commands = await read_settings_commands(settings, folder)
    if commands.loaded.preferences.api_key_helper is None:
        return settings
    return replace(settings, read_api_key=commands.api_key)


class HelperKeyModel:
    """A model whose key comes from `apiKeyHelper`, which is asked again every five minutes."""

    def __init__(
        self, settings: Settings, make: Callable[[str], Model], monotonic: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._make = make
        self._monotonic = monotonic
        self._model: Model | None = None
        self._made_at = 0.0

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        model = await self._fresh()
        async with aclosing(model.stream(request)) as deltas:
            async for delta in deltas:
                yield delta

    async def _fresh(self) -> Model:
        now = self._monotonic()
        if self._model is None or now - self._made_at > _KEY_LIFETIME_SECONDS:
            assert self._settings.read_api_key is not None
            try:
                self._model = self._make(await self._settings.read_api_key())
            except InvalidInput as error:
                raise ProviderFailed("anthropic", "unauthorized", str(error)) from error
            self._made_at = now
        return self._model
