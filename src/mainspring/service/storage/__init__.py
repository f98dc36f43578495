"""How things are kept: typed drawers of records, pages, seals, notices."""
