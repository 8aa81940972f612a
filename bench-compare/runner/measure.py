"""One rival in one round: starts its processes, runs one workload after another, measures a window of each, and
ends the processes."""

import itertools
import time

import figures
import plan
from driver import Driver, Silent
from server import machine_cpu_s

# Enough for a JVM that starts together with seven others on two cores.
HELLO_S = 120
BEGIN_S = 30
STOP_S = 60
# Enough for 100 000 locks at 1 000 a second.
HOLD_S = 100

SCRIPTS = ("eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro")
names = itertools.count()


class Session:
    """Processes of one rival, connected and warmed up."""

    def __init__(self, deployment, rival, workload, smoke):
        self.rival, self.smoke, self.key = rival, smoke, key_of(workload)
        self.server, self.drivers, self.way = deployment.server_of(rival), [], None
        try:
            url = deployment.url_of(rival)
            if workload.rtt_ms is not None:
                self.way = Driver(deployment.way, str(self.server.port))
                url = self.server.url(tell([self.way], None, "hello", HELLO_S)[0]["hello"]["port"])
            self.begun = deployment.command_of(rival), url
            self.drivers += [Driver(*self.begun) for _ in range(workload.processes)]
            self.hello = tell(self.drivers, None, "hello", HELLO_S)[0]["hello"]
            if workload.shape == "turns" or workload.warm:
                warm_up(self.drivers, min(rival.warm_s, 0.4) if smoke else rival.warm_s)
            self.at_first = sample(self)
        except BaseException:
            self.close()
            raise

    def serves(self, workload):
        """Whether it can also run this workload. Memory and renewal costs are measured in fresh processes."""
        return workload.shape == "turns" and key_of(workload) == self.key

    def rests(self):
        """Waits for each task's last turn. Returns whether all have ended; processes in which that takes longer than
        starting fresh ones are not reused."""
        until = time.monotonic() + self.rival.start_s + self.rival.warm_s
        while any(answer["left"] for answer in tell(self.drivers, "left", "left", STOP_S)):
            if time.monotonic() > until:
                return False
            time.sleep(0.01)
        return True

    def close(self):
        for driver in [*self.drivers, *([self.way] if self.way else [])]:
            driver.kill()
        self.server.clear()


def key_of(workload):
    return workload.processes, workload.shape, workload.rtt_ms is not None


def measure(deployment, rival, workloads, window_s, smoke, hopeless=frozenset()):
    """Yields each workload with its figures; `told` lists what could not be measured, or failed. Hopeless workloads
    are skipped."""
    session = None
    try:
        for workload in workloads:
            result, began = {"told": []}, time.monotonic()
            excuse = plan.excused(rival, workload)
            if workload.name in hopeless:
                excuse = "it did not answer in a round before"
            if excuse:
                yield workload, {"told": [f"not asked: {excuse}"]}
                continue
            try:
                if session and not session.serves(workload):
                    session = session.close()
                session = session or Session(deployment, rival, workload, smoke)
                result["hello"] = session.hello
                if session.way:
                    session.way.send(str(round(workload.rtt_ms * 1000)))
                    tell([session.way], None, "rtt_us", BEGIN_S)
                window = window_s if smoke else workload.window_s or window_s
                {"turns": turns, "idle": idle, "held": held}[workload.shape](session, workload, window, result)
                if workload is not workloads[-1] and not session.rests():
                    session = session.close()
            except Silent as silent:
                result["told"].append(str(silent))
                result["silent"] = True
                session = session.close() if session else None
            result["took_s"] = round(time.monotonic() - began, 2)
            yield workload, result
    finally:
        if session:
            session.close()


def sample(session):
    busy, steal = machine_cpu_s()
    drivers = session.drivers
    seen = {
        "at_ns": time.monotonic_ns(),
        **session.server.sample(),
        "client_cpu_s": sum(driver.cpu_s() for driver in drivers),
        "client_memory": sum(driver.memory() for driver in drivers),
        "steal_s": steal,
    }
    way = session.way.cpu_s() if session.way else 0
    seen["others_s"] = busy - seen["server_cpu_s"] - seen["client_cpu_s"] - way - time.process_time()
    return seen


