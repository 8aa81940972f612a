"""Compares the speed goals with the measurements; docs/testing.md, "Goals of speed", lists the same goals. If a
figure has several values, the worst counts."""

import statistics
from dataclasses import dataclass
from typing import Optional

import grow
import plan
import report


@dataclass(frozen=True)
class Goal:
    id: str
    text: str
    figure: str
    """A name that `found` gives."""
    bound: float
    at_most: bool = True
    explained: Optional[float] = None
    """Up to here docs/performance.md, "Where the time goes", explains why the goal is missed."""

    def verdict(self, figure):
        if figure is None:
            return "not measured"
        if self.holds(figure, self.bound):
            return "reached"
        return "explained" if self.explained and self.holds(figure, self.explained) else "MISSED"

    def holds(self, figure, bound):
        return figure <= bound if self.at_most else figure >= bound


GOALS = (
    Goal("N1", "an uncontended acquire and release takes 2 round trips", "round-trips", 2),
    Goal("N2", "it takes at most 1.15 x two PINGs (p50, same run)", "of-two-pings", 1.15, explained=1.6),
    Goal("N3", "64 tasks on different locks reach at least 0.85 of a raw pipelined client", "of-raw-scripts", 0.85, at_most=False),
    Goal("N4", "a hand-over takes at most 2.1 script calls", "scripts-each", 2.1),
    Goal("N5", "release to next, p50: at most 1.5 x PING", "of-ping", 1.5, explained=3),
    Goal("N6", "the rate at 10 000 waiters is at least 0.9 of the rate at 10", "of-rate-at-ten", 0.9, at_most=False),
    Goal("N7", "at least 8 x Redisson's fair lock at 100 waiters", "redisson-at-100", 8, at_most=False, explained=5),
    Goal("N8", "at least 50 x Redisson's fair lock at 1 000 waiters", "redisson-at-1000", 50, at_most=False, explained=12),
    Goal("N9", "an idle waiting client sends at most 0.6 commands a second", "idle-commands", 0.6),
    Goal("N10", "a script takes at most 0.1 ms of the server at 10 000 waiters", "script-ms", 0.1),
    Goal("N14", "one task with the simple lock has at least 0.85 of rslock's pairs a second", "simple-of-rslock-1", 0.85, at_most=False, explained=0.75),
    Goal("N15", "64 tasks with simple locks have at least 0.5 of them", "simple-of-rslock-64", 0.5, at_most=False),
    Goal("N16", "64 tasks with fair locks have at least 0.45 of redis-lock's pairs a second", "of-redis-lock-64", 0.45, at_most=False, explained=0.4),
    Goal("N17", "a fair lock's pair takes at most 1.25 x redis-lock's (1 task, p50)", "of-redis-lock-1", 1.25),
    Goal("N18", "beside the rivals, release to next takes at most 1.9 x PING (p50)", "pings-beside-rivals", 1.9, explained=2.3),
    Goal("N19", "plain and simple locks: a hand-over within a client takes at most 2.1 script calls", "scripts-each-unordered", 2.1),
    Goal("N20", "100 writers of a read-write lock reach at least 0.85 of the fair lock's hand-overs", "writers-of-fair", 0.85, at_most=False),
    Goal("N21", "a semaphore of 1, 10 and 1 000 permits reaches at least 0.85 of them", "permits-of-fair", 0.85, at_most=False),
    Goal("N22", "100 tasks in eight processes, 90 of them readers: a writer waits at most 1.5 x the expected time", "writer-waits", 1.5),
)


def judged(everything):
    """Returns a line for each goal, and whether one is missed or was not measured."""
    figures = {name: (value, text) for name, value, text in found(everything)}
    lines, bad = [], False
    for goal in GOALS:
        value, text = figures.get(goal.figure, (None, ""))
        verdict = goal.verdict(value)
        bad |= verdict in ("MISSED", "not measured")
        lines.append(f"{verdict:12} {goal.id:4} {goal.text}" + ("" if value is None else f": {value:.4g} ({text})"))
    return lines, bad


