from tests.cli.conftest import environ, mainspring, place, store, upstream

__all__ = ["environ", "mainspring", "place", "store", "upstream"]
