"""Images and recordings that a person asks to remember: a note with a caption and a link to the
event. The caption is the person's own words, the file name and the alternative text. A model that
reads images may add a description, which counts as foreign text.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import partial
from typing import TypeAlias

from anyio import move_on_after

from mainspring.core.content import (
    Base64Source,
    BlobSource,
    ImageBlock,
    plain_text,
)
from mainspring.core.envelope import Event
from mainspring.core.events import KnownPayload, SessionCreated, UserMessage
from mainspring.log.session_log import SessionLog
from mainspring.runtime.memory.learning.absolute_dates import make_dates_absolute
from mainspring.runtime.memory.learning.extraction import is_from_person, is_learned_from
from mainspring.runtime.memory.note import Note, Trust, note_path

MAX_CAPTIONS = 5
"""The most captions in one run."""
_SECONDS = 30
"""Time limit for all captions of a run."""
_MAX_WORDS = 600  # characters of a message that are searched for media to remember
_REMEMBER = re.compile(r"\b(?:remember|memorize|keep in mind|don'?t forget|note)\b", re.IGNORECASE)
_AUDIO = re.compile(r"(?<![\w/])(?:[\w.-]+/)*[\w.-]+\.(?:mp3|wav|ogg|m4a|flac)\b", re.IGNORECASE)
_IMAGE = re.compile(r"(?<![\w/])(?:[\w.-]+/)*[\w.-]+\.(?:png|jpe?g|gif|webp)\b", re.IGNORECASE)
_ALTERNATIVE = re.compile(r"!\[([^\]\n]{1,200})\]\(")

Caption: TypeAlias = Callable[[ImageBlock], Awaitable[tuple[str, Sequence[KnownPayload]]]]
"""Describes an image and returns the cost events; an empty text if it cannot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Medium:
    session_id: str
    event_id: str
    number: int
    """Its position in the message, from 1."""
    time: datetime
    kind: str
    """`image` or `recording`."""
    words: str
    file: str = ""
    image: ImageBlock | None = None

    @property
    def path(self) -> str:
        return note_path("reference", f"{self.kind} {self.event_id} {self.number}")

    def note(self, caption: str) -> Note:
        """A `caption` comes from a model, so the note with one is foreign."""
        day: date = self.time.date()
        link = f"{self.kind} {self.number} of event {self.event_id} in session {self.session_id}"
        place = f"{self.file}, {link}" if self.file else link
        description = f"It shows, as a model says: {' '.join(caption.split())}" if caption else ""
        words = make_dates_absolute(self.words, day)
        trust: Trust = "foreign" if caption else "agent"
        return Note(
            path=self.path,
            name=f"{self.kind} {self.file or day.isoformat()}",
            description=" ".join(words.split())[:200],
            type="reference",
            body="\n\n".join(filter(None, (words, description, f"Where it is: {place}"))),
            session=self.session_id,
            events=(self.event_id,),
            trust=trust,
        )


def media_to_remember(log: Iterable[Event]) -> list[Medium]:
    """Return the media in messages in which a person asks to remember something."""
    media: list[Medium] = []
    for event in log:
        payload = event.payload
        if isinstance(payload, SessionCreated) and not is_learned_from(payload):
            return []
        if isinstance(payload, UserMessage) and is_from_person(event):
            media += _media_of(event, payload)
    return media


def _media_of(event: Event, message: UserMessage) -> Iterator[Medium]:
    words = " ".join(plain_text(message.content).split())[:_MAX_WORDS]
    if not _REMEMBER.search(words):
        return
    medium = partial(Medium, session_id=event.session_id, event_id=event.id, time=event.time)
    alternatives, names = _ALTERNATIVE.findall(words), _IMAGE.findall(words)
    images = [block for block in message.content if isinstance(block, ImageBlock)]
    for number, block in enumerate(images, 1):
        text = f"{words} ({alternatives[number - 1]})" if number <= len(alternatives) else words
        file = names[number - 1] if number <= len(names) else ""
        yield medium(number=number, kind="image", words=text, file=file, image=block)
    for number, name in enumerate(dict.fromkeys(_AUDIO.findall(words)), len(images) + 1):
        yield medium(number=number, kind="recording", words=words, file=name)


async def media_notes(
    log: SessionLog, media: Sequence[Medium], caption: Caption | None
) -> tuple[list[Note], list[KnownPayload]]:
    """Return the notes, and the cost events of their captions."""
    costs: list[KnownPayload] = []
    captions: dict[str, str] = {}
    with move_on_after(_SECONDS):
        for medium in media[: MAX_CAPTIONS if caption is not None else 0]:
            if caption is not None and medium.image is not None:
                text, cost = await caption(await _with_content(log, medium.image))
                captions[medium.path] = text
                costs += cost
    notes = [medium.note(captions.get(medium.path, "")) for medium in media]
    return notes, costs


async def _with_content(log: SessionLog, image: ImageBlock) -> ImageBlock:
    if not isinstance(source := image.source, BlobSource):
        return image
    data = b64encode(await log.blob(source.hash)).decode()
    return ImageBlock(source=Base64Source(media_type=source.media_type, data=data))
