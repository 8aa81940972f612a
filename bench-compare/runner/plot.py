"""Line charts with two logarithmic axes, as SVG text."""

import math
from html import escape

WIDTH, HEIGHT = 820, 460
LEFT, RIGHT, TOP, BOTTOM = 76, 170, 46, 56
# fairlock in red, its variants in orange; the others in an order that keeps neighbours distinguishable.
OURS = {"fairlock": "#c0392b", "fairlock-plain": "#e67e22", "fairlock-simple": "#f5b041"}
COLOURS = ["#1f618d", "#5dade2", "#1e8449", "#82e0aa", "#6c3483", "#bb8fce", "#7d6608", "#d4ac0d", "#515a5a", "#a6acaf", "#117a65", "#884ea0", "#2e4053"]  # fmt: skip
# The minimum distance between names at the ends of lines.
LINE = 15
STEPS = (1, 2, 5)
# Above all values: where points are drawn whose value has no bound.
NEVER = "some were never served"
NEVER_HIGH = 26


def axis(values):
    """Returns the last 1, 2 or 5 below all values and the first above; whole decades waste half of the picture."""
    low, high = math.log10(min(values)), math.log10(max(values))
    marks = sorted(math.log10(step) + power for power in range(-6, 10) for step in STEPS)
    first = max(mark for mark in marks if mark <= low + 1e-9)
    last = min(mark for mark in marks if mark >= high - 1e-9)
    if last <= first:
        last = min(mark for mark in marks if mark > first + 1e-9)
    return first, last


def ticks(low, high, most):
    """Returns each 1, 2 and 5 if there is room for all, else the powers of ten."""
    steps = STEPS if 3 * (high - low) < most else (1,)
    all_of_them = [step * 10.0**power for power in range(-6, 10) for step in steps]
    return [value for value in all_of_them if low - 1e-9 <= math.log10(value) <= high + 1e-9]


def chart(title, below, beside, lines):
    """Draws a chart. `lines` maps names to points (x, y), all above zero. An infinite y stands for tasks that were
    never served, in a row of its own above all values."""
    xs = sorted({x for points in lines.values() for x, _ in points})
    ys = [y for points in lines.values() for _, y in points]
    (x_low, x_high), (y_low, y_high) = axis(xs), axis([y for y in ys if math.isfinite(y)] or [1])
    top = TOP if all(map(math.isfinite, ys)) else TOP + NEVER_HIGH

    def at_x(x):
        return LEFT + (math.log10(x) - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)

    def at_y(y):
        if math.isinf(y):
            return TOP
        return HEIGHT - BOTTOM - (math.log10(y) - y_low) / (y_high - y_low) * (HEIGHT - top - BOTTOM)

    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        words(LEFT, 24, title, "start", 15),
        words((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, below, "middle"),
        f'<g transform="translate(16 {middle:.1f}) rotate(-90)">{words(0, 0, beside, "middle")}</g>',
    ]
    # Only measured values have a mark on the x axis.
    for x in xs:
        parts += [rule(at_x(x), TOP, at_x(x), HEIGHT - BOTTOM), words(at_x(x), HEIGHT - BOTTOM + 18, label(x), "middle")]
    for y in ticks(y_low, y_high, 14):
        parts += [rule(LEFT, at_y(y), WIDTH - RIGHT, at_y(y)), words(LEFT - 6, at_y(y) + 4, label(y), "end")]
    if top != TOP:
        parts += [rule(LEFT, TOP, WIDTH - RIGHT, TOP), words(LEFT + 6, TOP - 5, NEVER, "start", 11, "#888")]
    ends, others = [], iter(COLOURS)
    for name, points in lines.items():
        colour = OURS.get(name) or next(others)
        points = sorted(points)
        path = " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in points)
        wide = 3 if name == "fairlock" else 1.5
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{wide}"/>')
        parts += [
            f'<circle cx="{at_x(x):.1f}" cy="{at_y(y):.1f}" r="3" fill="{"white" if math.isinf(y) else colour}" '
            f'stroke="{colour}"><title>{escape(name)}, {label(x)}: {NEVER if math.isinf(y) else f"{y:.4g}"}</title></circle>'
            for x, y in points
        ]
        x, y = points[-1]
        ends.append([at_y(y), at_x(x), name, colour])
    parts += names(sorted(ends))
    return "\n".join([*parts, "</svg>"]) + "\n"


def names(ends):
    """Places each name at the end of its line, as close as its neighbours allow, and always inside the picture."""
    places, low = [], TOP - LINE
    for y, *_ in ends:
        low = max(y, low + LINE)
        places.append(low)
    high = HEIGHT - BOTTOM + LINE
    for at in range(len(places) - 1, -1, -1):
        high = min(places[at], high - LINE)
        places[at] = high
    parts, edge = [], WIDTH - RIGHT
    for place, (y, x, name, colour) in zip(places, ends):
        parts.append(
            f'<path d="M{x + 4:.1f} {y:.1f}H{edge + 6}L{edge + 20} {place:.1f}" fill="none" stroke="{colour}" '
            'stroke-width="0.7" stroke-dasharray="2 2"/>'
        )
        parts.append(words(edge + 24, place + 4, name, "start", 12, colour))
    return parts


def words(x, y, text, anchor, size=12, colour="#222"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}">{escape(text)}</text>'


def rule(x1, y1, x2, y2):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#e0e0e0"/>'


def label(value):
    return f"{value:,.0f}".replace(",", " ") if value >= 1 else f"{value:g}"
