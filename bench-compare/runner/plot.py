"""Line charts with two logarithmic axes, as SVG text."""

import math
from html import escape

WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, TOP, BOTTOM = 70, 150, 40, 50
# Ours first; told apart in print too, by the names at the ends.
COLOURS = ["#c0392b", "#e59866", "#1f618d", "#5dade2", "#1e8449", "#82e0aa", "#6c3483", "#bb8fce", "#7d6608", "#d4ac0d", "#515a5a"]  # fmt: skip
# Names at the ends are at least so far apart.
LINE = 13


def decades(values):
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def chart(title, below, lines):
    """`lines`: name to points (x, y), all above zero."""
    xs = [x for points in lines.values() for x, _ in points]
    ys = [y for points in lines.values() for _, y in points]
    (x_low, x_high), (y_low, y_high) = decades(xs), decades(ys)

    def at_x(x):
        return LEFT + (math.log10(x) - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)

    def at_y(y):
        return HEIGHT - BOTTOM - (math.log10(y) - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        words(WIDTH / 2, 22, title, "middle", 15),
        words((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, below, "middle"),
    ]
    for power in range(x_low, x_high + 1):
        x = at_x(10**power)
        parts += [rule(x, TOP, x, HEIGHT - BOTTOM), words(x, HEIGHT - BOTTOM + 18, label(power), "middle")]
    for power in range(y_low, y_high + 1):
        y = at_y(10**power)
        parts += [rule(LEFT, y, WIDTH - RIGHT, y), words(LEFT - 6, y + 4, label(power), "end")]
    ends = []
    for colour, (name, points) in zip(COLOURS, lines.items()):
        points = sorted(points)
        path = " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in points)
        wide = 3 if name == next(iter(lines)) else 1.5
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{wide}"/>')
        parts += [f'<circle cx="{at_x(x):.1f}" cy="{at_y(y):.1f}" r="3" fill="{colour}"/>' for x, y in points]
        x, y = points[-1]
        ends.append((at_y(y), at_x(x), name, colour))
    low = 0
    for y, x, name, colour in sorted(ends):
        low = max(y, low + LINE)
        parts.append(words(WIDTH - RIGHT + 8, low + 4, name, "start", 12, colour))
        parts.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{WIDTH - RIGHT + 5}" y2="{low:.1f}" stroke="{colour}" stroke-width="0.5"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def words(x, y, text, anchor, size=12, colour="#222"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}">{escape(text)}</text>'


def rule(x1, y1, x2, y2):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#ddd"/>'


def label(power):
    return f"{10**power:,}".replace(",", " ") if power >= 0 else f"{10.0**power:g}"
