"""Draws the README's picture from the figures in docs/performance.md: bars of all rivals, readable light and dark."""

import math
import re
from html import escape

PICTURE = "docs/plots/at-a-glance.svg"

WIDTH, ROW, TOP, BELOW = 860, 21, 76, 44
# Names, bars of hand-overs, bars of waits: where each begins, and how wide the longest bar is.
NAMES, RATES, WAITS, LONGEST = 16, 156, 500, 268
# Where the axis of waits ends. A bar begins at 1, the expected wait.
WAIT_MAX = 100
TASKS = 100

HEADS = ("rival", "hand-overs/s at 100 waiters", "never served, of 100", "longest wait / expected")

STYLE = """
  svg { --ground: #ffffff; --text: #24292f; --faint: #6e7781; --line: #d0d7de; --ours: #1a7f5a; --other: #8c959f; --starved: #cf222e; --on-starved: #ffffff; }
  @media (prefers-color-scheme: dark) {
    svg { --ground: #161b22; --text: #e6edf3; --faint: #9198a1; --line: #3d444d; --ours: #2ea07a; --other: #6e7681; --starved: #ff7b72; --on-starved: #1f0705; }
  }
  .ground { fill: var(--ground); stroke: var(--line); }
  text { fill: var(--text); }
  .head { font-weight: 600; }
  .faint { fill: var(--faint); font-size: 12px; }
  .ours { fill: var(--ours); }
  .name-ours { fill: var(--ours); font-weight: 600; }
  .other { fill: var(--other); }
  .starved { fill: var(--starved); }
  .on-starved { fill: var(--on-starved); font-size: 12px; }
"""


def write(page):
    with open(page) as file:
        svg = drawn(file.read())
    with open(PICTURE, "w") as file:
        file.write(svg)
    print(f"written: {PICTURE}")


def drawn(page):
    """Returns the picture for a page with its tables."""
    rows = figures(block(page, "summary"))
    height = TOP + ROW * len(rows) + BELOW
    most = max(rate for _, rate, _, _ in rows)
    about = f"{TASKS} tasks want one lock: hand-overs a second, and the longest wait, of fairlock and other locks"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        "font-family=\"system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif\" font-size=\"13\" role=\"img\" "
        'aria-labelledby="title">',
        f'<title id="title">{about}</title>',
        f"<style>{STYLE}</style>",
        f'<rect class="ground" x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
        words(RATES, 32, "Hand-overs a second", "head"),
        words(RATES, 52, "grants to another task than before", "faint"),
        words(WAITS, 32, "Longest wait", "head"),
        words(WAITS, 52, "in multiples of the wait if all take turns (log scale)", "faint"),
    ]
    for at, (name, rate, starved, wait) in enumerate(rows):
        y = TOP + ROW * at
        ours = name.startswith("fairlock")
        colour = "ours" if ours else "other"
        parts.append(words(NAMES, y + 11, name, "name-ours" if ours else None))
        wide = LONGEST * rate / most
        parts += [bar(RATES, y, wide, colour), words(RATES + wide + 6, y + 11, amount(rate))]
        if starved:
            # The end of the window, after a second, cuts off the wait of a task that is not served.
            told = f"{starved:.0f} of {TASKS} not served within a second"
            parts += [bar(WAITS, y, LONGEST, "starved"), words(WAITS + 6, y + 11, told, "on-starved")]
        else:
            wide = LONGEST * math.log(max(1, wait)) / math.log(WAIT_MAX)
            parts += [bar(WAITS, y, wide, colour), words(WAITS + wide + 6, y + 11, f"{wait:.1f} x")]
    parts.append(words(NAMES, height - 16, f"{TASKS} tasks in one process, {where(block(page, 'conditions'))}", "faint"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def block(page, name):
    return re.search(rf"<!-- measured: {name} -->\n(.*?)<!-- end of what was measured -->", page, re.DOTALL)[1]


def figures(table):
    """Returns name, hand-overs, tasks that were never served, and longest wait, of each row; the most hand-overs first."""
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in table.splitlines() if line.startswith("|")]
    at = [rows[0].index(head) for head in HEADS]
    picked = [[row[column] for column in at] for row in rows[2:]]
    return sorted(((name, *map(float, values)) for name, *values in picked), key=lambda row: -row[1])


def where(conditions):
    """Names the server and the day of the part that the figures are from."""
    server = re.search(r"(?:Redis|Valkey) [0-9.]+", conditions)[0]
    day = re.search(r"^\| one-process \|.*?(\d{4}-\d\d-\d\d)", conditions, re.MULTILINE)[1]
    processors = re.search(r"^(\d+) x ", conditions, re.MULTILINE)[1]
    return f"{server}, {processors} processors for clients and server, {day}. All figures: docs/performance.md"


def amount(rate):
    return f"{rate:,.0f}".replace(",", " ")


def bar(x, y, wide, colour):
    return f'<rect class="{colour}" x="{x}" y="{y}" width="{max(wide, 1):.1f}" height="{ROW - 7}" rx="2"/>'


def words(x, y, text, style=None):
    styled = f' class="{style}"' if style else ""
    return f'<text{styled} x="{x:.1f}" y="{y}">{escape(text)}</text>'
