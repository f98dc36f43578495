"""Secrets that this process knows, taken out of everything on its way into the log."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from mainspring.log.chain import Scrub

_SHORTEST = 8
"""Shorter values are words, not secrets: taking them out would garble what people say."""


def scrubber(secrets: Mapping[str, str]) -> Scrub:
    """Puts `[NAME]` in the place of each value, plain or as JSON writes it."""
    found: dict[bytes, bytes] = {}
    for name, value in secrets.items():
        if len(value.strip()) >= _SHORTEST:
            for form in (value, value.strip()):
                found[form.encode()] = f"[{name}]".encode()
                found[msgspec.json.encode(form)[1:-1]] = f"[{name}]".encode()

    def scrub(content: bytes) -> bytes:
        for secret, label in found.items():
            if secret in content:
                content = content.replace(secret, label)
        return content

    return scrub
