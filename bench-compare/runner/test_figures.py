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

    def test_readers_overlap_but_with_no_writer(self):
        # Of 100 tasks 10 read: task 10 writes.
        readers = [(0, 0, 10, 40, 41), (1, 0, 20, 30, 31), (109, 0, 25, 50, 51)]
        self.assertEqual(figures.overlaps(readers, 1, readers=10), 0)
        self.assertEqual(figures.overlaps(readers, 1), 2, "as holds of one at a time")
        after = (10, 0, 50, 60, 61)
        self.assertEqual(figures.overlaps([*readers, after], 1, readers=10), 0)
        for writer in ((10, 0, 49, 60, 61), (10, 0, 5, 11, 12), (110, 0, 22, 24, 25)):
            self.assertGreater(figures.overlaps([*readers, writer], 1, readers=10), 0, writer)
        self.assertEqual(figures.overlaps([(10, 0, 1, 9, 9), (11, 0, 8, 12, 12)], 1, readers=10), 1, "two writers")
        self.assertEqual(figures.overlaps([(10, 0, 1, 9, 9)], 1, readers=10), 0, "a writer alone")

    def test_never_more_than_there_are_permits(self):
        rows = [(0, 0, 10, 40, 41), (1, 0, 20, 30, 31), (2, 0, 30, 50, 51), (3, 0, 40, 60, 61)]
        self.assertEqual(figures.overlaps(rows, 1, permits=2), 0)
        self.assertEqual(figures.overlaps(rows, 1, permits=1), 3)
        self.assertEqual(figures.overlaps([*rows, (4, 0, 35, 36, 37)], 1, permits=2), 1)
        self.assertEqual(figures.overlaps([*rows, (4, 0, 35, 36, 37)], 1, permits=3), 0)

    def test_handovers_of_permits(self):
        # Two permits: the release at 20 serves task 2, which has it 3 later; that at 25 serves task 3.
        rows = [(0, 0, 1, 20, 21), (1, 0, 2, 25, 26), (2, 0, 23, 40, 41), (3, 0, 30, 41, 42)]
        self.assertEqual(figures.handovers_ns(rows, 0, 100, permits=2), [3, 5])
        self.assertEqual(figures.handovers_ns(rows, 0, 100, permits=4), [])

    def test_beside_readers_the_longest_wait_is_a_writers(self):
        # Task 0 reads and waits for ever; task 1 writes, waits 10 each time, and both count as expected.
        rows = [(1, at * 20, at * 20 + 10, at * 20 + 20, at * 20 + 20) for at in range(10)]
        seen = figures.fairness(rows, 2, 0, 0, 200, readers=1)
        self.assertEqual(seen["wait_max_over_expected"], 10 / 40)
        self.assertEqual(figures.fairness(rows, 2, 0, 0, 200)["wait_max_over_expected"], 200 / 40)

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
