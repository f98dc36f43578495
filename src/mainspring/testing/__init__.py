"""For those who build on Mainspring: proof that their parts keep our promises. Needs no pytest."""

from mainspring.testing.store_contract import StoreCase, StoreFactory, store_contract

__all__ = ["StoreCase", "StoreFactory", "store_contract"]
