"""Logs out of nothing: events one after the other, each a second after the one before."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from mainspring.core.envelope import GENESIS, Event, encode_payload
from mainspring.core.events import KnownPayload

MOMENT = datetime(2026, 11, 16, 12, tzinfo=UTC)
MAIN = "sthr_main"
SESSION = "sesn_1"


def log_of(*payloads: KnownPayload | tuple[str, KnownPayload]) -> list[Event]:
    """A payload alone is one of the main thread's. Ids are `e1`, `e2` and so on."""
    return [
        logged(seq, body[1], body[0]) if isinstance(body, tuple) else logged(seq, body, MAIN)
        for seq, body in enumerate(payloads, 1)
    ]


def logged(seq: int, payload: KnownPayload, thread_id: str, id_: str | None = None) -> Event:
    return Event(
        id=id_ or f"e{seq}",
        session_id=SESSION,
        seq=seq,
        thread_id=thread_id,
        time=MOMENT + timedelta(seconds=seq),
        payload=payload,
        body=encode_payload(payload),
        version=1,
        prev=GENESIS,
    )


def kinds(events: Sequence[Event]) -> list[str]:
    return [event.type for event in events]
