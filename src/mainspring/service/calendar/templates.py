"""Templates with `{{body.issue.number}}` in them, filled from what came in. Nothing else: no code,
no conditions, no defaults but nothing (`{{body.note?}}`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from mainspring.core.errors import InvalidInput, TooLarge

_HOLE = re.compile(r"\{\{\s*([^{}\s]{1,200})\s*\}\}")
_PATH = re.compile(r"(?:body|headers)(?:\.[A-Za-z0-9_-]{1,64}){0,16}\??")
_SECRET_HEADERS = frozenset(
    ("authorization", "proxy-authorization", "cookie", "x-api-key", "webhook-signature")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    body: Any  # JSON
    headers: Mapping[str, str]
    """By their names in lower case."""


def checked(template: str, *, where: str) -> str:
    """Raises: InvalidInput: something in braces is no path."""
    for path in _HOLE.findall(template):
        if not _PATH.fullmatch(path):
            raise InvalidInput(f"{where}: {path[:64]!r} is no path as body.issue.number")
        if path.removesuffix("?").lower().removeprefix("headers.") in _SECRET_HEADERS:
            raise InvalidInput(f"{where}: {path} may be a secret and stays outside")
    rest = _HOLE.sub("", template)
    if "{{" in rest or "}}" in rest:
        raise InvalidInput(f"{where}: braces that belong to no path as {{{{body.issue.number}}}}")
    return template


def filled(template: str, filling: Filling, *, max_chars: int) -> str:
    """Raises: InvalidInput: what is asked for is not there. TooLarge."""
    text = _HOLE.sub(lambda match: _shown(match.group(1), filling), template)
    if len(text) > max_chars:
        raise TooLarge(f"what came in makes {len(text)} characters; at most {max_chars} are taken")
    return text


def _shown(path: str, filling: Filling) -> str:
    root, *steps = path.removesuffix("?").split(".")
    value: Any = filling.body if root == "body" else filling.headers
    for step in steps:
        found = _step(value, step)
        if found is None:
            if path.endswith("?"):
                return ""
            raise InvalidInput(f"{path}: what came in has none")
        [value] = found
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _step(value: Any, step: str) -> tuple[Any] | None:  # noqa: ANN401 (JSON)
    if isinstance(value, Mapping):
        held = cast("Mapping[str, Any]", value)
        return (held[step],) if step in held else None
    if isinstance(value, list) and step.isascii() and step.isdigit():
        items = cast("list[Any]", value)
        return (items[int(step)],) if int(step) < len(items) else None
    return None
