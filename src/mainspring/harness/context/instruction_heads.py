"""When a rule or a steering file holds, as its frontmatter says. Other keys of it do nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from mainspring.core.errors import InvalidInput
from mainspring.harness.context.globs import expanded


@dataclass(frozen=True, slots=True)
class Terms:
    globs: tuple[str, ...] = ()
    """It holds for these files; for all, if there are none."""
    is_read: bool = True
    note: str | None = None
    offer: str = ""
    """What it is about: only this is shown, and the model reads the file when it fits."""


ALWAYS = Terms()


def read_terms(
    kind: Literal["rule", "steering", "cursor"], head: Mapping[str, object], name: str
) -> Terms:
    """Raises: InvalidInput."""
    match kind:
        case "rule":
            return rule_terms(head)
        case "steering":
            return steering_terms(head, name)
        case "cursor":
            return cursor_terms(head)


def cursor_terms(head: Mapping[str, object]) -> Terms:
    """Of a rule as Cursor has them: `alwaysApply`, `globs`, `description`.

    Raises: InvalidInput.
    """
    if head.get("alwaysApply") in (True, "true"):
        return ALWAYS
    if globs := _globs(head, "globs"):
        return Terms(_anywhere(globs))
    if description := str(head.get("description") or "").strip():
        return Terms(offer=description)
    how = "give it `globs`, a `description` or `alwaysApply: true`"
    return Terms(is_read=False, note=f"is not read by itself: {how}")


def rule_terms(head: Mapping[str, object]) -> Terms:
    """Of a rule as Claude Code has them: `paths`.

    Raises: InvalidInput.
    """
    return Terms(_globs(head, "paths"))


def steering_terms(head: Mapping[str, object], name: str) -> Terms:
    """Of a steering file as Kiro has them: `inclusion`, and `fileMatchPattern` with `fileMatch`.

    Raises: InvalidInput.
    """
    match head.get("inclusion", "always"):
        case "always":
            return ALWAYS
        case "auto":
            return Terms(note="`inclusion: auto` is read like `always`")
        case "manual":
            how = f"name it in a message, or import it with @ from a CLAUDE.md, to have #{name}"
            return Terms(is_read=False, note=f"`inclusion: manual` is not read by itself: {how}")
        case "fileMatch":
            globs = _globs(head, "fileMatchPattern")
            if not globs:
                raise InvalidInput("`inclusion: fileMatch` needs a `fileMatchPattern`")
            return Terms(_anywhere(globs))
        case other:
            raise InvalidInput(f"its `inclusion` is not known: {other}")


def _anywhere(globs: tuple[str, ...]) -> tuple[str, ...]:
    """A name without a folder means files of that name wherever they are."""
    return tuple(glob if "/" in glob else f"**/{glob}" for glob in globs)


def _globs(head: Mapping[str, object], key: str) -> tuple[str, ...]:
    """A list, or one string with commas."""
    written = head.get(key)
    if written is None:
        return ()
    if isinstance(written, str):
        parts = (part.strip() for part in re.split(r",(?![^{}]*\})", written))
        globs = [part for part in parts if part]
    else:
        items = cast("list[object]", written) if isinstance(written, list) else [None]
        globs = [item for item in items if isinstance(item, str)]
        if len(globs) < len(items):
            raise InvalidInput(f"its `{key}` is not a list of globs")
    return tuple(part for glob in globs for part in expanded(glob))
