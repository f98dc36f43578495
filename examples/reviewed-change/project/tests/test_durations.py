import unittest

from durations import seconds


class Durations(unittest.TestCase):
    def test_one_unit(self):
        self.assertEqual(seconds("90s"), 90)
        self.assertEqual(seconds("2h"), 7200)

    def test_several_units(self):
        self.assertEqual(seconds("1h30m"), 5400)


if __name__ == "__main__":
    unittest.main()
