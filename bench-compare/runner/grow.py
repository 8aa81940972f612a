"""The tables of docs/performance.md: each shows one figure of many workloads, or sums of figures. A table without
measurements says so."""

import plan
from report import conditions, grid, medians, ratio_to

NOTHING = "Not measured yet."
WAITERS = (2, 10, 100, 1_000, 10_000)
RTTS = (0, 1, 5, 50)


def cell(of, key, form="{:.3g}"):
    value = of.get(key) if of else None
    # Negative if the runtime freed more memory meanwhile than the workload used.
    return "-" if value is None or value < 0 else number(value, form)


def number(value, form="{:.3g}"):
    """Formats a number, large ones without an exponent."""
    return f"{value:.0f}" if abs(value) >= 1_000 else form.format(value)


def own(everything):
    """The results of `fairlock-bench own`, with the goals."""
    bench = everything.get("own", {}).get("bench")
    if not bench:
        return NOTHING
    us = lambda of, key: f"{of[key]:.1f}"  # noqa: E731
    ping, raw = bench["ping"], bench["raw_scripts"]
    rows = [
        ["PING", us(ping, "p50_us"), us(ping, "p99_us"), f"{ping['per_second']:.0f}", "", ""],
        ["raw scripts, pipelined", "-", "-", f"{raw['pairs_per_second']:.0f}", "", ""],
    ]
    for of in bench["uncontended"]:
        alone = of["tasks"] == 1
        rows.append([
            "1 task" if alone else f"{of['tasks']} tasks", us(of, "p50_us"), us(of, "p99_us"), f"{of['pairs_per_second']:.0f}",
            f"{of['of_two_pings']:.2f} x two PINGs" if alone else f"{of['of_raw_scripts']:.2f} of the raw scripts",
            "1.15" if alone else "0.85",
        ])  # fmt: skip
    for of in bench["contended"]:
        rows.append([
            f"{of['waiters']} waiters", us(of, "p50_us"), us(of, "p99_us"), f"{of['turns_per_second']:.0f}",
            f"{of['of_ping']:.2f} x PING", "1.5",
        ])  # fmt: skip
    return grid(["", "p50 us", "p99 us", "a second", "beside", "to reach"], rows)


def part_of(tasks, processes):
    if tasks < 10_000:
        return "one-process" if processes == 1 else "eight-processes"
    return "ten-thousand" if processes == 1 else "ten-thousand-in-eight"


def contended(everything, tasks, processes=1):
    """Maps rivals to figures, from the part that includes all rivals."""
    return medians(everything, part_of(tasks, processes), plan.contended(tasks, processes).name)


def by_waiters(everything, key, processes=1, form="{:.3g}"):
    of = {tasks: contended(everything, tasks, processes) for tasks in WAITERS}
    seen = [tasks for tasks in WAITERS if of[tasks]]
    rows = []
    for rival in plan.RIVALS:
        cells = [cell(of[tasks].get(rival.name), key, form) for tasks in seen]
        if any(text != "-" for text in cells):
            rows.append([rival.name, *cells])
    return grid(["rival", *(f"{tasks:,}".replace(",", " ") for tasks in seen)], rows) if rows else NOTHING


def summary(everything):
    one = medians(everything, "one-process", "uncontended-1")
    many = medians(everything, "one-process", "uncontended-64")
    short, long = contended(everything, 100), contended(everything, 1_000)
    rows = []
    for rival in plan.RIVALS:
        if rival.name not in one:
            continue
        at = lambda of, key, form="{:.3g}": cell(of.get(rival.name), key, form)  # noqa: B023, E731
        times = [
            ratio_to(everything, "one-process", name, rival.name) for name in ("contended-100", "contended-1000")
        ]
        rows.append([
            rival.name, at(one, "pair_p50_pings", "{:.2f}"), at(many, "rate"), at(short, "handovers_per_s"),
            *("-" if times[0] is None else number(times[0]),), at(long, "handovers_per_s"),
            *("-" if times[1] is None else number(times[1]),), at(short, "never_served"),
            at(short, "wait_max_over_expected", "{:.1f}"),
        ])  # fmt: skip
    heads = [
        "rival", "uncontended, p50 in PINGs", "64 locks, pairs/s", "hand-overs/s at 100 waiters",
        "fairlock's is x times", "at 1 000", "x times", "never served, of 100", "longest wait / expected",
    ]  # fmt: skip
    return grid(heads, rows) if rows else NOTHING


