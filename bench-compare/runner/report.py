"""Turns runs into Markdown tables. A figure is the median of the rounds; a ratio is the median of the ratios within
each round, because the machine's load differs between rounds."""

import json
import os
import statistics
from collections import defaultdict

import figures
import plan

OURS = "fairlock"
# On host files, compare the commands, since flock is a command.
OURS_ON_HOST = "fairlock-run"

# What several may hold is compared with what they may.
OURS_SHARED = {"readers": "fairlock-rw", "permits": "fairlock-semaphore"}

# Heading, key, and format.
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
# Beside readers: who was handed what by whom cannot be told, and the wait is a writer's.
MIXED = [column for column in TURNS if "handover" not in column[1]]
COSTS = [
    ("scripts", "scripts_each", "{:.2f}"),
    ("commands", "commands_each", "{:.2f}"),
    ("us a script", "script_us", "{:.1f}"),
    ("server us", "server_cpu_us_each", "{:.0f}"),
    ("client us", "client_cpu_us_each", "{:.0f}"),
    ("bytes", "bytes_each", "{:.0f}"),
]
GIVING_UP = [("refusals", "gave_up", "{:.0f}"), ("refused after p50 us", "gave_up_p50_us", "{:.0f}"), ("p99 us", "gave_up_p99_us", "{:.0f}")]
BROKEN = [("overlaps", "overlaps", "{:.0f}"), ("lost updates", "lost_updates", "{:.0f}")]
ERRORS = [("errors", "errors", "{:.0f}")]


def watched(what):
    return [
        ("reads/s", "reads_per_s", "{:.2f}"),
        ("commands/s", "commands_per_s", "{:.1f}"),
        (f"a {what}", f"commands_per_s_a_{what}", "{:.3f}"),
        ("bytes/s", "bytes_per_s", "{:.0f}"),
        ("server CPU, % of a core", "server_cpu_percent", "{:.1f}"),
        ("client CPU, % of a core", "client_cpu_percent", "{:.1f}"),
        (f"server memory a {what}", f"server_bytes_a_{what}", "{:.0f}"),
        (f"client memory a {what}", f"client_bytes_a_{what}", "{:.0f}"),
        ("connections", "connections", "{:.0f}"),
    ]


def columns(part, workload, rivals):
    if workload.shape == "idle":
        return watched("waiter")
    if workload.shape == "held":
        return [("taken/s", "taking_per_s", "{:.0f}"), *watched("lock")]
    has = lambda key: any(run.get(key) for runs in rivals.values() for run in runs)  # noqa: E731
    extra = GIVING_UP if workload.wait_ms else []
    # Columns that are empty for all rivals are left out.
    extra = extra + [column for column in BROKEN + ERRORS if has(column[1])]
    costs = [column for column in COSTS if column[1] == "client_cpu_us_each"] if part.store == "host" else COSTS
    return (PAIRS if workload.is_pairs else MIXED if workload.readers else TURNS) + costs + extra


