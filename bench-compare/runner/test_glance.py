"""Tests of the README's picture."""

import os
import re
import unittest

import glance
import publish

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def read(path):
    with open(os.path.join(ROOT, path)) as file:
        return file.read()


def page(*rows):
    table = "".join(f"| {' | '.join(map(str, row))} |\n" for row in [glance.HEADS, ["---"] * 4, *rows])
    return (
        "<!-- measured: conditions -->\n2 x a processor, 24 GiB, Redis 7.0.15 on the loopback\n"
        "| one-process | `x` | abc | 2026-11-23 17:58 | 5 |\n<!-- end of what was measured -->\n"
        f"<!-- measured: summary -->\n{table}<!-- end of what was measured -->\n"
    )


class Glance(unittest.TestCase):
    def test_the_picture_has_the_figures_of_the_page(self):
        """After a change of either: scripts/bench-compare --glance."""
        self.assertEqual(read(glance.PICTURE), glance.drawn(read(publish.PAGE)))

    def test_who_starves_others_has_the_longest_wait(self):
        drawn = glance.drawn(page(["starver", 12.7, 88, 0.1], ["fairlock", 6248, 0, 1.8]))
        self.assertLess(drawn.index(">fairlock<"), drawn.index(">starver<"))
        wide = lambda colour: [float(wide) for wide in re.findall(rf'class="{colour}"[^>]* width="([0-9.]+)"', drawn)]  # noqa: E731
        self.assertGreater(wide("starved")[0], wide("ours")[1])
        self.assertIn("88 of 100 not served within a second", drawn)
        self.assertNotIn("0.1 x", drawn)

    def test_no_bar_leaves_the_picture(self):
        drawn = glance.drawn(page(["a", 1e6, 0, 99.9], ["b", 0, 0, 0.5]))
        for x, wide in re.findall(r'<rect class="(?:ours|other|starved)" x="([0-9.]+)" y="[0-9.]+" width="([0-9.]+)"', drawn):
            self.assertLessEqual(float(x) + float(wide), glance.WIDTH)
        self.assertIn(">1 000 000<", drawn)


if __name__ == "__main__":
    unittest.main()