def clients(everything):
    rows = []
    for tasks in WAITERS[1:]:
        in_one, in_eight = contended(everything, tasks), contended(everything, tasks, 8)
        for rival in plan.RIVALS:
            of, other = in_one.get(rival.name), in_eight.get(rival.name)
            if of and other and rival.name in ("fairlock", "fairlock-plain", "fairlock-simple", "redisson-fair", "redisson-plain", "rslock", "redis-py"):
                rows.append([
                    f"{tasks}", rival.name, cell(of, "handovers_per_s"), cell(other, "handovers_per_s"),
                    cell(of, "scripts_each", "{:.2f}"), cell(other, "scripts_each", "{:.2f}"),
                    cell(of, "server_cpu_us_each", "{:.0f}"), cell(other, "server_cpu_us_each", "{:.0f}"),
                ])  # fmt: skip
    heads = ["waiters", "rival", "hand-overs/s, 1 process", "8 processes", "scripts a grant, 1", "8", "server us a grant, 1", "8"]
    return grid(heads, rows) if rows else NOTHING


def locks(everything):
    rows = []
    for n in (1, 1_000, 100_000):
        for name, of in medians(everything, "held", f"held-{n}").items():
            rows.append([
                f"{n}", name, cell(of, "taking_per_s"), cell(of, "reads_per_s", "{:.1f}"), cell(of, "commands_per_s", "{:.1f}"),
                cell(of, "server_cpu_percent", "{:.1f}"), cell(of, "client_cpu_percent", "{:.1f}"),
                cell(of, "server_bytes_a_lock", "{:.0f}") if n > 1 else "-",
                cell(of, "client_bytes_a_lock", "{:.0f}") if n > 1 else "-",
            ])  # fmt: skip
    after = medians(everything, "held-after-turns", "held-1000-after-turns")
    for name, of in after.items():
        rows.append([
            "1000, after turns", name, cell(of, "taking_per_s"), cell(of, "reads_per_s", "{:.1f}"), cell(of, "commands_per_s", "{:.1f}"),
            cell(of, "server_cpu_percent", "{:.1f}"), cell(of, "client_cpu_percent", "{:.1f}"), "-", "-",
        ])  # fmt: skip
    heads = ["locks", "rival", "taken/s", "reads/s", "commands/s", "server CPU, %", "client CPU, %", "server bytes a lock", "client bytes a lock"]
    return grid(heads, rows) if rows else NOTHING


def waiting(everything):
    rows = []
    for n in (1_000, 10_000):
        for name, of in medians(everything, "idle", f"idle-{n}").items():
            if "commands_per_s" not in of:
                continue
            rows.append([
                f"{n}", name, cell(of, "reads_per_s", "{:.2f}"), cell(of, "commands_per_s", "{:.1f}"),
                cell(of, "server_cpu_percent", "{:.1f}"), cell(of, "client_cpu_percent", "{:.1f}"), cell(of, "server_bytes_a_waiter", "{:.0f}"),
                cell(of, "client_bytes_a_waiter", "{:.0f}"), cell(of, "connections", "{:.0f}"),
            ])  # fmt: skip
    heads = ["waiters", "rival", "reads/s", "commands/s", "server CPU, %", "client CPU, %", "server bytes a waiter", "client bytes a waiter", "connections"]
    return grid(heads, rows) if rows else NOTHING


def distance(everything):
    blocks = []
    for title, workload, key in (
        ("Uncontended acquire and release, p50 in ms", "uncontended-1", "pair_p50_us"),
        ("From a release to the next one's having it, 10 waiters, p50 in ms", "contended-10", "handover_p50_us"),
        ("Hand-overs a second, 10 waiters", "contended-10", "handovers_per_s"),
    ):
        of = {rtt: medians(everything, "distance", f"rtt-{rtt}-{workload}") for rtt in RTTS}
        scale = 1e-3 if key.endswith("_us") else 1
        rows = []
        for rival in plan.RIVALS:
            values = [of[rtt].get(rival.name, {}).get(key) for rtt in RTTS]
            if any(value is not None for value in values):
                rows.append([rival.name, *("-" if value is None else number(value * scale) for value in values)])
        if rows:
            blocks.append(f"{title}:\n\n" + grid(["rival", *(f"+{rtt} ms" for rtt in RTTS)], rows))
    return "\n\n".join(blocks) or NOTHING


# The share of a server's one thread that may be used while it still answers at once; the rest is for bursts and
# other work.
SHARE = 0.5


