"""The base class of all payloads."""

from msgspec import Struct


class Payload(Struct, frozen=True, omit_defaults=True, tag_field="type", gc=False):
    """Frozen and tagged by `type`. Payloads have no cycles, so they need no garbage collection."""
