"""Tests the arithmetic on handwritten rows: `python3 -m unittest` in this folder."""

import unittest

import figures


class Figures(unittest.TestCase):
    def test_overlaps_are_found_per_lock(self):
        apart = [(0, 0, 10, 20, 25), (1, 0, 20, 30, 35)]
        self.assertEqual(figures.overlaps(apart, 1), 0)
        both = [(0, 0, 10, 20, 25), (1, 0, 19, 30, 35)]
        self.assertEqual(figures.overlaps(both, 1), 1)
        self.assertEqual(figures.overlaps(both, 2), 0, "two locks")

    def test_a_short_hold_does_not_hide_a_long_one(self):
        rows = [(0, 0, 10, 100, 101), (1, 0, 20, 30, 31), (2, 0, 40, 50, 51)]
        self.assertEqual(figures.overlaps(rows, 1), 2)

    def test_lost_updates(self):
        rows = [(0, 0, 1, 2, 3)] * 5
        self.assertEqual(figures.lost_updates(rows, 4), 1)
        self.assertEqual(figures.lost_updates(rows, 6), 0, "one was on its way")

    def test_handovers_of_a_window(self):
        rows = [(0, 0, 10, 20, 25), (1, 0, 23, 30, 35), (0, 26, 34, 40, 45)]
        self.assertEqual(figures.handovers_ns(rows, 0, 100), [3, 4])
        self.assertEqual(figures.handovers_ns(rows, 30, 100), [4])

    def test_taking_it_again_is_no_handover(self):
        rows = [(0, 0, 10, 20, 25), (0, 25, 26, 30, 35), (1, 0, 34, 40, 45)]
        self.assertEqual(figures.handovers_ns(rows, 0, 100), [4])

    def test_percentiles(self):
        self.assertEqual(figures.percentile(range(1, 101), 50), 50)
        self.assertEqual(figures.percentile(range(1, 101), 99), 99)
        self.assertEqual(figures.percentile([7], 99), 7)
        self.assertIsNone(figures.percentile([], 50))

    def test_the_fair_and_the_starved(self):
        fair = [(at % 4, max(0, at - 4) * 10, at * 10, at * 10 + 9, at * 10 + 10) for at in range(400)]
        seen = figures.fairness(fair, 4, 0, 0, 4000)
        self.assertEqual((seen["grants_least"], seen["grants_most"], seen["never_served"]), (100, 100, 0))
        self.assertLess(seen["wait_max_over_expected"], 1.1)
        greedy = [(0, at * 10, at * 10, at * 10 + 9, at * 10 + 10) for at in range(400)]
        seen = figures.fairness(greedy, 4, 0, 0, 4000)
        self.assertEqual((seen["grants_least"], seen["grants_most"], seen["never_served"]), (0, 400, 3))
        self.assertEqual(seen["wait_max_over_expected"], 4000 / 40)

    def test_medians(self):
        runs = [{"a": 1, "b": "x"}, {"a": 3}, {"a": 100}]
        self.assertEqual(figures.median_of(runs), {"a": 3})


if __name__ == "__main__":
    unittest.main()
