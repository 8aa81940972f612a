"""From runs to JSON, Markdown tables and plots. A figure is the median of the rounds; a ratio the median of the
ratios within each round, since the machine is never the same in two."""

import json
import os
import statistics
from collections import defaultdict

import figures
import plan
import plot

OURS = "fairlock"
# On the host's own files: the commands, since flock is one.
OURS_ON_HOST = "fairlock-run"

# Heading, key, and how it is written.
PAIRS = [
    ("pairs/s", "rate", "{:.0f}"),
    ("p50 us", "pair_p50_us", "{:.0f}"),
    ("p50 in PINGs", "pair_p50_pings", "{:.2f}"),
    ("p99 us", "pair_p99_us", "{:.0f}"),
    ("max us", "pair_max_us", "{:.0f}"),
]
TURNS = [
    ("grants/s", "rate", "{:.4g}"),
    ("hand-overs/s", "handovers_per_s", "{:.4g}"),
    ("p50 us", "handover_p50_us", "{:.0f}"),
    ("p99 us", "handover_p99_us", "{:.0f}"),
    ("max us", "handover_max_us", "{:.0f}"),
    ("never served", "never_served", "{:.0f}"),
    ("grants of a task, least", "grants_least", "{:.0f}"),
    ("most", "grants_most", "{:.0f}"),
    ("spread", "grants_spread", "{:.2f}"),
    ("longest wait / expected", "wait_max_over_expected", "{:.1f}"),
]
COSTS = [
    ("scripts", "scripts_each", "{:.2f}"),
    ("commands", "commands_each", "{:.2f}"),
    ("server us", "server_cpu_us_each", "{:.0f}"),
    ("client us", "client_cpu_us_each", "{:.0f}"),
    ("bytes", "bytes_each", "{:.0f}"),
]
GIVING_UP = [("refusals", "gave_up", "{:.0f}"), ("refused after p50 us", "gave_up_p50_us", "{:.0f}"), ("p99 us", "gave_up_p99_us", "{:.0f}")]
GUARDED = [("overlaps", "overlaps", "{:.0f}"), ("lost updates", "lost_updates", "{:.0f}")]


def watched(what):
    return [
        ("commands/s", "commands_per_s", "{:.1f}"),
        (f"a {what}", f"commands_per_s_a_{what}", "{:.3f}"),
        ("bytes/s", "bytes_per_s", "{:.0f}"),
        ("server CPU, % of a core", "server_cpu_percent", "{:.1f}"),
        ("client CPU, % of a core", "client_cpu_percent", "{:.1f}"),
        (f"server memory a {what}", f"server_bytes_a_{what}", "{:.0f}"),
        (f"client memory a {what}", f"client_bytes_a_{what}", "{:.0f}"),
        ("connections", "connections", "{:.0f}"),
    ]


def columns(workload):
    if workload.shape == "idle":
        return watched("waiter")
    if workload.shape == "held":
        return [("taken/s", "taking_per_s", "{:.0f}"), *watched("lock")]
    costs = [column for column in COSTS if column[0] == "client us"] if workload.host else COSTS
    if workload.locks is None or workload.tasks == 1:
        return PAIRS + costs
    extra = (GIVING_UP if workload.wait_ms else []) + (GUARDED if workload.counter else [])
    return TURNS + costs + extra


def grouped(data):
    """Workload, then rival: its runs, in the order of the rounds."""
    result = defaultdict(lambda: defaultdict(list))
    for run in data["runs"]:
        ping = data["yardsticks"][run["round"]]["ping_p50_us"]
        run = {**run}
        if "pair_p50_us" in run:
            run["pair_p50_pings"] = run["pair_p50_us"] / ping
        for side in ("server", "client"):
            if f"{side}_cpu_of_a_core" in run:
                run[f"{side}_cpu_percent"] = 100 * run[f"{side}_cpu_of_a_core"]
        result[run["workload"]][run["rival"]].append(run)
    return result


