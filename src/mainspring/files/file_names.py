"""Names of files, compared as the most forgiving file system would compare them."""

from __future__ import annotations

import unicodedata

_INVISIBLE = "Cf"  # the Unicode category that HFS+ leaves out when it compares names


def fold_name(name: str) -> str:
    """The same for all names that some file system takes for one."""
    if not name.isascii():
        plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", name).casefold())
        name = "".join(item for item in plain if unicodedata.category(item) != _INVISIBLE)
    return name.lower().rstrip(". ")
