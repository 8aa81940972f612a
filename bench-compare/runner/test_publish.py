"""Tests of the plots."""

import math
import re
import unittest
from unittest import mock

import grow
import plan
import plot
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
        self.assertEqual({y for _, y in waits[fair.name]}, {1.2})
        self.assertEqual({y for _, y in waits[starver.name]}, {math.inf})
        self.assertEqual({y for _, y in rates[starver.name]}, {5.0})

    def test_who_starves_others_is_drawn_above_all_values(self):
        lines = {"fair": [(2, 1.0), (10, 1.2)], "starver": [(2, 90.0), (10, math.inf)], "polls": [(2, math.inf), (10, math.inf)]}
        drawn = plot.chart("waits", "tasks", "times", lines)
        heights = [float(height) for height in re.findall(r'cy="([0-9.]+)" r="3" fill="white"', drawn)]
        others = [float(height) for height in re.findall(r'cy="([0-9.]+)" r="3" fill="#', drawn)]
        self.assertEqual((len(heights), len(others)), (3, 3))
        self.assertLess(max(heights), min(others))
        self.assertIn(plot.NEVER, drawn)
        self.assertNotIn(plot.NEVER, plot.chart("waits", "tasks", "times", {"fair": lines["fair"]}))


if __name__ == "__main__":
    unittest.main()