def spent(before, after, again):
    """Returns the difference between two samples. A third, right after the second, shows the cost of sampling."""
    seconds = (after["at_ns"] - before["at_ns"]) / 1e9
    used = {
        "seconds": seconds,
        "server_cpu_s": after["server_cpu_s"] - before["server_cpu_s"],
        "client_cpu_s": after["client_cpu_s"] - before["client_cpu_s"],
        # Relative to one core: other programs, and time stolen by the hypervisor.
        "others": max(0, after["others_s"] - before["others_s"]) / seconds,
        "steal": (after["steal_s"] - before["steal_s"]) / seconds,
    }
    if "calls" in after:
        difference = lambda what: {  # noqa: E731
            name: count - before[what].get(name, 0) for name, count in after[what].items() if name != "info"
        }
        calls, us = difference("calls"), difference("us")
        seen = lambda what: max(0, 2 * after[what] - before[what] - again[what])  # noqa: E731
        used |= {
            "scripts": sum(calls.get(name, 0) for name in SCRIPTS),
            "script_us": sum(us.get(name, 0) for name in SCRIPTS),
            "commands": sum(calls.values()),
            "bytes": seen("bytes"),
            "reads": seen("reads"),
        }
    return used


def look(session, window_s):
    """Measures a window."""
    before = sample(session)
    time.sleep(window_s)
    after = sample(session)
    return before, after, spent(before, after, sample(session))


def tell(drivers, words, wanted, seconds):
    """Sends a line to each driver and returns the answers. `words` may be a function of the process, or None if the
    drivers send without a request."""
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
    return (
        f"run name={name} first={first} tasks={tasks} locks={locks} "
        f"wait_ms={workload.wait_ms} hold_ms={workload.hold_ms} counter={counter} "
        f"readers={workload.readers} permits={workload.permits}"
    )


