"""One rival, one workload, one round: processes are started, watched for a window, and ended."""

import itertools
import time

import figures
from driver import Driver, Silent

# A JVM that starts beside seven others, on two cores.
HELLO_S = 120
BEGIN_S = 60
STOP_S = 60
# Longer than any run: who gets the lock keeps it.
FOR_EVER_MS = 3_600_000

SCRIPTS = ("eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro")
names = itertools.count()


def sample(server, drivers):
    info = server.info()
    return {
        "at_ns": time.monotonic_ns(),
        "calls": {key[6:]: value for key, value in info.items() if key.startswith("calls:")},
        "server_cpu_s": float(info["used_cpu_user"]) + float(info["used_cpu_sys"]),
        "server_memory": int(info["used_memory"]),
        "bytes": int(info["total_net_input_bytes"]) + int(info["total_net_output_bytes"]),
        "clients": int(info["connected_clients"]),
        "client_cpu_s": sum(driver.cpu_s() for driver in drivers),
        "client_memory": sum(driver.memory() for driver in drivers),
    }


def spent(before, after, again):
    """What happened between two samples. A third, right after the second, shows what looking costs."""
    looked = again["bytes"] - after["bytes"]
    calls = {name: count - before["calls"].get(name, 0) for name, count in after["calls"].items()}
    calls.pop("info", None)
    return {
        "scripts": sum(calls.get(name, 0) for name in SCRIPTS),
        "commands": sum(calls.values()),
        "server_cpu_s": after["server_cpu_s"] - before["server_cpu_s"],
        "client_cpu_s": after["client_cpu_s"] - before["client_cpu_s"],
        "bytes": max(0, after["bytes"] - before["bytes"] - looked),
    }


def tell(drivers, words, wanted, seconds):
    """The same line to each; the answers. `words` may depend on the process; None: they speak unasked."""
    for at, driver in enumerate(drivers if words else []):
        driver.send(words(at) if callable(words) else words)
    until = time.monotonic() + seconds
    try:
        answers = [driver.answer(max(1, until - time.monotonic())) for driver in drivers]
    except Silent as silent:
        raise Silent(f"stopped after {seconds} s, waiting for `{wanted}`: {silent}") from None
    for answer in answers:
        if wanted not in answer:
            raise Silent(f"an answer without {wanted}")
    return answers


def run_line(name, first, tasks, locks, workload, counter="-"):
    hold = FOR_EVER_MS if workload.shape == "idle" else workload.hold_ms
    return (
        f"run name={name} first={first} tasks={tasks} locks={locks} "
        f"wait_ms={workload.wait_ms} hold_ms={hold} counter={counter}"
    )


