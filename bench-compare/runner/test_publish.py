"""Tests of the plots."""

import unittest
from unittest import mock

import grow
import plan
import publish


class Curves(unittest.TestCase):
    def test_d29_who_starves_others_is_not_the_one_with_the_shortest_wait(self):
        """The window cuts off the wait of tasks that are never served, so it looks short relative to few grants."""
        fair, starver = plan.RIVALS[0], plan.RIVALS[1]
        seen = {
            fair.name: {"wait_max_over_expected": 1.2, "handovers_per_s": 9.0, "never_served": 0},
            starver.name: {"wait_max_over_expected": 0.4, "handovers_per_s": 5.0, "never_served": 7},
        }
        with mock.patch.object(grow, "contended", lambda *_: seen):
            waits = publish.curves({}, "wait_max_over_expected", 1)
            rates = publish.curves({}, "handovers_per_s", 1)
        self.assertEqual(list(waits), [fair.name])
        self.assertEqual(sorted(rates), sorted([fair.name, starver.name]))


if __name__ == "__main__":
    unittest.main()
