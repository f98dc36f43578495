"""The input loop of chat: one application that owns the terminal from the greeting to the end. It
edits messages, queues those that are typed while the agent works, asks questions, shows lists to
choose from, and prints what others write above its rows. Slow to import, so it is loaded only at a
terminal.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
from anyio import to_thread
from prompt_toolkit.application import Application
from prompt_toolkit.application.run_in_terminal import in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition, has_completions, has_focus, is_searching
from prompt_toolkit.formatted_text import ANSI, AnyFormattedText, StyleAndTextTuples
from prompt_toolkit.input import create_input
from prompt_toolkit.input.typeahead import get_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.vi_state import InputMode
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    FormattedTextControl,
    HSplit,
    Layout,
    VerticalAlign,
    Window,
)
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.processors import HighlightIncrementalSearchProcessor
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar

from mainspring.edges.cli.render.printing import sanitize_line
from mainspring.edges.cli.run.line_completion import (
    ChatCompleter,
    EditorSources,
    FileHistory,
    is_open_fence,
    mention_of_image,
    save_clipboard_image,
)
from mainspring.edges.cli.run.output_above import OutputAbove
from mainspring.edges.cli.run.pager import Pager
from mainspring.edges.cli.run.questions import TerminalQuestions

_STYLE = Style.from_dict(
    {
        "prompt": "bold ansigreen",
        "question": "bold ansiyellow",
        "status": "ansibrightblack",
        "selected": "reverse",
        "completion-menu": "bg:default",
        "completion-menu.completion.current": "reverse",
        "completion-menu.meta.completion": "bg:default ansibrightblack",
        "completion-menu.meta.completion.current": "bg:default ansibrightblack",
    }
)
_REDRAW_SECONDS = 0.04
"""The least time between two redraws: 25 a second look smooth, and a burst of output costs few."""
_ESCAPE_SECONDS = 0.05
"""An escape byte that nothing follows for so long is the key Esc. Sequences of a terminal arrive
in one piece, also through ssh."""
QUEUED = "queued"
_MAX_MENU_ROWS = 8  # of completions below the line
_MAX_QUEUE_ROWS = 5  # of messages that wait, above it
_FOLDED_LINES, _FOLDED_CHARS = 10, 2_000
"""A longer paste is shown as one line."""
_KEPT_ALT_KEYS = {"\r", "\n", "b", "f", "d", "\x7f"}
"""What Alt does in a line: a new line; a word back, on, deleted; a word deleted backwards."""
_VI_MODES = {EditingMode.EMACS: EditingMode.VI, EditingMode.VI: EditingMode.EMACS}


class InputLoop:
    """Reads messages while `run` runs. Keys that concern the session are passed to `actions`."""

    def __init__(
        self, sources: EditorSources | None, history: Path | None, *, colour: bool
    ) -> None:
        self._sources = sources
        self._queue: list[str] = []
        self._arrived = anyio.Event()
        self._is_reading = False
        self._is_ended = self._is_interrupted = False
        self._rows: tuple[str, ...] = ()
        self._pastes: dict[str, str] = {}
        self._escaped = False
        self._interrupts: Callable[[str], None] | None = None
        """Takes the keys that interrupt, while something runs."""
        self.actions: Mapping[str, Callable[[], None]] = {}
        """By the name of a key: `c-b`, `c-o`, `c-t`, `s-tab`. `QUEUED`: a message was typed while
        something else goes on."""
        search = SearchToolbar()
        self._buffer = Buffer(
            history=FileHistory(history),
            completer=None if sources is None else ChatCompleter(sources),
            complete_while_typing=sources is not None,
            enable_history_search=False,
            multiline=True,
            accept_handler=self._accept,
        )
        self._control = BufferControl(
            self._buffer,
            search_buffer_control=search.control,
            preview_search=True,
            input_processors=[HighlightIncrementalSearchProcessor()],
        )
        self.questions = TerminalQuestions(lambda: self._application, self._focus_line)
        has_line = Condition(lambda: self._sources is not None)
        rows = [
            _text_window(self._live_text),
            self.questions.container,
            ConditionalContainer(
                HSplit([_text_window(self._queue_text),
                        _input_window(self._control, self._line_prefix),
                        search,
                        ConditionalContainer(
                            CompletionsMenu(max_height=_MAX_MENU_ROWS), has_completions)]),
                ~self.questions.is_asking & has_line,
            ),
            ConditionalContainer(_text_window(self._status_text), has_line),
        ]  # fmt: skip
        stdout, stderr = sys.__stdout__, sys.__stderr__
        assert stdout is not None
        assert stderr is not None
        stream = stdout if stdout.isatty() else stderr
        self.above = OutputAbove(stream, self.redraw_soon)
        output = Vt100_Output.from_pty(stream)
        output.enable_cpr = False  # rows are drawn where the cursor is; nothing needs its place
        self._application: Application[None] = Application(
            layout=Layout(HSplit(rows, align=VerticalAlign.TOP), self._control),
            key_bindings=self._key_bindings(),
            style=_STYLE,
            color_depth=None if colour else ColorDepth.DEPTH_1_BIT,
            erase_when_done=True,
            min_redraw_interval=_REDRAW_SECONDS,
            input=create_input(),
            output=output,
            before_render=lambda app: self.above.print_pending(app.renderer.erase),
            after_render=lambda _: self.above.end_update(),
        )
        self._application.ttimeoutlen = _ESCAPE_SECONDS

    async def run(self) -> None:
        """Own the terminal until it is cancelled or the terminal is gone."""
        self.above.is_owned = True
        try:
            await self._application.run_async(handle_sigint=False, set_exception_handler=False)
        except EOFError:  # the terminal is gone
            self._end()
        finally:
            self.above.is_owned = False
            self.above.flush()

    async def message(self) -> str:
        """The next message: the first of the queue, or what is typed now. Long pastes are folded.

        Raises: EOFError, KeyboardInterrupt: the user pressed Ctrl-D or Ctrl-C.
        """
        self._is_reading = True
        self.redraw_soon()
        try:
            while not self._queue:
                if self._is_ended:
                    raise EOFError
                if self._is_interrupted:
                    self._is_interrupted = False
                    raise KeyboardInterrupt
                self._arrived = anyio.Event()
                await self._arrived.wait()
            return self._queue.pop(0)
        finally:
            self._is_reading = False

    def take_queued(self) -> list[str]:
        """The queued messages for the agent, up to the first command; they leave the queue."""
        count = 0
        while count < len(self._queue) and not self._queue[count].startswith(("/", "!", "#")):
            count += 1
        taken, self._queue = self._queue[:count], self._queue[count:]
        self.redraw_soon()
        return [self.unfolded(text) for text in taken]

    @property
    def has_queue(self) -> bool:
        return bool(self._queue)

    async def ask(self, prompt: str) -> str | None:
        """The answer; `None` if the user leaves the question."""
        return None if self._is_ended else await self.questions.ask(prompt)

    async def choose(self, prompt: str, rows: Sequence[str]) -> int | None:
        """The index of the row that the user chooses; `None` if the user leaves."""
        return None if self._is_ended else await self.questions.choose(prompt, rows)

    def _focus_line(self) -> None:
        if self._sources is not None:
            self._application.layout.focus(self._control)
        self.redraw_soon()

    def draw(self, rows: tuple[str, ...]) -> None:
        self._rows = rows
        self.redraw_soon()

    def erase(self) -> None:
        self.draw(())

    @contextmanager
    def printing(self) -> Generator[None]:
        self.erase()
        yield

    @asynccontextmanager
    async def suspended(self) -> AsyncGenerator[None, None]:
        """Gives the terminal to another program."""
        async with in_terminal():
            self.above.is_owned = False
            self.above.flush()
            try:
                yield
            finally:
                self.above.is_owned = self._application.is_running

    async def page(self, lines: Sequence[str]) -> None:
        """Let the user scroll through lines; what others print meanwhile is shown afterwards."""
        async with in_terminal():
            pager = Pager(lines, create_input(), self._application.output)
            await pager.application.run_async(handle_sigint=False)
        # keys that came in one piece with the one that left the pager
        keys = self._application.key_processor
        keys.feed_multiple(get_typeahead(self._application.input))
        keys.process_keys()

    def toggle_vi(self) -> bool:
        """Returns whether the keys are those of vi now."""
        self._application.editing_mode = _VI_MODES[self._application.editing_mode]
        return self._application.editing_mode == EditingMode.VI

    def set_line(self, text: str) -> None:
        self._buffer.text = text
        self._buffer.cursor_position = len(text)

    def redraw_soon(self) -> None:
        self._application.invalidate()

    def _end(self) -> None:
        self._is_ended = True
        self._arrived.set()
        self.questions.leave()

    def _accept(self, buffer: Buffer) -> bool:
        text = buffer.text
        if text.strip():
            self._queue.append(text)
            self._arrived.set()
            if not self._is_reading:
                self._act(QUEUED)
        return False

    def unfolded(self, text: str) -> str:
        """The message with the texts of its pastes."""
        for label, pasted in self._pastes.items():
            text = text.replace(label, pasted)
        return text

    def _fold(self, text: str) -> str:
        if text.count("\n") < _FOLDED_LINES and len(text) < _FOLDED_CHARS:
            return text
        size = f"{text.count(chr(10)) + 1} lines" if "\n" in text else f"{len(text)} characters"
        label = f"[Pasted text {len(self._pastes) + 1}, {size}]"
        self._pastes[label] = text
        return label

    def _live_text(self) -> AnyFormattedText:
        return ANSI("\n".join(self._rows)) if self._rows else ""

    def _queue_text(self) -> StyleAndTextTuples:
        if self._is_reading or not self._queue:
            return []
        columns = self._application.output.get_size().columns
        hidden = len(self._queue) - _MAX_QUEUE_ROWS
        rows = [f"  queued: {sanitize_line(text)}"[: columns - 1] for text in self._queue]
        more = [f"  … {hidden} more"] if hidden > 0 else []
        hint = "  ↑ takes the last one back"
        return [("class:status", "\n".join([*rows[:_MAX_QUEUE_ROWS], *more, hint]))]

    def _status_text(self) -> StyleAndTextTuples:
        text = "" if self._sources is None else sanitize_line(self._sources.status())
        return [("class:status", text)] if text else []

    def _line_prefix(self, line: int, wrap: int) -> AnyFormattedText:
        return [("class:prompt", "  " if wrap else "… " if line else "> ")]

    def _key_bindings(self) -> KeyBindings:
        bindings = KeyBindings()
        on_line = has_focus(self._buffer)
        self._bind_line(bindings, on_line)
        self._bind_pastes(bindings, on_line)
        self.questions.bind(bindings)

        @bindings.add("escape", filter=~is_searching & Condition(self._is_lone_escape), eager=True)
        def escape(_event: KeyPressEvent) -> None:
            self._escape()

        @bindings.add("c-c")
        def interrupt(_event: KeyPressEvent) -> None:
            self._interrupt()

        @bindings.add("c-z")
        def suspend(event: KeyPressEvent) -> None:
            event.app.suspend_to_background()

        @bindings.add("c-l")
        def redraw(event: KeyPressEvent) -> None:
            event.app.renderer.clear()

        for key in ("c-o", "c-t", "s-tab"):
            self._bind_action(bindings, key)

        @bindings.add("c-b", filter=on_line & Condition(lambda: not self._is_reading))
        def background(_event: KeyPressEvent) -> None:
            self._act("c-b")

        return bindings

    def _bind_action(self, bindings: KeyBindings, key: str) -> None:
        @bindings.add(key, filter=~has_completions)
        def act(_event: KeyPressEvent) -> None:
            self._act(key)

    def _act(self, key: str) -> None:
        if action := self.actions.get(key):
            action()

    def _bind_line(self, bindings: KeyBindings, on_line: Condition) -> None:
        @bindings.add("enter", filter=on_line & ~is_searching)
        def submit(event: KeyPressEvent) -> None:
            _submit(event.current_buffer)

        @bindings.add("escape", "enter", filter=on_line)
        def add_line(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @bindings.add("c-g", filter=on_line)
        def edit(event: KeyPressEvent) -> None:
            event.current_buffer.open_in_editor()

        @bindings.add("c-d", filter=on_line & Condition(lambda: not self._buffer.text))
        def leave(_event: KeyPressEvent) -> None:
            self._end()

        can_take_back = Condition(lambda: bool(self._queue) and not self._buffer.text)

        @bindings.add("up", filter=on_line & can_take_back)
        def take_back(_event: KeyPressEvent) -> None:
            self.set_line(self._queue.pop())

    def _bind_pastes(self, bindings: KeyBindings, on_line: Condition) -> None:
        @bindings.add(Keys.BracketedPaste, filter=on_line)
        def paste(event: KeyPressEvent) -> None:
            text = event.data.replace("\r\n", "\n").replace("\r", "\n")
            event.current_buffer.insert_text(mention_of_image(text) or self._fold(text))

        @bindings.add("c-v", filter=on_line)
        async def paste_image(event: KeyPressEvent) -> None:
            if self._sources is None:
                return
            saved = await to_thread.run_sync(save_clipboard_image, self._sources.pasted)
            if saved is not None:
                event.current_buffer.insert_text(f"@{saved} ")
                event.app.invalidate()

    def _is_lone_escape(self) -> bool:
        """Whether Esc was pressed by itself. With a letter in the same piece of input it may be
        Alt and the letter, or two keys that tmux passed on together: it is Alt only where Alt does
        something, so no key is lost."""
        if self._application.vi_state.input_mode != InputMode.NAVIGATION and (
            self._application.editing_mode == EditingMode.VI and self._is_reading
        ):
            return False  # vi's own key
        queue = self._application.key_processor.input_queue
        if not queue:
            return True
        key = queue[0].data
        return key not in _KEPT_ALT_KEYS or (key not in "\r\n" and not self._buffer.text)

    def _escape(self) -> None:
        if self.questions.is_asking():
            self.questions.leave()
        elif self._buffer.complete_state is not None:
            self._buffer.cancel_completion()
        elif not self._is_reading:
            self._pass_interrupt("escape")
        elif self._escaped:
            self._escaped = False
            self._clear_or_rewind()
        else:
            self._escaped = True
            self._application.create_background_task(self._forget_escape())

    async def _forget_escape(self) -> None:
        await anyio.sleep(1)  # seconds within which a second Esc belongs to the first
        self._escaped = False

    def _clear_or_rewind(self) -> None:
        if self._buffer.text:
            self._buffer.append_to_history()
            self._buffer.reset()
        else:
            self._queue.append("/rewind")
            self._arrived.set()

    def _interrupt(self) -> None:
        if self.questions.is_asking():
            self.questions.leave()
        elif self._is_reading:
            self._buffer.reset()
            self._is_interrupted = True
            self._arrived.set()
        else:
            self._pass_interrupt("c-c")

    def _pass_interrupt(self, key: str) -> None:
        if self._interrupts is not None:
            self._interrupts(key)

    @contextmanager
    def interrupts_to(self, take: Callable[[str], None]) -> Generator[None]:
        """Pass Esc and Ctrl-C on while something runs."""
        before, self._interrupts = self._interrupts, take
        try:
            yield
        finally:
            self._interrupts = before


def _text_window(text: Callable[[], AnyFormattedText]) -> ConditionalContainer:
    """As high as its text; nothing, if there is none."""
    window = Window(FormattedTextControl(text), dont_extend_height=True)
    return ConditionalContainer(window, Condition(lambda: bool(text())))


def _input_window(control: BufferControl, prefix: Callable[[int, int], AnyFormattedText]) -> Window:
    return Window(control, dont_extend_height=True, wrap_lines=True, get_line_prefix=prefix)


def _submit(buffer: Buffer) -> None:
    """Send the message, or start a new line if it is incomplete."""
    state = buffer.complete_state
    is_completed = state is not None and state.current_completion is not None
    if is_completed and not buffer.text.startswith("/"):
        buffer.complete_state = None  # the path is in the text already
    elif buffer.text[: buffer.cursor_position].endswith("\\"):
        buffer.delete_before_cursor()
        buffer.insert_text("\n")
    elif is_open_fence(buffer.text):
        buffer.insert_text("\n")
    else:
        buffer.validate_and_handle()
