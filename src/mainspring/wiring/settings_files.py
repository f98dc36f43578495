"""Settings files and project trust, with the reader of hook scripts that they need; also other
commands that settings files name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from anyio import to_thread

from mainspring.capabilities.providers.provider_table import ANTHROPIC_KEY_VARIABLE
from mainspring.config import Settings
from mainspring.core.lazy_module import LazyModule
from mainspring.runtime.agent_folder.mcp_edits import WritableScope
from mainspring.runtime.agent_folder.mcp_inputs import stored_inputs
from mainspring.runtime.definition_files.scopes import MANAGED, Scopes
from mainspring.runtime.mcp_server import McpServer
from mainspring.runtime.settings import policy_loader, project_trust
from mainspring.runtime.settings.policy_loader import LoadedPolicy
from mainspring.runtime.settings.session_servers import (
    subagent_servers,
    trusted_servers,
    usable_servers,
)
from mainspring.runtime.settings.settings_commands import SettingsCommands
from mainspring.wiring.user_vault import user_vault

if TYPE_CHECKING:
    from mainspring.capabilities.hooks import command, scripts
else:
    command = LazyModule("mainspring.capabilities.hooks.command")
    scripts = LazyModule("mainspring.capabilities.hooks.scripts")  # most projects have none


def read_scripts(commands: Iterable[str], folder: Path) -> dict[str, bytes]:
    return scripts.read_scripts(commands, folder, project=folder)


load_policy = partial(policy_loader.load_policy, read_scripts=read_scripts)
add_local_rules = partial(policy_loader.add_local_rules, read_scripts=read_scripts)
read_project_files = partial(project_trust.read_project_files, read_scripts=read_scripts)
trust = partial(project_trust.trust_current_files, read_scripts=read_scripts)


def with_inputs(settings: Settings, folder: Path) -> Mapping[str, str]:
    """The environment variables, and the values of inputs.

    Raises: InvalidInput: the vault cannot be opened.
    """
    return {**settings.environment, **stored_inputs(user_vault(settings), folder)}


def user_servers(
    settings: Settings, folder: Path, loaded: LoadedPolicy
) -> tuple[tuple[McpServer, ...], dict[str, tuple[McpServer, ...]]]:
    """The MCP servers that a session in a folder may use, and those that only one type of subagent
    has.

    Raises: InvalidInput.
    """
    scopes = Scopes(folder=folder, home=Path(settings.home), managed=MANAGED)
    servers = trusted_servers(scopes, loaded)
    if servers:
        servers = usable_servers(servers, scopes, with_inputs(settings, folder), loaded)
    return servers, subagent_servers(scopes, settings.environment, loaded)


def edit_servers(settings: Settings, scope: WritableScope, edit: Callable[[Path], bytes]) -> Path:
    """Change a file that defines MCP servers.

    Raises: InvalidInput.
    """
    folder, home = Path(settings.folder), Path(settings.home)
    return project_trust.edit_servers(folder, scope, edit, home=home, read_scripts=read_scripts)


async def read_folder_policy(settings: Settings, folder: Path) -> LoadedPolicy:
    """Raises: InvalidInput: a settings file is not valid."""
    home = Path(settings.home)
    return await to_thread.run_sync(lambda: load_policy(folder, home=home))


def settings_commands(settings: Settings, loaded: LoadedPolicy) -> SettingsCommands:
    """The commands run outside the sandbox, like hooks: only those of trusted files, from copies of
    the trusted bytes."""
    preferences, workspace = loaded.preferences, loaded.policy.workspace

    async def run_command(
        name: str,
        text: str,
        payload: bytes,
        *,
        seconds: float,
        variables: Mapping[str, str] | None = None,
    ) -> str:
        env = {**preferences.hook_env, **(variables or {})}
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


def with_key_helper(settings: Settings, loaded: LoadedPolicy) -> Settings:
    """The settings, with `apiKeyHelper` as the source of Anthropic's key if the settings files
    name a helper and the environment has no key."""
    if ANTHROPIC_KEY_VARIABLE in settings.keys or loaded.preferences.api_key_helper is None:
        return settings
    return replace(settings, read_api_key=settings_commands(settings, loaded).api_key)
