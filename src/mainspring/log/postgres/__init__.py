"""The log in PostgreSQL: several machines, one truth. Needs the extra `mainspring[postgres]`."""

from mainspring.log.postgres.migrations import downgrade
from mainspring.log.postgres.store import PostgresStore, open_postgres

__all__ = ["PostgresStore", "downgrade", "open_postgres"]
