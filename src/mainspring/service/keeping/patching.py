"""Changing a thing field by field: what is not said stays."""

from __future__ import annotations

from typing import TypeVar

from msgspec import UnsetType

T = TypeVar("T")


def given(asked: T | UnsetType, known: T) -> T:
    return known if isinstance(asked, UnsetType) else asked
