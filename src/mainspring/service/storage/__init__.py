"""Storage of the service: typed repositories of records, pagination, sealing, notifications."""
