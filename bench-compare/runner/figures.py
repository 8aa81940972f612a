"""The arithmetic: computes figures from rows, without processes, servers or clocks."""

import heapq
import math
import statistics
from collections import Counter, defaultdict

# A row: task, asked, acquired, began to release, released; in nanoseconds of the machine's monotonic clock.
TASK, ASKED, ACQUIRED, RELEASING, RELEASED = range(5)


def rows_of(flat):
    return [tuple(flat[at : at + 5]) for at in range(0, len(flat), 5)]


def percentile(values, percent):
    """Returns the smallest value that at least `percent` of all values do not exceed; None if there are none."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def by_lock(rows, locks):
    grouped = defaultdict(list)
    for row in rows:
        grouped[row[TASK] % locks].append(row)
    return grouped


def reads(task, readers):
    """Whether a task reads, if so many of 100 do."""
    return task % 100 < readers


def overlaps(rows, locks, readers=0, permits=1):
    """Counts the holds that began where those of the same lock that had not started their release left no room: a
    writer beside anybody, anybody beside a writer, or one more than there are permits."""
    # A reader takes one of as many as there can be, a writer all of them.
    limit = len(rows) if readers else permits
    found = 0
    for group in by_lock(rows, locks).values():
        present, used = [], 0
        for row in sorted(group, key=lambda row: row[ACQUIRED]):
            while present and present[0][0] <= row[ACQUIRED]:
                used -= heapq.heappop(present)[1]
            takes = limit if readers and not reads(row[TASK], readers) else 1
            found += used + takes > limit
            used += takes
            heapq.heappush(present, (row[RELEASING], takes))
    return found


def lost_updates(rows, counter):
    """Counts lost updates: the counter is written before the row is noted, so only simultaneous writes put it behind."""
    return max(0, len(rows) - counter)


def handovers_ns(rows, begin, end, permits=1):
    """Times from the start of a release to the next acquisition by another task, for one lock, in a window. A
    task that reacquires the lock it has just released is not a hand-over. With several permits, the n-th release
    makes room for the acquisition that is as many after the n-th as there are permits."""
    released = sorted(rows, key=lambda row: row[RELEASING])
    acquired = sorted(rows, key=lambda row: row[ACQUIRED])
    return [
        max(0, later[ACQUIRED] - earlier[RELEASING])
        for earlier, later in zip(released, acquired[permits:])
        if begin <= later[ACQUIRED] < end and later[TASK] != earlier[TASK]
    ]


def pairs_ns(rows, begin, end):
    """Uncontended pairs: the duration of acquisition plus release, without the time in between."""
    return [
        (row[RELEASED] - row[RELEASING]) + (row[ACQUIRED] - row[ASKED])
        for row in rows
        if begin <= row[ACQUIRED] < end
    ]


def fairness(rows, tasks, started, begin, end, readers=0):
    """How grants and waits are distributed. A task still waiting at the end of the window counts with its time
    since its last release, or since the run began. Beside readers, the longest wait is that of a writer."""
    granted = [row for row in rows if begin <= row[ACQUIRED] < end]
    if not granted:
        return None
    counts = Counter(row[TASK] for row in granted)
    grants = sorted(counts.get(task, 0) for task in range(tasks))
    waits = [row[ACQUIRED] - row[ASKED] for row in granted if not reads(row[TASK], readers)]
    last = {}
    for row in rows:
        if row[ACQUIRED] < end:
            last[row[TASK]] = max(last.get(row[TASK], 0), row[RELEASED])
    waiting = [end - last.get(task, started) for task in range(tasks) if not reads(task, readers)]
    expected = tasks * (end - begin) / len(granted)
    mean = statistics.fmean(grants)
    return {
        "never_served": sum(task not in last for task in range(tasks)),
        "grants_least": grants[0],
        "grants_most": grants[-1],
        # Standard deviation over mean: 0 is perfect, 1 or more is random.
        "grants_spread": statistics.pstdev(grants) / mean,
        "wait_max_over_expected": max(waits + waiting) / expected,
    }


def median_of(runs):
    """Returns each figure's median over several runs; runs without the figure are ignored."""
    keys = {key for run in runs for key in run}
    result = {}
    for key in sorted(keys):
        values = [run[key] for run in runs if isinstance(run.get(key), (int, float))]
        if values:
            result[key] = statistics.median(values)
    return result
