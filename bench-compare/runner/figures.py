"""The arithmetic: from rows to figures. Nothing here knows a process, a server or a clock."""

import math
import statistics
from collections import Counter, defaultdict

# A row: task, asked, acquired, began to release, released; nanoseconds of the machine's monotonic clock.
TASK, ASKED, ACQUIRED, RELEASING, RELEASED = range(5)


def rows_of(flat):
    return [tuple(flat[at : at + 5]) for at in range(0, len(flat), 5)]


def percentile(values, percent):
    """The smallest value that is not below `percent` of all; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def by_lock(rows, locks):
    grouped = defaultdict(list)
    for row in rows:
        grouped[row[TASK] % locks].append(row)
    return grouped


def overlaps(rows, locks):
    """How many holds began before an earlier one of the same lock had begun to end."""
    found = 0
    for group in by_lock(rows, locks).values():
        until = 0
        for row in sorted(group, key=lambda row: row[ACQUIRED]):
            if row[ACQUIRED] < until:
                found += 1
            until = max(until, row[RELEASING])
    return found


def lost_updates(rows, counter):
    """The counter is written before its row is noted, so it is never behind the rows unless two wrote at once."""
    return max(0, len(rows) - counter)


def handovers_ns(rows, begin, end):
    """From the beginning of a release to another task's having the lock, for one lock, in a window. A task that
    takes again what it has just let go is no hand-over."""
    ordered = sorted(rows, key=lambda row: row[ACQUIRED])
    return [
        max(0, later[ACQUIRED] - earlier[RELEASING])
        for earlier, later in zip(ordered, ordered[1:])
        if begin <= later[ACQUIRED] < end and later[TASK] != earlier[TASK]
    ]


def pairs_ns(rows, begin, end):
    """Uncontended: from asking until it is released again, without what was done in between."""
    return [
        (row[RELEASED] - row[RELEASING]) + (row[ACQUIRED] - row[ASKED])
        for row in rows
        if begin <= row[ACQUIRED] < end
    ]


def fairness(rows, tasks, started, begin, end):
    """Who got how much. One that waits still counts with the time it has waited: at the window's end, since its
    last release, or since the run began."""
    granted = [row for row in rows if begin <= row[ACQUIRED] < end]
    if not granted:
        return None
    counts = Counter(row[TASK] for row in granted)
    grants = sorted(counts.get(task, 0) for task in range(tasks))
    waits = [row[ACQUIRED] - row[ASKED] for row in granted]
    last = {}
    for row in rows:
        if row[ACQUIRED] < end:
            last[row[TASK]] = max(last.get(row[TASK], 0), row[RELEASED])
    waiting = [end - last.get(task, started) for task in range(tasks)]
    expected = tasks * (end - begin) / len(granted)
    mean = statistics.fmean(grants)
    return {
        "never_served": sum(task not in last for task in range(tasks)),
        "grants_least": grants[0],
        "grants_most": grants[-1],
        # Standard deviation over mean: 0 is perfect, 1 and more is a lottery.
        "grants_spread": statistics.pstdev(grants) / mean,
        "wait_max_over_expected": max(waits + waiting) / expected,
    }


def median_of(runs):
    """Of dictionaries with the same meaning, each figure's median; a figure that a run has not is left out."""
    keys = {key for run in runs for key in run}
    result = {}
    for key in sorted(keys):
        values = [run[key] for run in runs if isinstance(run.get(key), (int, float))]
        if values:
            result[key] = statistics.median(values)
    return result
