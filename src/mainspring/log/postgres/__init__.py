"""The log in PostgreSQL: several machines, one truth. Needs the extra `mainspring[postgres]`."""

from mainspring.log.postgres.migrations import migrate, schema_status
from mainspring.log.postgres.store import PostgresStore, open_postgres

__all__ = ["PostgresStore", "migrate", "open_postgres", "schema_status"]
