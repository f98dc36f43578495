"""Tests of durations."""

import unittest

from durations import seconds


class Durations(unittest.TestCase):
    def test_one_unit(self):
        assert seconds("90s") == 90
        assert seconds("2h") == 7200

    def test_several_units(self):
        assert seconds("1h30m") == 5400
