"""The figures that the numbers to reach are about, as scripts/accept/speed reads them: name, figure, what it is, with
tabs between. What was not measured has no line. The worst counts where there are several."""

import statistics

import grow
import plan
import report


def lines(everything):
    return [f"{name}\t{value:.4g}\t{text}" for name, value, text in found(everything) if value is not None]


def found(everything):
    whole = [part.name for part in plan.PARTS if len(everything.get(part.name, {"rounds": []})["rounds"]) >= part.rounds]
    yield "parts", len(whole), ", ".join(whole)
    one = report.medians(everything, "one-process", "uncontended-1").get("fairlock", {})
    # Each script is a round trip, and nothing else goes out but a PING now and then.
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
    for tasks in (100, 1_000):
        times = {}
        for processes in (1, 8):
            part, workload = grow.part_of(tasks, processes), plan.contended(tasks, processes).name
            times[f"in {processes}"] = report.ratio_to(everything, part, workload, "redisson-fair")
        yield worst(f"redisson-at-{tasks}", times, "processes; hand-overs beside RFairLock's", min)
    # Windows of 10 s in which five, six or seven things happen: their mean, to the digit that the goal has.
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


def of_own(bench):
    """`fairlock bench`: its ratios are those of its rounds."""
    if not bench:
        return
    for of in bench["uncontended"]:
        if of["tasks"] == 1:
            yield "of-two-pings", of["of_two_pings"], "fairlock bench, 1 task"
        else:
            yield "of-raw-scripts", of["of_raw_scripts"], f"fairlock bench, {of['tasks']} tasks"
    times = {str(of["waiters"]): of["of_ping"] for of in bench["contended"]}
    yield worst("of-ping", times, "waiters; fairlock bench", max)
    rates = {of["waiters"]: of["turns_per_second"] for of in bench["contended"]}
    if 10 in rates and 10_000 in rates:
        yield "of-rate-at-ten", rates[10_000] / rates[10], f"fairlock bench: {rates[10_000]:.0f} and {rates[10]:.0f} turns a second"


def worst(name, values, text, which):
    values = {key: value for key, value in values.items() if value is not None}
    told = ", ".join(f"{key}: {value:.3g}" for key, value in values.items())
    return name, which(values.values()) if values else None, f"{told} ({text})"
