"""The full screen of `mainspring top`."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
from prompt_toolkit.application import Application
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import FormattedTextControl, Layout, Window

from mainspring.edges.cli.render.printing import StyledText, sanitize_line
from mainspring.edges.cli.sessions.top import HEADS, ActiveSessions, TopAction, session_cells
from mainspring.runtime.session.session_summary import SessionSummary

_SECONDS = 1.0  # between two pictures
_KEYS = "↑ ↓ choose   Enter attach, or answer   s stop   q leave"
_STYLES = {"bold yellow": "bold ansiyellow", "green": "ansigreen", "bold": "bold"}


async def show(sessions: ActiveSessions, selected: str | None) -> tuple[TopAction, str | None]:
    """Show the sessions until the user chooses what to do with one."""
    view = _TopView(sessions, selected)
    await view.refresh()
    choice: tuple[TopAction, str | None] = ("quit", None)
    async with anyio.create_task_group() as group:
        group.start_soon(view.refresh_forever)
        choice = await view.application.run_async()
        group.cancel_scope.cancel()
    return choice


class _TopView:
    def __init__(self, sessions: ActiveSessions, selected: str | None) -> None:
        self._sessions = sessions
        self._summaries: list[SessionSummary] = []
        self._selected = selected
        window = Window(FormattedTextControl(self._text), wrap_lines=False)
        self.application: Application[tuple[TopAction, str | None]] = Application(
            layout=Layout(window), key_bindings=self._key_bindings(), full_screen=True
        )

    async def refresh(self) -> None:
        self._summaries = await self._sessions.read()
        ids = [summary.id for summary in self._summaries]
        if self._selected not in ids:
            self._selected = ids[0] if ids else None

    async def refresh_forever(self) -> None:
        while True:
            await anyio.sleep(_SECONDS)
            await self.refresh()
            self.application.invalidate()

    def _move(self, by: int) -> None:
        ids = [summary.id for summary in self._summaries]
        if self._selected in ids:
            index = min(max(ids.index(self._selected) + by, 0), len(ids) - 1)
            self._selected = ids[index]

    def _text(self) -> StyleAndTextTuples:
        rows: list[Sequence[StyledText]] = [[(head, "") for head in HEADS]]
        rows += [session_cells(summary) for summary in self._summaries]
        widths = [
            max(len(sanitize_line(cell[0])) for cell in column)
            for column in zip(*rows, strict=True)
        ]
        text: StyleAndTextTuples = [("bold", " mainspring top"), ("", f"   {_KEYS}\n\n")]
        for index, row in enumerate(rows):
            is_selected = index > 0 and self._summaries[index - 1].id == self._selected
            text.append(("", "> " if is_selected else "  "))
            for (cell, style), width in zip(row, widths, strict=True):
                base_style = _STYLES.get(style, "")
                cell_style = f"reverse {base_style}" if is_selected else base_style
                text.append((cell_style, f"{sanitize_line(cell):<{width}}"))
                text.append(("", "  "))
            text.append(("", "\n"))
        if not self._summaries:
            text.append(("", "\n  no session is running or waiting"))
        return text

    def _key_bindings(self) -> KeyBindings:
        bindings = KeyBindings()

        @bindings.add("up")
        @bindings.add("k")
        def up(_event: KeyPressEvent) -> None:
            self._move(-1)

        @bindings.add("down")
        @bindings.add("j")
        def down(_event: KeyPressEvent) -> None:
            self._move(1)

        @bindings.add("enter")
        @bindings.add("a")
        def attach(event: KeyPressEvent) -> None:
            self._leave(event, "attach")

        @bindings.add("s")
        def stop(event: KeyPressEvent) -> None:
            self._leave(event, "stop")

        @bindings.add("q")
        @bindings.add("c-c")
        @bindings.add("c-d")
        def leave(event: KeyPressEvent) -> None:
            self._leave(event, "quit")

        return bindings

    def _leave(self, event: KeyPressEvent, action: TopAction) -> None:
        event.app.exit(result=(action, self._selected))
