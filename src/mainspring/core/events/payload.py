"""What all events have in common."""

from msgspec import Struct


class Payload(Struct, frozen=True, omit_defaults=True, tag_field="type", gc=False):
    """Shared settings of all payloads: frozen, told apart by `type`, defaults not written.

    Without cycles, as JSON is, and so without `gc`: a quarter off the time to open a long session.
    """