def shares(tasks, processes):
    """How many tasks each process has, and the number of its first."""
    each = [tasks // processes + (at < tasks % processes) for at in range(processes)]
    firsts = [0, *itertools.accumulate(each)][:-1]
    return list(zip(firsts, each))


def warm_up(drivers, seconds):
    """Two tasks in each process, on locks of no interest, in both ways that locks are used."""
    for locks in (1, 2):
        line = f"run name=warm-{next(names)}-PID first=0 tasks=2 locks={locks} wait_ms=0 hold_ms=0 counter=-"
        tell(drivers, lambda at: line.replace("PID", str(at)), "running", BEGIN_S)
        time.sleep(seconds / 2)
        tell(drivers, "stop", "rows", STOP_S)


def measure(server, command, rival, workload, window_s, smoke):
    """A dictionary of figures; `told` says in words what could not be measured, or went wrong."""
    drivers = []
    result = {"told": []}
    try:
        for _ in range(workload.processes):
            drivers.append(Driver(command, server.host_url if rival.host else server.url))
        result["hello"] = tell(drivers, None, "hello", HELLO_S)[0]["hello"]
        if workload.shape == "turns" or workload.warm:
            warm_up(drivers, min(rival.warm_s, 0.4) if smoke else rival.warm_s)
        before_memory = sample(server, drivers)
        {"turns": turns, "idle": idle, "held": held}[workload.shape](
            server, drivers, workload, window_s, smoke, before_memory, result
        )
    except Silent as silent:
        result["told"].append(str(silent))
    finally:
        for driver in drivers:
            driver.kill()
        server.clear()
    return result


def turns(server, drivers, workload, window_s, smoke, before_memory, result):
    name, locks = f"bench-{next(names)}", workload.locks or workload.tasks
    counter = f"counter-{name}" if workload.counter else "-"
    places = shares(workload.tasks, len(drivers))
    started = time.monotonic_ns()
    tell(drivers, lambda at: run_line(name, *places[at], locks, workload, counter), "running", BEGIN_S)
    time.sleep(0.2 if smoke else workload.settle_s)
    before = sample(server, drivers)
    time.sleep(window_s)
    after = sample(server, drivers)
    again = sample(server, drivers)
    answers = tell(drivers, "stop", "rows", STOP_S)
    begin, end = before["at_ns"], after["at_ns"]
    rows = [row for answer in answers for row in figures.rows_of(answer["rows"])]
    gave_up = [took for answer in answers for took in answer["gave_up"]]
    grants = sum(begin <= row[figures.ACQUIRED] < end for row in rows)
    seconds = (end - begin) / 1e9
    result.update(
        grants=grants, rate=grants / seconds, overlaps=figures.overlaps(rows, locks),
        errors=sum(answer["errors"] for answer in answers), gave_up=len(gave_up),
    )  # fmt: skip
    if result["errors"]:
        first = next(answer["error"] for answer in answers if answer["errors"])
        result["told"].append(f"{result['errors']} errors, the first: {first[:200]}")
    if result["overlaps"]:
        result["told"].append(f"MUTUAL EXCLUSION BROKEN: {result['overlaps']} holds overlap another")
    if workload.counter:
        counted = int(server.call("GET", counter) or 0)
        result["lost_updates"] = figures.lost_updates(rows, counted)
        if result["lost_updates"]:
            result["told"].append(f"MUTUAL EXCLUSION BROKEN: {result['lost_updates']} updates lost")
    if gave_up:
        result.update(gave_up_p50_us=figures.percentile(gave_up, 50) / 1e3, gave_up_p99_us=figures.percentile(gave_up, 99) / 1e3)
    if workload.locks is None or workload.tasks == 1:
        note_percentiles(result, "pair", figures.pairs_ns(rows, begin, end))
    else:
        handovers = figures.handovers_ns(rows, begin, end)
        result["handovers_per_s"] = len(handovers) / seconds
        note_percentiles(result, "handover", handovers)
        result.update(figures.fairness(rows, workload.tasks, started, begin, end) or {})
    used = spent(before, after, again)
    result["client_cpu_of_a_core"] = used["client_cpu_s"] / seconds
    result["server_cpu_of_a_core"] = used["server_cpu_s"] / seconds
    if not grants:
        result["told"].append(f"no grant in {seconds:.0f} s ({len(rows)} before and after)")
    elif workload.host:
        result["client_cpu_us_each"] = used["client_cpu_s"] * 1e6 / grants
    else:
        result.update(
            scripts_each=used["scripts"] / grants,
            commands_each=used["commands"] / grants,
            server_cpu_us_each=used["server_cpu_s"] * 1e6 / grants,
            client_cpu_us_each=used["client_cpu_s"] * 1e6 / grants,
            bytes_each=used["bytes"] / grants,
        )


def note_percentiles(result, what, took):
    if took:
        result[f"{what}_p50_us"] = figures.percentile(took, 50) / 1e3
        result[f"{what}_p99_us"] = figures.percentile(took, 99) / 1e3
        result[f"{what}_max_us"] = max(took) / 1e3


def idle(server, drivers, workload, window_s, smoke, before_memory, result):
    """Waiters behind a holder that never lets go: what does waiting cost?"""
    line = run_line(f"bench-{next(names)}", 0, workload.tasks, 1, workload)
    tell(drivers, line, "running", BEGIN_S)
    time.sleep(0.2 if smoke else workload.settle_s * 2)
    watch(server, drivers, window_s, before_memory, result, workload.tasks, "waiter")


def held(server, drivers, workload, window_s, smoke, before_memory, result):
    """Many locks of different names kept: what does keeping them cost? Who renews them itself is told."""
    began = time.monotonic()
    answer = tell(drivers, f"hold name=bench-{next(names)} locks={workload.locks}", "held", 10 * BEGIN_S)[0]
    result["taking_per_s"] = answer["held"] / max(1e-9, time.monotonic() - began)
    if answer["held"] < workload.locks:
        result["told"].append(f"only {answer['held']} locks held: {answer['error'][:160]}")
    watch(server, drivers, window_s, before_memory, result, workload.locks, "lock")
    if not result["hello"]["renews"]:
        result["told"].append("does not renew by itself")


def watch(server, drivers, window_s, before_memory, result, number, what):
    before = sample(server, drivers)
    time.sleep(window_s)
    after = sample(server, drivers)
    used = spent(before, after, sample(server, drivers))
    seconds = (after["at_ns"] - before["at_ns"]) / 1e9
    result.update({
        f"commands_per_s_a_{what}": used["commands"] / seconds / number,
        f"client_bytes_a_{what}": (after["client_memory"] - before_memory["client_memory"]) / number,
        f"server_bytes_a_{what}": (after["server_memory"] - before_memory["server_memory"]) / number,
        "commands_per_s": used["commands"] / seconds,
        "bytes_per_s": used["bytes"] / seconds,
        "client_cpu_of_a_core": used["client_cpu_s"] / seconds,
        "server_cpu_of_a_core": used["server_cpu_s"] / seconds,
        "connections": after["clients"] - 1,
    })  # fmt: skip