def sizing(everything):
    """The capacity of one server, computed from its measured cost of each operation. No server was loaded so."""
    pairs = medians(everything, "one-process", "uncontended-64").get("fairlock", {}).get("server_cpu_us_each")
    turns = contended(everything, 100, 8).get("fairlock", {}).get("server_cpu_us_each")
    held = medians(everything, "held", "held-100000").get("fairlock", {})
    idle = medians(everything, "idle", "idle-10000").get("fairlock", {})
    if not (pairs and turns and held and idle):
        return NOTHING
    # A heartbeat every 2 s for each client and lock, whatever the number of its waiters, costs as much as a script.
    beat = medians(everything, "one-process", "uncontended-1").get("fairlock", {}).get("script_us") or pairs / 2
    us = SHARE * 1e6
    renewal = held["server_cpu_of_a_core"] * 1e6 / 100_000
    rows = [
        ["acquire and release, uncontended", f"{pairs:.0f} us", f"{us / pairs:.0f} a second"],
        ["a turn at a contended lock, 100 waiters in 8 processes", f"{turns:.0f} us", f"{us / turns:.0f} a second, of all locks together"],
        ["a held lock, renewed every 10 s", f"{renewal:.2f} us a second", f"{us / renewal:.0f} locks"],
        [
            "a client that waits for one lock, however many of its tasks do",
            f"0.5 scripts a second of {beat:.0f} us, and its PINGs",
            f"{us / (0.6 * beat):.0f} clients",
        ],
        ["memory of a held lock", f"{held['server_bytes_a_lock']:.0f} bytes", f"{2**30 / held['server_bytes_a_lock']:.0f} in a GiB"],
        ["memory of a waiter", f"{idle['server_bytes_a_waiter']:.0f} bytes", f"{2**30 / idle['server_bytes_a_waiter']:.0f} in a GiB"],
    ]  # fmt: skip
    return grid(["", "costs the server", f"so {100 * SHARE:.0f} % of one server's thread carry"], rows) + "\n\n" + fleet(
        pairs, turns, renewal, beat
    )


def fleet(pairs, turns, renewal, beat):
    """Example fleets; each client holds one lock, waits for another, and takes its turns."""
    rows = []
    for clients_, per_second in ((1_000, 1), (10_000, 0.1), (10_000, 1), (100_000, 0.1), (100_000, 1)):
        used = clients_ * (per_second * (pairs + turns) / 2 + renewal + 0.6 * beat) / 1e6
        servers = max(1, -(-used // SHARE))
        each = "one every 10 s" if per_second < 1 else "one a second"
        rows.append([f"{clients_:,}".replace(",", " "), each, f"{100 * used:.0f} %", f"{servers:.0f}"])
    text = (
        "Fleets, by the same arithmetic: each client holds one lock, waits for another, and acquires and releases "
        "as often as said, half of it contended. Locks are spread over the masters of a Cluster by name; none of this "
        "helps a single lock.\n\n"
    )
    return text + grid(["clients", "acquisitions of each", "of one server's thread", f"masters at {100 * SHARE:.0f} %"], rows)


def pictured(make, *plots):
    """Combines a table with its plots."""

    def both(everything):
        table = make(everything)
        shown = [f"![{title}](plots/{name}.svg)" for name, title in plots]
        return table if table == NOTHING else "\n\n".join([table, *shown])

    return both


def where(everything):
    if not everything:
        return NOTHING
    return conditions(everything) + "\n\nAll tables: [performance-tables.md](performance-tables.md)."


BLOCKS = {
    "conditions": where,
    "own": own,
    "summary": pictured(
        summary,
        ("handovers-in-1", "Hand-overs a second by waiters"),
        ("longest-wait-in-1", "Longest wait beside the expected one"),
    ),
    "waiters-rate": lambda everything: by_waiters(everything, "handovers_per_s"),
    "waiters-p50": pictured(
        lambda everything: by_waiters(everything, "handover_p50_us", form="{:.0f}"),
        ("latency-in-1", "From a release to the next one"),
    ),
    "waiters-server": pictured(
        lambda everything: by_waiters(everything, "server_cpu_us_each", form="{:.0f}"),
        ("server-cpu-in-1", "Server CPU a grant"),
    ),
    "clients": pictured(clients, ("handovers-in-8", "Hand-overs a second from eight processes")),
    "locks": locks,
    "waiting": waiting,
    "distance": pictured(distance, ("distance", "Hand-overs a second by distance")),
    "sizing": sizing,
}
