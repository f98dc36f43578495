"""Tests of prices.py; run them with `python check_prices.py`."""

import sys

from prices import with_rebate, with_tax

CHECKS = {
    "a rebate lowers the price": lambda: with_rebate(100, 0.25) == 75,
    "no rebate, no change": lambda: with_rebate(100, 0) == 100,
    "tax raises the price": lambda: with_tax(100, 0.5) == 150,
}

failed = [name for name, check in CHECKS.items() if not check()]
for name in failed:
    print(f"FAILED {name}")
print(f"{len(CHECKS) - len(failed)} passed, {len(failed)} failed" if failed else "3 passed")
sys.exit(bool(failed))
