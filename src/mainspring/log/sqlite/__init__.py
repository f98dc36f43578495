"""The log in one SQLite file: the default store."""

from mainspring.log.sqlite.connect import migrate, schema_status
from mainspring.log.sqlite.store import SqliteStore, open_sqlite

__all__ = ["SqliteStore", "migrate", "open_sqlite", "schema_status"]
