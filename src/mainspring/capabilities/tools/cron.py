"""The cron tools: prompts that start a session of the same agent at set times."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Annotated

from msgspec import Meta

from mainspring.core.errors import InvalidInput
from mainspring.core.ports import ScheduledPrompt, Schedules
from mainspring.core.tool import Call, Tool, ToolResult
from mainspring.function_tools.define import tool

Expression = Annotated[str, Meta(min_length=9, max_length=256)]
Prompt = Annotated[str, Meta(min_length=1, max_length=8_000, pattern=r"\S")]
Cents = Annotated[int, Meta(ge=1, le=100_000)]


def cron_tools(open_schedules: Callable[[], Schedules]) -> list[Tool]:
    """The cron tools. `open_schedules` is called on first use: most sessions schedule nothing."""

    @tool(in_doubt="retry")
    async def cron_create(
        call: Call,
        cron: Expression,
        prompt: Prompt,
        timezone: str = "UTC",
        budget_cents: Cents = 100,
    ) -> ToolResult:
        """Schedule a prompt: at each of these times, a new session of this agent starts with it.
        They start while `mainspring serve` runs.

        Args:
            cron: Five fields: minute, hour, day of the month, month, day of the week.
            prompt: The task of the session. It does not see this conversation.
            timezone: Such as Europe/Berlin.
            budget_cents: What each session may spend, in US cents.
        """
        scheduled = ScheduledPrompt(
            id="",
            cron=cron,
            timezone=timezone,
            prompt=prompt,
            budget_usd=Decimal(budget_cents) / 100,
        )
        try:
            created = await open_schedules().create(scheduled, key=call.idempotency_key)
        except InvalidInput as error:
            return ToolResult.text(f"Not scheduled: {error}", ok=False)
        return ToolResult.text(f"Scheduled. {_line(created)}")

    @tool(read_only=True, in_doubt="retry")
    async def cron_list() -> ToolResult:
        """List the scheduled prompts of this folder."""
        lines = [f"{_line(item)}\n  {item.prompt}" for item in await open_schedules().list()]
        return ToolResult.text("\n".join(lines) or "Nothing is scheduled.")

    @tool(in_doubt="retry")
    async def cron_delete(schedule_id: str) -> ToolResult:
        """Delete a scheduled prompt. Sessions that it has already started continue.

        Args:
            schedule_id: The id that cron_list shows.
        """
        try:
            await open_schedules().delete(schedule_id)
        except InvalidInput as error:
            return ToolResult.text(str(error), ok=False)
        return ToolResult.text(f"Deleted {schedule_id}.")

    return [cron_create, cron_delete, cron_list]


def _line(item: ScheduledPrompt) -> str:
    when = "never" if item.next_at is None else f"{item.next_at:%Y-%m-%d %H:%M} UTC"
    limit = f"{item.budget_usd:.2f} US dollars a session"
    return f"{item.id}: {item.cron} {item.timezone}, next {when}, {limit}"
