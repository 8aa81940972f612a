"""The plan of the comparison: rivals with their limits, and workloads with their parameters, in parts that are
measured one after another, possibly on different days."""

from dataclasses import dataclass, replace
from fnmatch import fnmatch


@dataclass(frozen=True)
class Rival:
    name: str
    # The words before the URL; the runner fills in {out}, {here}, {jars}, {java} and so on.
    command: tuple
    # Warm-up time before anything is measured: JIT compilers, scripts, connections.
    warm_s: float = 0.4
    # Start-up time of one process until its `hello`, on an idle machine.
    start_s: float = 0.3
    # The largest number of tasks in one process; `reason` says why.
    tasks_max: int = 1_000_000
    reason: str = ""
    # Where its locks are stored: "redis", "etcd", or the files of the "host".
    store: str = "redis"
    # What it shares: "" (a lock for one), "readers" (a read-write lock) or "permits" (a semaphore).
    shares: str = ""
    # A control that must be found guilty; it is in no table.
    control: bool = False


def rust(name, *words):
    return ("{rust}/" + name, *words)


def java(kind):
    # -Xss: its waiters are thousands of threads, as in its users' programs.
    return ("java", "-Xss512k", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
            "-cp", "{java}:{jars}/*", "Driver", kind)  # fmt: skip


A_CONNECTION_EACH = {"tasks_max": 1_000, "reason": "each waiter keeps a connection"}

RIVALS = [
    Rival("fairlock", rust("ours", "fair")),
    Rival("fairlock-plain", rust("ours", "plain")),
    Rival("fairlock-simple", rust("ours", "simple")),
    Rival("redisson-fair", java("fair"), warm_s=6, start_s=2.5),
    Rival("redisson-plain", java("plain"), warm_s=6, start_s=2.5),
    Rival("rslock", rust("rslock")),
    Rival("distkit", rust("distkit")),
    Rival("redis-lock", rust("redis_lock")),
    Rival("redisson.rs-fair", rust("redisson_rs", "fair"), **A_CONNECTION_EACH),
    Rival("redisson.rs-plain", rust("redisson_rs", "plain"), **A_CONNECTION_EACH),
    Rival("redsync", ("{go}/driver", "redsync")),
    Rival("redislock", ("{go}/driver", "redislock")),
    Rival("redis-py", ("python3", "{here}/python/driver.py", "redis-py"), start_s=0.6),
    Rival(
        "python-redis-lock",
        ("python3", "{here}/python/driver.py", "python-redis-lock"),
        start_s=0.6,
        **A_CONNECTION_EACH,
    ),
    Rival("node-redlock", ("node", "{node}/driver.mjs", "redlock"), warm_s=2, start_s=0.6),
    # Another kind of server, for a comparison beyond Redis; each task needs its own lease there.
    Rival("etcd", ("{go}/driver", "etcd"), store="etcd", tasks_max=1_000, reason="each waiter keeps a lease alive"),
    # Host locks: in the library, and around shell commands.
    Rival("fairlock-host", rust("ours", "fair"), store="host"),
    Rival("fairlock-run", rust("commands", "{program}"), store="host"),
    Rival("flock", rust("commands", "flock"), store="host"),
    # What several may hold at a time.
    Rival("fairlock-rw", rust("ours", "rw"), shares="readers"),
    Rival("redisson-rw", java("rw"), warm_s=6, start_s=2.5, shares="readers"),
    Rival("distkit-rw", rust("distkit_rw"), shares="readers"),
    Rival("fairlock-semaphore", rust("ours", "semaphore"), shares="permits"),
    Rival("redisson-semaphore", java("semaphore"), warm_s=6, start_s=2.5, shares="permits"),
    Rival("redisson-permits", java("permits"), warm_s=6, start_s=2.5, shares="permits"),
    Rival("redis-semaphore", ("node", "{node}/driver.mjs", "semaphore"), warm_s=2, start_s=0.6, shares="permits"),
    Rival("nolock", rust("nolock"), control=True),
]


