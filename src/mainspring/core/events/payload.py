"""What all events have in common."""

from msgspec import Struct


class Payload(Struct, frozen=True, omit_defaults=True, tag_field="type", gc=False):
    """Frozen, told apart by `type`. JSON has no cycles: without `gc`, long sessions open faster."""
