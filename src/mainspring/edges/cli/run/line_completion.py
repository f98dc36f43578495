"""What the input line of chat offers: slash commands, paths after `@`, and earlier messages. Also
what a pasted path of an image, or the image in the clipboard, becomes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import History

from mainspring.config import FOLDER, Settings, is_postgres
from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.render.printing import sanitize_line
from mainspring.edges.cli.run.file_index import FileIndex, index_in_background
from mainspring.files.atomic_file import open_regular, write_atomic
from mainspring.runtime.slash_commands import SlashCommand

MAX_HISTORY = 1000  # messages
_MAX_HISTORY_BYTES = 10_000_000  # a pasted file can be a message; more would slow the start
_MAX_OFFERED = 50  # completions; more are found by typing on
_FENCE = "```"
_IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_PNG = b"\x89PNG\r\n\x1a\n"
_CLIPBOARD_SECONDS = 5  # for the clipboard's program
_MAX_IMAGE_BYTES = 20_000_000  # of a pasted image; a larger one is not taken
_CLIPBOARD_PROGRAMS = (
    ("wl-paste", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-t", "image/png", "-o"),
    ("pngpaste", "-"),
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


def open_sources(
    folder: Path, *, commands: Callable[[], Sequence[SlashCommand]], status: Callable[[], str]
) -> EditorSources:
    """Those of a chat in this folder. Starts to index its files."""
    return EditorSources(
        commands=commands,
        files=index_in_background(folder),
        status=status,
        pasted=folder / FOLDER / "pasted",
    )


def history_file(settings: Settings) -> Path:
    """Where the messages of this folder's chats are stored."""
    is_server = is_postgres(settings.store)
    place = Path(settings.folder) / FOLDER if is_server else Path(settings.store).parent
    return place / "chat_history"


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
            with open_regular(self._file, follows_links=False) as file:
                lines = file.read(_MAX_HISTORY_BYTES).decode(errors="replace").splitlines()
        except (OSError, InvalidInput):
            return []
        return [_unescape(line) for line in reversed(lines[-MAX_HISTORY:])]

    def store_string(self, string: str) -> None:
        if self._file is None:
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with suppress(OSError):  # chat works without a history
            # the folder can come with a repository: no link is followed, and no pipe waited for
            handle = os.open(self._file, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
            with os.fdopen(handle, "a") as file:
                if stat.S_ISREG(os.fstat(handle).st_mode):
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


def save_clipboard_image(folder: Path) -> Path | None:
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