def divided(tasks, processes):
    """Returns each process's first task number and its number of tasks."""
    each = [tasks // processes + (at < tasks % processes) for at in range(processes)]
    firsts = [0, *itertools.accumulate(each)][:-1]
    return list(zip(firsts, each))


def warm_up(drivers, seconds):
    """Runs two tasks in each process on unrelated locks, first contended, then uncontended."""
    for locks in (1, 2):
        line = f"run name=warm-{next(names)}-PID first=0 tasks=2 locks={locks} wait_ms=0 hold_ms=0 counter=-"
        tell(drivers, lambda at: line.replace("PID", str(at)), "running", BEGIN_S)
        time.sleep(seconds / 2)
        tell(drivers, "stop", "rows", STOP_S)


def turns(session, workload, window_s, result):
    server, drivers = session.server, session.drivers
    name, locks = f"bench-{next(names)}", workload.locks or workload.tasks
    counter = f"counter-{name}" if workload.counter else "-"
    places = divided(workload.tasks, len(drivers))
    started = time.monotonic_ns()
    tell(drivers, lambda at: run_line(name, *places[at], locks, workload, counter), "running", BEGIN_S)
    time.sleep(0.2 if session.smoke else workload.settle_s)
    before, after, used = look(session, window_s)
    answers = tell(drivers, "stop", "rows", STOP_S)
    begin, end = before["at_ns"], after["at_ns"]
    rows = [row for answer in answers for row in figures.rows_of(answer["rows"])]
    # A lock for one is held as a whole, whatever several may do. The control does what it likes.
    shares = session.rival.shares or session.rival.control
    readers, permits = (workload.readers, workload.permits) if shares else (0, 1)
    gave_up = [took for answer in answers for took in answer["gave_up"]]
    grants = sum(begin <= row[figures.ACQUIRED] < end for row in rows)
    seconds = used["seconds"]
    result.update(
        grants=grants, rate=grants / seconds, overlaps=figures.overlaps(rows, locks, readers, permits),
        errors=sum(answer["errors"] for answer in answers), gave_up=len(gave_up),
        others=used["others"], steal=used["steal"],
    )  # fmt: skip
    if result["errors"]:
        first = next(answer["error"] for answer in answers if answer["errors"])
        result["told"].append(f"errors, the first: {first[:200]}")
    if result["overlaps"]:
        result["told"].append("MUTUAL EXCLUSION BROKEN: holds overlap")
    if workload.counter:
        counted = int(server.call("GET", counter) or 0)
        result["lost_updates"] = figures.lost_updates(rows, counted)
        if result["lost_updates"]:
            result["told"].append("MUTUAL EXCLUSION BROKEN: updates were lost")
    if gave_up:
        result.update(gave_up_p50_us=figures.percentile(gave_up, 50) / 1e3, gave_up_p99_us=figures.percentile(gave_up, 99) / 1e3)
    if workload.is_pairs:
        note_percentiles(result, "pair", figures.pairs_ns(rows, begin, end))
    else:
        # Who has been handed what by whom cannot be told where readers come and go together.
        if not workload.readers:
            handovers = figures.handovers_ns(rows, begin, end, permits)
            result["handovers_per_s"] = len(handovers) / seconds
            note_percentiles(result, "handover", handovers)
        result.update(figures.fairness(rows, workload.tasks, started, begin, end, workload.readers) or {})
    result["client_cpu_of_a_core"] = used["client_cpu_s"] / seconds
    result["server_cpu_of_a_core"] = used["server_cpu_s"] / seconds
    if "scripts" in used and used["scripts"]:
        result["script_us"] = used["script_us"] / used["scripts"]
    if not grants:
        result["told"].append(f"no grant in a window ({len(rows)} before and after)")
        return
    result["client_cpu_us_each"] = used["client_cpu_s"] * 1e6 / grants
    if session.rival.store != "host":
        result["server_cpu_us_each"] = used["server_cpu_s"] * 1e6 / grants
    for what in ("scripts", "commands", "bytes"):
        if session.rival.store == "redis":
            result[f"{what}_each"] = used[what] / grants


def note_percentiles(result, what, took):
    if took:
        result[f"{what}_p50_us"] = figures.percentile(took, 50) / 1e3
        result[f"{what}_p99_us"] = figures.percentile(took, 99) / 1e3
        result[f"{what}_max_us"] = max(took) / 1e3


def idle(session, workload, window_s, result):
    """Measures the cost of waiters behind a holder that never releases. The holder is another, frozen process, so
    that it costs nothing; its lease outlasts the window."""
    name = f"bench-{next(names)}"
    before = sample(session)
    holder = Driver(*session.begun)
    try:
        tell([holder], None, "hello", HELLO_S)
        tell([holder], f"hold name={name} locks=1", "held", BEGIN_S)
        holder.freeze()
        session.at_first = sample(session)
        tell(session.drivers, run_line(name, 0, workload.tasks, 1, workload), "running", BEGIN_S)
        time.sleep(0.2 if session.smoke else workload.settle_s * 2)
        watch(session, window_s, result, workload.tasks, "waiter")
    finally:
        holder.kill()
    if "connections" in result:
        result["connections"] -= session.at_first["clients"] - before["clients"]
    taken = sum(len(answer["rows"]) for answer in tell(session.drivers, "stop", "rows", STOP_S))
    if taken:
        result["told"].append("the lock was let go")


def held(session, workload, window_s, result):
    """Measures the cost of holding many locks of different names. Rivals without renewal are marked."""
    began = time.monotonic()
    line = f"hold name=bench-{next(names)} locks={workload.locks}"
    answer = tell(session.drivers, line, "held", HOLD_S)[0]
    result["taking_per_s"] = answer["held"] / max(1e-9, time.monotonic() - began)
    if answer["held"] < workload.locks:
        result["told"].append(f"only {answer['held']} locks held: {answer['error'][:160]}")
    watch(session, window_s, result, workload.locks, "lock")
    if not session.hello["renews"]:
        result["told"].append("does not renew by itself")


def watch(session, window_s, result, number, what):
    _, after, used = look(session, window_s)
    seconds = used["seconds"]
    result.update({
        f"client_bytes_a_{what}": (after["client_memory"] - session.at_first["client_memory"]) / number,
        f"server_bytes_a_{what}": (after["server_memory"] - session.at_first["server_memory"]) / number,
        "client_cpu_of_a_core": used["client_cpu_s"] / seconds,
        "server_cpu_of_a_core": used["server_cpu_s"] / seconds,
        "others": used["others"],
        "steal": used["steal"],
    })  # fmt: skip
    if "commands" in used:
        result.update({
            f"commands_per_s_a_{what}": used["commands"] / seconds / number,
            "commands_per_s": used["commands"] / seconds,
            "bytes_per_s": used["bytes"] / seconds,
            "reads_per_s": used["reads"] / seconds,
            "connections": after["clients"],
        })  # fmt: skip
