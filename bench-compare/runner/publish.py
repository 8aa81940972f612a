"""Writes tables and plots next to the data, and into docs/ on request."""

import math
import os
import re
import sys

import glance
import grow
import plan
import plot
import report

PAGE = "docs/performance.md"
TABLES = "docs/performance-tables.md"
PLOTS = "docs/plots"
BLOCK = re.compile(r"(<!-- measured: ([a-z0-9-]+) -->\n).*?(<!-- end of what was measured -->)", re.DOTALL)

LONGEST_WAIT = "wait_max_over_expected"

CURVES = [
    ("handovers", "handovers_per_s", "Hand-overs a second"),
    ("latency", "handover_p50_us", "Hand-over p50, us"),
    ("longest-wait", LONGEST_WAIT, "Longest wait / expected wait"),
    ("server-cpu", "server_cpu_us_each", "Server CPU a grant, us"),
    ("client-cpu", "client_cpu_us_each", "Client CPU a grant, us"),
]


def render(out, into_docs):
    everything = report.load(out)
    if not everything:
        sys.exit(f"nothing was measured in {out}")
    tables = (
        "# fairlock beside its rivals: all tables\n\nWritten by `scripts/bench-compare --render`; what each column means: "
        "[bench-compare/README.md](../bench-compare/README.md).\n\n"
        f"{report.conditions(everything)}\n\n{report.tables(everything)}\n"
    )
    with open(os.path.join(out, "tables.md"), "w") as file:
        file.write(tables)
    drawn = plots(everything)
    for name, svg in drawn.items():
        with open(os.path.join(out, name), "w") as file:
            file.write(svg)
    print(f"written: {out}/tables.md and {len(drawn)} plots")
    missing = [part.name for part in plan.PARTS if len(everything.get(part.name, {"rounds": []})["rounds"]) < part.rounds]
    if missing:
        print(f"not measured, or with fewer rounds: {', '.join(missing)}")
    if into_docs:
        with open(TABLES, "w") as file:
            file.write(tables)
        os.makedirs(PLOTS, exist_ok=True)
        for name, svg in drawn.items():
            with open(os.path.join(PLOTS, name), "w") as file:
                file.write(svg)
        with open(PAGE) as file:
            text = file.read()
        with open(PAGE, "w") as file:
            file.write(filled(text, everything))
        print(f"written: {PAGE}, {TABLES}, {PLOTS}")
        glance.write(PAGE)


def filled(text, everything):
    """Returns the page with its blocks filled in; an unknown block is an error in the page."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{grow.BLOCKS[found[2]](everything)}\n\n{found[3]}", text)


def plots(everything):
    """Returns a map of file names to SVG."""
    drawn = {}
    for name, key, title in CURVES:
        for processes in (1, 8):
            lines = curves(everything, key, processes)
            if lines:
                where = "all in one process" if processes == 1 else f"in {processes} processes"
                drawn[f"{name}-in-{processes}.svg"] = plot.chart(f"{title}: {where}", "tasks that want one lock", title, lines)
    lines = by_distance(everything)
    if lines:
        below = "round-trip time added, ms (0 is drawn at 0.1)"
        drawn["distance.svg"] = plot.chart("Hand-overs a second by distance: 10 waiters", below, "hand-overs a second", lines)
    return drawn


def curves(everything, key, processes):
    """Maps each rival to its points (waiters, median of `key`)."""
    result = {}
    for tasks in grow.WAITERS:
        for rival, of in grow.contended(everything, tasks, processes).items():
            # The window cuts off the wait of tasks that are never served: relative to few grants it looks short.
            starves = key == LONGEST_WAIT and of.get("never_served")
            if of.get(key):
                result.setdefault(rival, []).append((tasks, math.inf if starves else of[key]))
    # A line needs two points.
    return {rival.name: result[rival.name] for rival in plan.RIVALS if len(result.get(rival.name, [])) > 1}


def by_distance(everything):
    result = {}
    for rtt in grow.RTTS:
        for rival, of in report.medians(everything, "distance", f"rtt-{rtt}-contended-10").items():
            if of.get("handovers_per_s"):
                result.setdefault(rival, []).append((max(rtt, 0.1), of["handovers_per_s"]))
    return {rival: points for rival, points in result.items() if len(points) > 1}
