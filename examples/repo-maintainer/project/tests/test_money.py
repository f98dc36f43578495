"""Amounts: read, written and cut up."""

import unittest

from tally.money import cents, shown, split
from tally.tips import tip


class Amounts(unittest.TestCase):
    def test_an_amount_is_read_as_it_is_written(self):
        for text in ("0.00", "0.05", "12.50", "1000.00"):
            self.assertEqual(shown(cents(text)), text)

    def test_parts_differ_by_a_cent_at_most(self):
        parts = split(1000, 3)
        self.assertLessEqual(max(parts) - min(parts), 1)

    def test_nobody_to_pay_is_an_error(self):
        with self.assertRaises(ValueError):
            split(1000, 0)

    def test_a_tip_is_rounded_to_the_nearest_cent(self):
        self.assertEqual(tip(1999, 10), 200)


if __name__ == "__main__":
    unittest.main()
