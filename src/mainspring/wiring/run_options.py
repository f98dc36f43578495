"""Options of one run that the caller chooses: workspace, mode, sandbox settings, credentials,
extra rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from mainspring.harness.permissions.policy import Mode, PolicyRule
from mainspring.runtime.session.toolbox import SetupRequest

if TYPE_CHECKING:
    from mainspring.capabilities.network.placeholders import Credential
    from mainspring.service.resources.agent_web_tools import UrlSources


@dataclass(frozen=True, slots=True, kw_only=True)
class WebFetchLimits:
    """What the agents of a session say of their `web_fetch`."""

    max_chars: int | None = None
    """Of a page's text, whatever the model asks for."""
    sources: tuple[UrlSources, ...] = ()
    """Where URLs may come from: all of these must allow one; none: every URL is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    workspace: Path | None = None
    """Where to work; a session that has begun goes on where it was, a new one works here."""
    agent: Path | None = None
    """The agent's own folder, if that is another: what it says about itself holds there too."""
    mode: Mode | None = None
    allow_protected: tuple[str, ...] = ()
    """Protected paths, from the workspace on, that file tools may change all the same."""
    is_attended: bool = False
    """Somebody is there to be asked."""
    is_headless: bool = False
    """Nobody will ever be: what only a person may allow is denied rather than waited for."""
    is_unsandboxed: bool = False
    """The operator has said, for this run, that programs may run without isolation."""
    is_served: bool = False
    """It is a client's of the service: of all settings files only the operator's hold."""
    rules: tuple[PolicyRule, ...] = ()
    """They hold beside those of the files."""
    sandbox: Mapping[str, object] = field(default_factory=dict[str, object])
    """Settings of the sandbox; the files have the last word."""
    credentials: tuple[Credential, ...] | None = None
    """What programs may use without seeing it; `None`: what this user's vault has."""
    web_fetch: WebFetchLimits = WebFetchLimits()
    notes: tuple[str, ...] = ()
    """More for the model to know about where it works."""
    warn: Callable[[str], None] = lambda _: None


RunOptionsFor: TypeAlias = Callable[[SetupRequest], RunOptions]


def same_options(options: RunOptions) -> RunOptionsFor:
    """The same for every session. Its mode is what each begins with here: after that, a session is
    in the mode that people put it in."""
    begun: set[str] = set()

    def options_for_session(setup: SetupRequest) -> RunOptions:
        is_known = setup.writer.session_id in begun
        begun.add(setup.writer.session_id)
        return replace(options, mode=None) if is_known else options

    return options_for_session
