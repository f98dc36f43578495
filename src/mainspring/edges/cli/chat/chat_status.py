"""The status line of chat: model, mode, context, cost and cache; or the output of the `statusLine`
command."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from mainspring import __version__
from mainspring.core import events
from mainspring.core.envelope import event_types
from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.render.printing import dollars
from mainspring.harness.context.xray import cached_share
from mainspring.harness.limits import prompt_tokens
from mainspring.runtime.agent import Agent
from mainspring.runtime.session.session import Session
from mainspring.runtime.session.session_summary import summarize_session
from mainspring.runtime.settings.settings_commands import SettingsCommands
from mainspring.runtime.slash_commands import mode_of

_REQUEST_ENDS = event_types(events.ModelRequestEnded)


@dataclass(slots=True)
class StatusLine:
    folder: Path
    commands: SettingsCommands | None
    """`None`: there is no command, or it failed."""
    text: str = field(default="", init=False)
    context: float | None = field(default=None, init=False)
    """The share of the context window that the last turn used."""

    async def update(
        self, agent: Agent, session: Session | None, *, window: int | None, mode: str | None
    ) -> str | None:
        """Update the text. Returns a warning if the command failed; it is not run again."""
        cost, cached, context, mode_name = Decimal(0), None, None, mode or "default"
        if session is not None:
            row = await session.log.session(session.id)
            summary = await summarize_session(session.log, row)
            cost, cached = summary.cost_usd, cached_share(summary.usage)
            context = await _context_share(session, row.thread_id, window)
            mode_name = await mode_of(session.log, session.id)
        self.context = context
        model = agent.model.partition(":")[2] or agent.model
        parts = [
            model,
            f"mode {mode_name}",
            "" if context is None else f"context {context:.0%}",
            dollars(cost) if session is not None else "",
            "" if not cached else f"{cached:.0%} cached",
        ]
        self.text = " · ".join(filter(None, parts))
        if self.commands is None:
            return None
        fields: dict[str, object] = {
            "session_id": "" if session is None else session.id,
            "cwd": str(self.folder),
            "model": {"id": agent.model, "display_name": model},
            "workspace": {"current_dir": str(self.folder), "project_dir": str(self.folder)},
            "version": __version__,
            "permission_mode": mode_name,
            "cost": {"total_cost_usd": float(cost)},
            "context_window": {"used_percentage": None if context is None else context * 100},
        }
        try:
            self.text = "  ".join(await self.commands.show_status(fields)) or self.text
        except InvalidInput as error:
            self.commands = None
            return f"warning: {error}; it is not run again in this chat"
        return None


async def _context_share(session: Session, thread_id: str, window: int | None) -> float | None:
    """The share of the model's context window that the last turn used."""
    for event in reversed(await session.log.read(session.id, types=_REQUEST_ENDS)):
        payload = event.payload
        if (
            isinstance(payload, events.ModelRequestEnded)
            and payload.purpose is None
            and not payload.is_error  # a request that failed says nothing about the context
            and event.thread_id == thread_id
        ):
            return prompt_tokens(payload.model_usage) / window if window else None
    return None
