"""Bills: whoever is at the table pays for all that was on it."""

import unittest

from tally.bill import Bill


class Sharing(unittest.TestCase):
    def test_two_guests_share_an_even_bill(self):
        bill = Bill(["Ada", "Ben"])
        bill.add("12.50")
        bill.add("7.50")
        self.assertEqual(bill.shares(), {"Ada": 1000, "Ben": 1000})

    def test_three_guests_pay_the_whole_bill(self):
        bill = Bill(["Ada", "Ben", "Cleo"])
        bill.add("20.00")
        self.assertEqual(sum(bill.shares().values()), bill.total)


if __name__ == "__main__":
    unittest.main()
