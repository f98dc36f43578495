"""Questions in the input loop: a line for the answer, or a list to choose from, which what is typed
filters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import anyio
from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition, has_focus
from prompt_toolkit.formatted_text import AnyFormattedText, StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    FormattedTextControl,
    HSplit,
    Window,
)

from mainspring.edges.cli.render.printing import sanitize_line

_MAX_CHOICE_ROWS = 12  # half of a small terminal
_OTHER_ROWS = 4
"""Rows that the list leaves to the rest of a low window."""


@dataclass(slots=True)
class _Question:
    prompt: str
    rows: Sequence[str] | None = None
    """The choices; `None`: any text is an answer."""
    answer: str | None = None
    selected: int = 0
    answered: anyio.Event = field(default_factory=anyio.Event)

    def matches(self, typed: str) -> list[int]:
        """The choices that contain every typed word."""
        words = typed.lower().split()
        rows = self.rows or ()
        return [i for i, row in enumerate(rows) if all(word in row.lower() for word in words)]


class TerminalQuestions:
    """One question at a time takes the keys until it is answered or left."""

    def __init__(
        self, application: Callable[[], Application[None]], focus_line: Callable[[], None]
    ) -> None:
        """`focus_line`: gives the keys back to the message that is being typed."""
        self._application = application
        self._focus_line = focus_line
        self._question: _Question | None = None
        self._buffer = Buffer(multiline=False, accept_handler=self._accept)
        self._control = BufferControl(self._buffer)
        self.is_asking = Condition(lambda: self._question is not None)
        line = Window(self._control, dont_extend_height=True, wrap_lines=True,
                      get_line_prefix=self._prefix)  # fmt: skip
        rows = Window(FormattedTextControl(self._rows), dont_extend_height=True)
        has_rows = Condition(lambda: self._question is not None and self._question.rows is not None)
        self.container = ConditionalContainer(
            HSplit([line, ConditionalContainer(rows, has_rows)]), self.is_asking
        )

    async def ask(self, prompt: str) -> str | None:
        """The answer; `None` if the user leaves the question."""
        return await self._ask(_Question(prompt))

    async def choose(self, prompt: str, rows: Sequence[str]) -> int | None:
        """The index of the row that the user chooses; `None` if the user leaves."""
        answer = await self._ask(_Question(prompt, rows))
        return None if answer is None else int(answer)

    async def _ask(self, question: _Question) -> str | None:
        app = self._application()
        self._question = question
        self._buffer.reset()
        app.layout.focus(self._control)
        app.invalidate()
        try:
            await question.answered.wait()
        finally:
            self._question = None
            self._focus_line()
        return question.answer

    def leave(self) -> None:
        if self._question is not None:
            self._question.answered.set()

    def _accept(self, buffer: Buffer) -> bool:
        question = self._question
        if question is None:
            return False
        if question.rows is None:
            question.answer = buffer.text
        elif matches := question.matches(buffer.text):
            question.answer = str(matches[min(question.selected, len(matches) - 1)])
        else:
            return True
        question.answered.set()
        return False

    def _prefix(self, line: int, wrap: int) -> AnyFormattedText:
        prompt = "" if self._question is None else self._question.prompt
        return [("class:question", "  " if line or wrap else prompt)]

    def _rows(self) -> StyleAndTextTuples:
        question = self._question
        if question is None or question.rows is None:
            return []
        matches = question.matches(self._buffer.text)
        question.selected = min(question.selected, max(len(matches) - 1, 0))
        size = self._application().output.get_size()
        room = max(min(_MAX_CHOICE_ROWS, size.rows - _OTHER_ROWS), 1)
        first = max(question.selected - room + 1, 0)
        text: StyleAndTextTuples = []
        for index, match in list(enumerate(matches))[first : first + room]:
            is_selected = index == question.selected
            row = f"{'❯' if is_selected else ' '} {sanitize_line(question.rows[match])}"
            text.append(("class:selected" if is_selected else "", row[: size.columns - 1]))
            text.append(("", "\n"))
        keys = f"{len(matches)} of {len(question.rows)} · ↑ ↓ Enter · Esc leaves · type to filter"
        return [*text, ("class:status", keys[: size.columns - 1])]

    def _move(self, by: int) -> None:
        if self._question is not None:
            self._question.selected = max(self._question.selected + by, 0)

    def bind(self, bindings: KeyBindings) -> None:
        on_answer = has_focus(self._buffer)

        @bindings.add("enter", filter=on_answer)
        def answer(event: KeyPressEvent) -> None:
            event.current_buffer.validate_and_handle()

        @bindings.add("c-d", filter=on_answer & Condition(lambda: not self._buffer.text))
        def leave(_event: KeyPressEvent) -> None:
            self.leave()

        @bindings.add("up", filter=on_answer)
        @bindings.add("c-p", filter=on_answer)
        def up(_event: KeyPressEvent) -> None:
            self._move(-1)

        @bindings.add("down", filter=on_answer)
        @bindings.add("c-n", filter=on_answer)
        def down(_event: KeyPressEvent) -> None:
            self._move(1)