def ratio(ours, theirs, key):
    """How many times theirs ours is, round by round."""
    both = {run["round"]: run.get(key) for run in theirs if run.get(key)}
    ratios = [run[key] / both[run["round"]] for run in ours if run.get(key) and run["round"] in both]
    return statistics.median(ratios) if ratios else None


def table(workload, rivals):
    wanted = columns(workload)
    key = "handovers_per_s" if TURNS[1] in wanted else "rate"
    headings = ["rival", *(heading for heading, _, _ in wanted)]
    if workload.shape == "turns":
        headings.insert(2, "fairlock's is x times")
    lines = [f"### {workload.name}", "", "| " + " | ".join(headings) + " |", "|---" * len(headings) + "|"]
    told = []
    ours = rivals.get(OURS_ON_HOST if workload.host else OURS, [])
    for rival in plan.RIVALS:
        runs = rivals.get(rival.name)
        if not runs:
            continue
        medians = figures.median_of(runs)
        cells = [form.format(medians[name]) if name in medians else "-" for _, name, form in wanted]
        if workload.shape == "turns":
            times = ratio(ours, runs, key)
            cells.insert(1, "-" if times is None else f"{times:.3g}")
        lines.append("| " + " | ".join([rival.name, *cells]) + " |")
        for text in dict.fromkeys(text for run in runs for text in run["told"]):
            told.append(f"- {rival.name}: {text}")
    return "\n".join(lines + ([""] + told if told else []))


def versions(data):
    hellos = {run["rival"]: run["hello"] for run in data["runs"] if "hello" in run}
    return ", ".join(f"{name} {hello['version']} ({hello['runs_on']})" for name, hello in hellos.items())


def text(data):
    yardsticks = figures.median_of(data["yardsticks"])
    machine = data["machine"]
    parts = [
        "# fairlock beside its rivals",
        "",
        f"`scripts/bench-compare` at {machine['commit']}, {machine['date']}. {machine['processors']}, "
        f"{machine['memory_gib']} GiB, Linux {machine['kernel']}, {machine['server']} on the loopback interface; "
        f"load at the start {machine['load_at_start']:.2f}. "
        f"{len(data['yardsticks'])} interleaved rounds, windows of {data['window_s']:g} s.",
        "",
        versions(data) + ".",
        "",
        f"PING p50 {yardsticks['ping_p50_us']:.1f} us, p99 {yardsticks['ping_p99_us']:.1f} us; "
        f"{yardsticks['evalsha_per_s']:.0f} small EVALSHA a second from one pipelined client.",
        "",
        "What each column means: bench-compare/README.md.",
    ]
    everything = grouped(data)
    for workload in plan.WORKLOADS:
        if workload.name in everything:
            parts += ["", table(workload, everything[workload.name])]
    return "\n".join(parts) + "\n"


def curves(data, key, processes):
    """Rival: points (waiters, median of `key`)."""
    everything = grouped(data)
    result = {}
    for rival in plan.RIVALS:
        points = []
        for workload in plan.WORKLOADS:
            if not workload.name.startswith("contended-") or workload.processes != processes:
                continue
            medians = figures.median_of(everything.get(workload.name, {}).get(rival.name, []))
            if medians.get(key):
                points.append((workload.tasks, medians[key]))
        if points:
            result[rival.name] = points
    return result


PLOTS = [
    ("handovers", "handovers_per_s", "hand-overs a second"),
    ("latency", "handover_p50_us", "hand-over p50, us"),
    ("longest-wait", "wait_max_over_expected", "longest wait / expected wait"),
    ("server-cpu", "server_cpu_us_each", "server CPU a grant, us"),
]


def write(data, out):
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "results.json"), "w") as file:
        json.dump(data, file, indent=1)
    with open(os.path.join(out, "tables.md"), "w") as file:
        file.write(text(data))
    for name, key, title in PLOTS:
        for processes in (1, 8):
            lines = curves(data, key, processes)
            if lines:
                where = "one process" if processes == 1 else f"{processes} processes"
                with open(os.path.join(out, f"{name}-in-{processes}.svg"), "w") as file:
                    file.write(plot.chart(f"{title}, {where}", "waiters on one lock", lines))
