"""Values of foreign JSON, whatever they turn out to be: a wrong type is an empty value."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import cast

from mainspring.core.content import Base64Source, Block, ImageBlock, TextBlock, UrlSource
from mainspring.runtime.import_sessions.source import Call, Part, Text, Thought

_LARGEST = 2**63 - 1
_MAX_DEPTH = 50
_IMAGE_TYPES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))


def is_object(value: object) -> bool:
    return isinstance(value, dict)


def is_list(value: object) -> bool:
    return isinstance(value, list)


def mapping(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def sequence(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def string(value: object) -> str:
    return value if isinstance(value, str) else ""


def integer(value: object) -> int:
    """Counts only: never negative, never a boolean."""
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return min(max(value, 0), _LARGEST)


def moment(value: object) -> datetime | None:
    """An ISO time, or a number of milliseconds (or seconds) since 1970."""
    try:
        if isinstance(value, str):
            time = datetime.fromisoformat(value)
            return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
        if isinstance(value, int | float) and not isinstance(value, bool):
            seconds = value / 1000 if value > 1e11 else value
            return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None


def storable(value: object, depth: int = 0) -> object:
    """JSON that our log can hold: no numbers beyond 64 bits, no endless nesting."""
    if depth > _MAX_DEPTH:
        return "[nested too deeply]"
    if isinstance(value, dict):
        return {
            key: storable(each, depth + 1) for key, each in mapping(cast("object", value)).items()
        }
    if isinstance(value, list):
        return [storable(each, depth + 1) for each in sequence(cast("object", value))]
    if isinstance(value, int) and not -_LARGEST <= value <= _LARGEST:
        return str(value)
    return value


def arguments(value: object) -> dict[str, object]:
    """The input of a call."""
    return mapping(storable(mapping(value)))


def reply_part(block: dict[str, object], *, call_type: str, input_key: str) -> list[Part]:
    """A block of a reply; empty if it is of another kind, or a call without id or name."""
    match block.get("type"):
        case "text":
            return [Text(string(block.get("text")))]
        case "thinking":
            return [Thought(string(block.get("thinking")))]
        case kind if kind == call_type:
            call_id, name = string(block.get("id")), string(block.get("name"))
            if not call_id or not name:
                return []
            return [Call(id=call_id, name=name, input=arguments(block.get(input_key)))]
        case _:
            return []


def text_block(text: str) -> tuple[Block, ...]:
    return (TextBlock(text),) if text else ()


def image(media_type: str, data: str) -> tuple[Block, ...]:
    if media_type in _IMAGE_TYPES and data:
        return (ImageBlock(source=Base64Source(media_type=media_type, data=data)),)
    return text_block("[an image of a kind that is not supported was here]")


def image_at(url: str) -> tuple[Block, ...]:
    """An image by its address, which may be a `data:` URL."""
    if url.startswith("data:"):
        head, _, data = url.removeprefix("data:").partition(",")
        return image(head.removesuffix(";base64"), data)
    if url.startswith("https://"):
        return (ImageBlock(source=UrlSource(url=url)),)
    return text_block("[an image was here]")
