"""Signatures of thinking blocks, marked with who made them, so that nobody else is sent them."""

from __future__ import annotations


def seal(maker: str, payload: str) -> str:
    return f"{maker}:{payload}"


def unseal(maker: str, signature: str | None) -> str | None:
    """What the maker sealed; None if it was another."""
    mark = f"{maker}:"
    if signature is None or not signature.startswith(mark):
        return None
    return signature[len(mark) :]