def write_json(path, data):
    """Writes the file atomically, because the process may be killed at any moment."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path + ".new", "w") as file:
        json.dump(data, file, indent=1)
    os.replace(path + ".new", path)


def load(out):
    """Returns all measurements: a map of part names to data, in the order of the plan."""
    everything = {}
    for part in plan.PARTS:
        path = os.path.join(out, f"{part.name}.json")
        if os.path.exists(path):
            with open(path) as file:
                data = json.load(file)
            if data["rounds"]:
                everything[part.name] = data
    return everything


def grouped(data):
    """Groups the runs by workload, then by rival, in the order of the rounds."""
    result = defaultdict(lambda: defaultdict(list))
    for run in data["runs"]:
        ping = data["rounds"][run["round"]]["yardstick"]["ping_p50_us"]
        run = {**run}
        if "pair_p50_us" in run:
            run["pair_p50_pings"] = run["pair_p50_us"] / ping
        if "handover_p50_us" in run:
            run["handover_p50_pings"] = run["handover_p50_us"] / ping
        for side in ("server", "client"):
            if f"{side}_cpu_of_a_core" in run:
                run[f"{side}_cpu_percent"] = 100 * run[f"{side}_cpu_of_a_core"]
        result[run["workload"]][run["rival"]].append(run)
    return result


def medians(everything, part, workload):
    """Maps each rival to its figures."""
    data = everything.get(part)
    runs = grouped(data).get(workload, {}) if data else {}
    return {rival.name: figures.median_of(runs[rival.name]) for rival in plan.RIVALS if rival.name in runs}


def ratio(ours, theirs, key):
    """Returns the median over the rounds of ours divided by theirs."""
    both = {run["round"]: run.get(key) for run in theirs if run.get(key)}
    ratios = [run[key] / both[run["round"]] for run in ours if run.get(key) and run["round"] in both]
    return statistics.median(ratios) if ratios else None


def ratio_to(everything, part, workload, rival, key="handovers_per_s", ours=OURS):
    runs = grouped(everything[part]).get(workload, {}) if part in everything else {}
    return ratio(runs.get(ours, []), runs.get(rival, []), key)


def grid(headings, rows):
    lines = ["| " + " | ".join(headings) + " |", "|---" * len(headings) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def table(part, workload, rivals):
    wanted = columns(part, workload, rivals)
    key = "rate" if workload.is_pairs or workload.readers else "handovers_per_s"
    headings = ["rival", *(heading for heading, _, _ in wanted)]
    if workload.shape == "turns":
        headings.insert(1, f"{OURS_SHARED.get(part.shares, OURS)}'s is x times")
    rows, told = [], defaultdict(list)
    ours = rivals.get(OURS_SHARED.get(part.shares, OURS_ON_HOST if part.store == "host" else OURS), [])
    for rival in plan.RIVALS:
        runs = rivals.get(rival.name)
        if not runs:
            continue
        of = figures.median_of(runs)
        cells = [form.format(of[name]) if name in of else "-" for _, name, form in wanted]
        if workload.shape == "turns":
            times = ratio(ours, runs, key)
            cells.insert(0, "-" if times is None else f"{times:.3g}")
        rows.append([rival.name, *cells])
        for text in dict.fromkeys(text for run in runs for text in run["told"]):
            told[text].append(rival.name)
    notes = "".join(f"\n- {', '.join(names)}: {text}" for text, names in told.items())
    return f"### {workload.name}\n\n{grid(headings, rows)}" + ("\n" + notes if notes else "")


def versions(everything):
    hellos = {run["rival"]: run["hello"] for data in everything.values() for run in data["runs"] if "hello" in run}
    ordered = [(rival.name, hellos[rival.name]) for rival in plan.RIVALS if rival.name in hellos]
    return ", ".join(f"{name} {hello['version']} ({hello['runs_on']})" for name, hello in ordered)


def conditions(everything):
    """Describes where and when each part was measured; parts may be from different days."""
    machines = {json.dumps({**data["machine"], "commit": ""}, sort_keys=True): data["machine"] for data in everything.values()}
    lines = [
        f"{machine['processors']}, {machine['memory_gib']} GiB, Linux {machine['kernel']}, {machine['server']} on the "
        "loopback interface; clients and server share the processors."
        for machine in machines.values()
    ]
    yardsticks = figures.median_of([one["yardstick"] for data in everything.values() for one in data["rounds"]])
    if yardsticks:
        lines.append(
            f"PING p50 {yardsticks['ping_p50_us']:.1f} us, p99 {yardsticks['ping_p99_us']:.1f} us; "
            f"{yardsticks['evalsha_per_s']:.0f} small EVALSHA a second from one pipelined client (medians of all rounds)."
        )
    lines += ["", versions(everything) + ".", ""] if versions(everything) else [""]
    rows = []
    for name, data in everything.items():
        rounds = data["rounds"]
        beside = [run["others"] + run["steal"] for run in data["runs"] if "others" in run]
        rows.append([
            name,
            f"`{data['settings']['command']}`",
            data["machine"]["commit"],
            rounds[0]["at"],
            str(len(rounds)),
            f"{sum(one['took_s'] for one in rounds) / 60:.1f}",
            f"{100 * statistics.median(beside):.1f} / {100 * max(beside):.0f}" if beside else "-",
        ])  # fmt: skip
    heads = ["part", "command", "commit", "begun (UTC)", "rounds", "minutes", "other programs, % of a core: median / worst window"]
    lines.append(grid(heads, rows))
    return "\n".join(lines)


def tables(everything):
    """Returns all tables, part by part."""
    parts = []
    for part in plan.PARTS:
        if part.name not in everything:
            continue
        if not part.workloads:
            continue
        parts.append(f"## {part.name}: {part.about}")
        of = grouped(everything[part.name])
        parts += [table(part, workload, of[workload.name]) for workload in part.workloads if workload.name in of]
    return "\n\n".join(parts)
