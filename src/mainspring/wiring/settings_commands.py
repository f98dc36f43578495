"""Commands besides hooks that settings files name, for this user.

They run like hooks: outside the sandbox, only from files that are trusted, from copies of the
trusted bytes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from anyio import to_thread

from mainspring.config import Settings
from mainspring.core.lazy_module import LazyModule
from mainspring.runtime.settings.settings_commands import SettingsCommands
from mainspring.wiring.providers import ANTHROPIC_KEY_VARIABLE
from mainspring.wiring.settings_files import load_policy

if TYPE_CHECKING:
    from mainspring.capabilities.hooks import command, scripts
else:
    command = LazyModule("mainspring.capabilities.hooks.command")
    scripts = LazyModule("mainspring.capabilities.hooks.scripts")


async def read_settings_commands(settings: Settings, folder: Path) -> SettingsCommands:
    """Raises: InvalidInput: a settings file cannot be understood."""
    home = Path(settings.home)
    loaded = await to_thread.run_sync(lambda: load_policy(folder, home=home))
    preferences, workspace = loaded.preferences, loaded.policy.workspace

    async def run_command(name: str, text: str, payload: bytes, *, seconds: float) -> str:
        env = preferences.hook_env
        environment = command.HookEnvironment(
            project=Path(workspace),
            environment={**settings.environment, **env},
            also_passed=frozenset(env),
            scripts=scripts.Scripts(roots=(workspace,), files=dict(loaded.scripts)),
        )
        return await command.run_settings_command(name, text, payload, environment, seconds=seconds)

    return SettingsCommands(
        status_line=preferences.status_line,
        api_key_helper=preferences.api_key_helper,
        run_command=run_command,
    )


async def with_key_helper(settings: Settings, folder: Path) -> Settings:
    """Settings that read the key of Anthropic from `apiKeyHelper`, if there is one and the
    environment has no key.

    Raises: InvalidInput.
    """
    if ANTHROPIC_KEY_VARIABLE in settings.keys:
        return settings
    commands = await read_settings_commands(settings, folder)
    if commands.api_key_helper is None:
        return settings
    return replace(settings, read_api_key=commands.api_key)
