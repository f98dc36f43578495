"""Identifiers: a prefix that names the kind, then 32 digits that sort by time of birth."""

from __future__ import annotations

import hashlib
import json
import secrets
import time

SESSION = "sesn"
THREAD = "sthr"
EVENT = "sevt"
WORKER = "wrkr"
REQUEST = "mreq"
RESERVATION = "rsrv"


def new_id(prefix: str) -> str:
    """`sesn_` and 32 hexadecimal digits: 48 bits of milliseconds, then 80 random bits."""
    return f"{prefix}_{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}"


def stable_id(prefix: str, *parts: str) -> str:
    """An id that follows from what it is of: made twice, it is the same."""
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    return f"{prefix}_{digest[:32]}"