def found(everything):
    one = report.medians(everything, "one-process", "uncontended-1").get("fairlock", {})
    # Each script is one round trip; apart from an occasional PING nothing else is sent.
    trips = one.get("scripts_each")
    yield "round-trips", None if trips is None else round(trips, 2), "scripts for each pair, uncontended"
    yield from of_own(everything.get("own", {}).get("bench"))
    scripts = {}
    for processes in (1, 8):
        for tasks in grow.WAITERS:
            each = grow.contended(everything, tasks, processes).get("fairlock", {}).get("scripts_each")
            if each is not None:
                scripts[f"{tasks} in {processes}"] = each
    yield worst("scripts-each", scripts, "waiters in processes", max)
    yield from beside_simple_rivals(everything)
    yield from of_shares(everything)
    waits, calls = {}, {}
    for tasks in grow.WAITERS:
        of = grow.contended(everything, tasks)
        waits[str(tasks)] = of.get("fairlock", {}).get("handover_p50_pings")
        for kind in ("plain", "simple"):
            calls[f"{kind}, {tasks}"] = of.get(f"fairlock-{kind}", {}).get("scripts_each")
    yield worst("pings-beside-rivals", waits, "waiters in one process", max)
    yield worst("scripts-each-unordered", calls, "waiters in one process", max)
    for tasks in (100, 1_000):
        times = {}
        for processes in (1, 8):
            part, workload = grow.part_of(tasks, processes), plan.contended(tasks, processes).name
            times[f"in {processes}"] = report.ratio_to(everything, part, workload, "redisson-fair")
        yield worst(f"redisson-at-{tasks}", times, "processes; hand-overs beside RFairLock's", min)
    # Windows of 10 s with five, six or seven events each: their mean, rounded to the goal's precision.
    idle = [
        run["reads_per_s"]
        for run in everything.get("idle", {"runs": []})["runs"]
        if run["rival"] == "fairlock" and "reads_per_s" in run
    ]
    if idle:
        mean = statistics.fmean(idle)
        yield "idle-commands", round(mean, 1), f"{mean:.3f}, mean of {len(idle)} windows: one client, whose tasks all wait for one lock"
    script = {
        str(processes): grow.contended(everything, 10_000, processes).get("fairlock", {}).get("script_us") for processes in (1, 8)
    }
    script = {name: value / 1e3 for name, value in script.items() if value is not None}
    yield worst("script-ms", script, "processes, 10 000 waiters: the server's time for a script, mean", max)


def beside_simple_rivals(everything):
    """Yields the ratios of uncontended pairs, each of both figures of one round."""

    def of(workload, rival, key, ours):
        return report.ratio_to(everything, "one-process", workload, rival, key, ours)

    for tasks in (1, 64):
        beside = of(f"uncontended-{tasks}", "rslock", "rate", "fairlock-simple")
        yield f"simple-of-rslock-{tasks}", beside, "pairs a second, medians of the rounds' ratios"
    yield "of-redis-lock-64", of("uncontended-64", "redis-lock", "rate", report.OURS), "the same"
    yield "of-redis-lock-1", of("uncontended-1", "redis-lock", "pair_p50_us", report.OURS), "p50, the same"


def of_shares(everything):
    """Yields the figures of locks that several may hold, beside the fair lock's of the same round."""

    def beside(part, workload):
        return report.ratio_to(everything, part, workload, report.OURS, ours=report.OURS_SHARED[plan.part(part).shares])

    yield "writers-of-fair", beside("read-write", "writers-100"), "hand-overs a second, medians of the rounds' ratios"
    each = {str(of.permits): beside("semaphore", of.name) for of in plan.part("semaphore").workloads}
    yield worst("permits-of-fair", each, "permits; the same", min)
    mixed = report.medians(everything, "read-write", "readers-90-in-8").get("fairlock-rw", {})
    yield "writer-waits", mixed.get("wait_max_over_expected"), "median of the rounds"


def of_own(bench):
    """Yields the figures of `fairlock-bench own`, whose ratios are computed within its rounds."""
    if not bench:
        return
    for of in bench["uncontended"]:
        if of["tasks"] == 1:
            yield "of-two-pings", of["of_two_pings"], "fairlock-bench own, 1 task"
        else:
            yield "of-raw-scripts", of["of_raw_scripts"], f"fairlock-bench own, {of['tasks']} tasks"
    times = {str(of["waiters"]): of["of_ping"] for of in bench["contended"]}
    yield worst("of-ping", times, "waiters; fairlock-bench own", max)
    rates = {of["waiters"]: of["turns_per_second"] for of in bench["contended"]}
    if 10 in rates and 10_000 in rates:
        yield "of-rate-at-ten", rates[10_000] / rates[10], f"fairlock-bench own: {rates[10_000]:.0f} and {rates[10]:.0f} turns a second"


def worst(name, values, text, which):
    values = {key: value for key, value in values.items() if value is not None}
    told = ", ".join(f"{key}: {value:.3g}" for key, value in values.items())
    return name, which(values.values()) if values else None, f"{told} ({text})"