@dataclass(frozen=True)
class Workload:
    name: str
    # "turns", "idle" (waiters behind a holder that never releases) or "held" (many locks held).
    shape: str = "turns"
    tasks: int = 1
    processes: int = 1
    # None: one for each task.
    locks: int | None = 1
    wait_ms: int = 0
    hold_ms: int = 0
    counter: bool = False
    # Of 100 tasks, so many read.
    readers: int = 0
    # So many tasks may have it at a time.
    permits: int = 1
    # The length of the window, if not the default.
    window_s: float | None = None
    # Whether to run thousands of short turns first: always before turns, else only where that is under test.
    warm: bool = False
    # Round-trip time added by a proxy; None without a proxy.
    rtt_ms: float | None = None

    @property
    def settle_s(self):
        """The time until the window opens, in which the tasks enter the queue."""
        return 0.25 + self.tasks / 2_500 + (self.rtt_ms or 0) / 100

    @property
    def is_pairs(self):
        """Whether the workload is uncontended."""
        return self.shape == "turns" and (self.locks is None or self.tasks == 1)


def contended(tasks, processes=1, **more):
    name = f"contended-{tasks}" + (f"-in-{processes}" if processes > 1 else "")
    return Workload(name, tasks=tasks, processes=processes, **more)


def far(workload, rtt_ms):
    """The same workload with a longer round trip."""
    window_s = 1.5 if rtt_ms >= 50 else workload.window_s
    return replace(workload, name=f"rtt-{rtt_ms}-{workload.name}", rtt_ms=rtt_ms, window_s=window_s)


@dataclass(frozen=True)
class Part:
    """Workloads of the same rivals. In each round each rival is started once and runs all of them in turn, if its
    processes can be reused; then comes the next rival, then the next round."""

    name: str
    workloads: tuple
    # Names or patterns.
    rivals: tuple = ("*",)
    rounds: int = 5
    store: str = ""
    about: str = ""
    # What its workloads share, as of a rival. A lock for one can run them too: it holds it as a whole.
    shares: str = ""

    def has(self, rival):
        stores = (self.store,) if self.store else ("redis", "etcd")
        fits = rival.store in stores and rival.shares in ("", self.shares)
        return fits and any(fnmatch(rival.name, pattern) for pattern in self.rivals)


# Rivals that renew their holds by themselves, so that holding has a cost.
RENEWING = ("fairlock", "redisson-fair", "distkit")
# One rival for each way of waiting: granted by message, woken, polling with random and with fixed pauses.
OF_EACH_WAY = ("fairlock", "redisson-fair", "redisson-plain", "rslock", "redis-py")

# Part "own": `fairlock-bench own` runs five rounds, each step for this many seconds, with these numbers of waiters.
OWN = ("1", "2,10,100,1000,10000")
OWN_S = 75

# The most important first. The last three count commands, processor time and memory, which other programs hardly
# affect, so three rounds suffice.
PARTS = [
    Part(
        "own",
        (),
        (),
        rounds=1,
        about="fairlock alone, by `fairlock-bench own`: beside PING and the raw scripts of the same server",
    ),
    Part(
        "one-process",
        (
            Workload("uncontended-1"),
            Workload("uncontended-64", tasks=64, locks=None),
            contended(2),
            contended(10),
            Workload("giving-up", tasks=100, wait_ms=20, hold_ms=5),
            contended(100),
            contended(1_000),
        ),
        about="uncontended, and one lock that up to 1 000 tasks of one process want",
    ),
    Part(
        "eight-processes",
        (
            # The counter is on the server, where a lost update shows independently of clocks.
            Workload("guarded-10-in-8", tasks=10, processes=8, counter=True),
            *(contended(tasks, 8) for tasks in (100, 1_000)),
        ),
        ("fairlock*", "redisson-*", "rslock", "distkit", "redsync", "redis-py", "node-redlock"),
        about="the same from eight processes, with a counter that shows lost updates",
    ),
    Part(
        "ten-thousand",
        (contended(10, window_s=1.5), contended(10_000, window_s=2)),
        OF_EACH_WAY,
        about="10 000 waiters in one process",
    ),
    Part(
        "ten-thousand-in-eight",
        (contended(10_000, 8, window_s=2),),
        ("fairlock", "redisson-fair", "rslock"),
        about="10 000 waiters in eight processes",
    ),
    Part(
        "read-write",
        (
            Workload("writers-100", tasks=100),
            Workload("readers-90-in-8", tasks=100, processes=8, readers=90, hold_ms=1, window_s=2),
        ),
        ("fairlock", "*-rw"),
        about="a read-write lock: 100 tasks that only write, and 100 in eight processes of which 90 read for 1 ms",
        shares="readers",
    ),
    Part(
        "semaphore",
        tuple(Workload(f"permits-{n}", tasks=tasks, permits=n) for n, tasks in ((1, 100), (10, 100), (1_000, 2_000))),
        ("fairlock", "*-semaphore", "*-permits"),
        about="a semaphore of 1, 10 and 1 000 permits, with more tasks than permits",
        shares="permits",
    ),
    Part(
        "distance",
        tuple(far(one, rtt) for rtt in (0, 1, 5, 50) for one in (Workload("uncontended-1"), contended(10))),
        ("fairlock", "redisson-fair", "rslock", "redis-py"),
        about="a round-trip time of 0, 1, 5 and 50 ms added by a proxy",
    ),
    Part(
        "host",
        tuple(Workload(f"host-{n}", tasks=n) for n in (1, 2, 10, 100)),
        store="host",
        about="locks on this host's own files, beside flock(1)",
    ),
    Part(
        "idle",
        tuple(Workload(f"idle-{n}", "idle", tasks=n, window_s=10) for n in (1_000, 10_000)),
        ("fairlock", "redisson-fair", "rslock", "redis-py", "python-redis-lock"),
        rounds=3,
        about="waiters behind one who never lets go: what waiting costs",
    ),
    Part(
        "held",
        # Renewals are a third of the lease apart: the window includes one, whenever it happens.
        tuple(Workload(f"held-{n}", "held", locks=n, window_s=10.2) for n in (1, 1_000, 100_000)),
        RENEWING,
        rounds=3,
        about="many locks held and renewed",
    ),
    # The same in a process that has used locks before, which must still renew only its current holds.
    Part(
        "held-after-turns",
        (Workload("held-1000-after-turns", "held", locks=1_000, window_s=10.2, warm=True),),
        ("fairlock", "redisson-fair"),
        rounds=3,
        about="the same in a process that has used locks before",
    ),
]

