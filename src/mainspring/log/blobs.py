"""Names of blobs: the hash of what they hold."""

from __future__ import annotations

import hashlib


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
