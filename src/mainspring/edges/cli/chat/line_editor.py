"""The line editor of chat: multiple lines, completion, history search, pasted images, and a status
line. Slow to import, so it is loaded only at a terminal.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from anyio import to_thread
from prompt_toolkit import PromptSession
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import is_searching
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.shortcuts import CompleteStyle
from prompt_toolkit.styles import Style

from mainspring.config import FOLDER, Settings, is_postgres
from mainspring.edges.cli.chat.file_index import FileIndex, index_in_background
from mainspring.edges.cli.render.printing import sanitize_line
from mainspring.files.atomic_file import write_atomic
from mainspring.runtime.slash_commands import SlashCommand

MAX_HISTORY = 1000
_MAX_OFFERED = 50
_FENCE = "```"
_IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_PNG = b"\x89PNG\r\n\x1a\n"
_CLIPBOARD_SECONDS = 5
_MAX_IMAGE_BYTES = 20_000_000
_CLIPBOARD_PROGRAMS = (
    ("wl-paste", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-t", "image/png", "-o"),
    ("pngpaste", "-"),
)
_STYLE = Style.from_dict(
    {
        "prompt": "bold ansigreen",
        "bottom-toolbar": "noreverse ansibrightblack",
        "completion-menu": "bg:default",
        "completion-menu.completion.current": "reverse",
        "completion-menu.meta.completion": "bg:default ansibrightblack",
        "completion-menu.meta.completion.current": "bg:default ansibrightblack",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EditorSources:
    """The sources of the editor's completions and status line."""

    commands: Callable[[], Sequence[SlashCommand]]
    files: FileIndex
    status: Callable[[], str]
    """The text of the status line."""
    pasted: Path
    """The folder for images from the clipboard."""


class FileHistory(History):
    """One message per line; line ends inside it are escaped."""

    def __init__(self, file: Path | None) -> None:
        super().__init__()
        self._file = file

    def load_history_strings(self) -> Iterable[str]:
        """Newest first."""
        if self._file is None:
            return []
        try:
            lines = self._file.read_text(errors="replace").splitlines()
        except OSError:
            return []
        return [_unescape(line) for line in reversed(lines[-MAX_HISTORY:])]

    def store_string(self, string: str) -> None:
        if self._file is None:
            return
        with suppress(OSError):  # chat works without a history
            handle = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(handle, "a") as file:
                file.write(f"{_escape(string)}\n")


def _escape(message: str) -> str:
    return message.replace("\\", "\\\\").replace("\n", "\\n")


def _unescape(line: str) -> str:
    return "\\".join(part.replace("\\n", "\n") for part in line.split("\\\\"))


class ChatCompleter(Completer):
    """Commands at the beginning of a message, paths after `@`."""

    def __init__(self, sources: EditorSources) -> None:
        self._sources = sources

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterator[Completion]:
        del complete_event
        text = document.text_before_cursor
        if text.startswith("/") and not text.strip().count(" ") and "\n" not in text:
            yield from self._commands(text)
            return
        word = text.rsplit(maxsplit=1)[-1] if text and not text[-1].isspace() else ""
        if word.startswith("@"):
            yield from self._paths(word[1:])

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        for completion in self.get_completions(document, complete_event):
            yield completion

    def _commands(self, typed: str) -> Iterator[Completion]:
        for command in self._sources.commands():
            if f"/{command.name}".startswith(typed):
                yield Completion(
                    f"/{command.name}",
                    start_position=-len(typed),
                    display_meta=sanitize_line(command.about),
                )

    def _paths(self, typed: str) -> Iterator[Completion]:
        for path in islice(self._sources.files.search(typed), _MAX_OFFERED):
            if path.isprintable():
                yield Completion(path, start_position=-len(typed))


def open_editor(
    settings: Settings,
    folder: Path,
    *,
    commands: Callable[[], Sequence[SlashCommand]],
    status: Callable[[], str],
) -> LineEditor:
    """The editor for a chat in this folder. Starts to index its files."""
    sources = EditorSources(
        commands=commands,
        files=index_in_background(folder),
        status=status,
        pasted=folder / FOLDER / "pasted",
    )
    is_server = is_postgres(settings.store)
    place = Path(settings.folder) / FOLDER if is_server else Path(settings.store).parent
    return LineEditor(sources, place / "chat_history", colour=settings.color)


class LineEditor:
    def __init__(self, sources: EditorSources, history: Path | None, *, colour: bool) -> None:
        self._sources = sources
        self._session: PromptSession[str] = PromptSession(
            history=FileHistory(history),
            completer=ChatCompleter(sources),
            complete_while_typing=True,
            complete_style=CompleteStyle.COLUMN,
            multiline=True,
            key_bindings=_key_bindings(sources),
            prompt_continuation=FormattedText([("class:prompt", "… ")]),
            bottom_toolbar=self._toolbar,
            style=_STYLE,
            color_depth=None if colour else ColorDepth.DEPTH_1_BIT,
            enable_suspend=True,
            search_ignore_case=True,
        )

    async def message(self, typed: str = "") -> str:
        """Raises: EOFError: the input has ended. KeyboardInterrupt: the user pressed Ctrl-C."""
        prompt = FormattedText([("class:prompt", "> ")])
        return await self._session.prompt_async(prompt, default=typed)

    def _toolbar(self) -> str:
        return sanitize_line(self._sources.status())


def _key_bindings(sources: EditorSources) -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("enter", filter=~is_searching)
    def submit(event: KeyPressEvent) -> None:
        _submit(event.current_buffer)

    @bindings.add("escape", "enter")
    def add_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @bindings.add(Keys.BracketedPaste)
    def paste(event: KeyPressEvent) -> None:
        text = event.data.replace("\r\n", "\n").replace("\r", "\n")
        event.current_buffer.insert_text(mention_of_image(text) or text)

    @bindings.add("c-v")
    async def paste_image(event: KeyPressEvent) -> None:
        saved = await to_thread.run_sync(_save_clipboard_image, sources.pasted)
        if saved is not None:
            event.current_buffer.insert_text(f"@{saved} ")
            event.app.invalidate()

    return bindings


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


def is_open_fence(text: str) -> bool:
    fences = sum(line.lstrip().startswith(_FENCE) for line in text.split("\n"))
    return fences % 2 == 1


def mention_of_image(pasted: str) -> str | None:
    """A mention of an image file whose path was pasted; terminals paste the path when you drop a
    file."""
    path = pasted.strip().strip("'\"").replace("\\ ", " ").removeprefix("file://")
    if "\n" in path or not path.lower().endswith(_IMAGE_SUFFIXES):
        return None
    file = Path(path).expanduser()
    if not file.is_file():
        return None
    return f'@"{file}" ' if " " in str(file) else f"@{file} "


def _save_clipboard_image(folder: Path) -> Path | None:
    """Save the clipboard's image. Returns its file, or `None` if there is no image. Blocks."""
    for program, *options in _CLIPBOARD_PROGRAMS:
        if (path := shutil.which(program)) is None:
            continue
        try:
            image = subprocess.run(
                [path, *options], capture_output=True, timeout=_CLIPBOARD_SECONDS, check=False
            ).stdout
        except (OSError, subprocess.TimeoutExpired):
            continue
        if image.startswith(_PNG) and len(image) <= _MAX_IMAGE_BYTES:
            file = folder / f"pasted-{hashlib.sha256(image).hexdigest()[:12]}.png"
            write_atomic(file, image)
            return file
    return None