SMOKE = [
    Part(
        "smoke",
        (
            Workload("uncontended-1"),
            Workload("contended-2", tasks=2),
            Workload("guarded-4-in-2", tasks=4, processes=2, counter=True),
            Workload("giving-up", tasks=2, wait_ms=20, hold_ms=50),
            far(Workload("contended-2", tasks=2), 5),
            Workload("held-10", "held", locks=10),
            Workload("idle-2", "idle", tasks=2),
        ),
    ),
    Part("smoke-host", (Workload("host-2", tasks=2),), store="host"),
    Part(
        "smoke-read-write",
        (
            Workload("writers-2", tasks=2),
            Workload("readers-2-in-2", tasks=4, processes=2, readers=2, hold_ms=5),
            Workload("writers-that-give-up", tasks=2, wait_ms=20, hold_ms=50),
            Workload("held-10", "held", locks=10),
        ),
        ("*-rw", "nolock"),
        shares="readers",
    ),
    Part(
        "smoke-semaphore",
        (
            Workload("permits-1", tasks=2),
            Workload("permits-2-in-2", tasks=6, processes=2, permits=2, hold_ms=5),
            Workload("permits-2-that-give-up", tasks=4, permits=2, wait_ms=20, hold_ms=50),
            Workload("held-10", "held", locks=10),
        ),
        ("*-semaphore", "*-permits", "nolock"),
        shares="permits",
    ),
]


def part(name):
    return next(part for part in PARTS if part.name == name)


def workloads():
    """Returns each workload once, in the order of the tables."""
    return list({one.name: one for part in PARTS for one in part.workloads}.values())


def excused(rival, workload):
    """Returns why this rival does not run this workload, or an empty text if it does."""
    if -(-workload.tasks // workload.processes) > rival.tasks_max:
        return rival.reason
    if workload.counter and rival.store == "etcd":
        return "the counter lies on Redis"
    return ""


def seconds(part, rivals, window_s):
    """Estimates how long a round takes on a quiet machine with two cores."""
    if part.name == "own":
        return OWN_S
    total = 5.0
    for rival in rivals:
        processes = 0
        for workload in part.workloads:
            if excused(rival, workload):
                continue
            if workload.processes != processes or workload.shape != "turns":
                # Two processes start at a time, on two cores.
                total += rival.start_s * max(1, workload.processes / 2) + 0.1
                total += rival.warm_s if workload.shape == "turns" or workload.warm else 0
            processes = workload.processes
            total += (workload.window_s or window_s) + workload.settle_s + 0.15
            total += (workload.locks or 0) / 20_000 if workload.shape == "held" else 0
    return total
