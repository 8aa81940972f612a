"""What is compared: rivals with their limits, and workloads with their numbers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Rival:
    name: str
    # Words before the URL; {out}, {here}, {jars}, {java} and so on are filled in by the runner.
    command: tuple
    # How long it is let run before anything is measured: compilers at run time, scripts, connections.
    warm_s: float = 0.5
    # Tasks of one process beyond which it is not asked: what the reason says.
    tasks_max: int = 1_000_000
    reason: str = ""
    # On a server, or on a file of this host.
    host: bool = False
    # It is there to be found guilty, and is in no table.
    control: bool = False


def rust(name, *words):
    return ("{rust}/" + name, *words)


def java(kind):
    # -Xss: thousands of its waiters are threads, as its users write them.
    return ("java", "-Xss512k", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
            "-cp", "{java}:{jars}/*", "Driver", kind)  # fmt: skip


RIVALS = [
    Rival("fairlock", rust("ours", "fair")),
    Rival("fairlock-plain", rust("ours", "plain")),
    Rival("redisson-fair", java("fair"), warm_s=6),
    Rival("redisson-plain", java("plain"), warm_s=6),
    Rival("rslock", rust("rslock")),
    Rival("distkit", rust("distkit")),
    Rival("redsync", ("{go}/driver", "redsync")),
    Rival("redislock", ("{go}/driver", "redislock")),
    Rival("redis-py", ("python3", "{here}/python/driver.py", "redis-py")),
    Rival(
        "python-redis-lock",
        ("python3", "{here}/python/driver.py", "python-redis-lock"),
        tasks_max=1_000,
        reason="each waiter is a thread with a connection",
    ),
    Rival("node-redlock", ("node", "{node}/driver.mjs"), warm_s=2),
    # The host's own: in the library, and around shell commands.
    Rival("fairlock-host", rust("ours", "fair"), host=True),
    Rival("fairlock-run", rust("commands", "{program}"), host=True),
    Rival("flock", rust("commands", "flock"), host=True),
    Rival("nolock", rust("nolock"), control=True),
]


@dataclass(frozen=True)
class Workload:
    name: str
    # "turns", "idle" (waiters behind one who never lets go) or "held" (many locks kept).
    shape: str = "turns"
    tasks: int = 1
    processes: int = 1
    # None: one for each task.
    locks: int | None = 1
    wait_ms: int = 0
    hold_ms: int = 0
    counter: bool = False
    # How long the window is, if not as long as all others.
    window_s: float | None = None
    # Thousands of short turns first: always before turns, else only where it is the question.
    warm: bool = False
    # Among the rivals on this host's own files, not those on a server.
    host: bool = False

    @property
    def settle_s(self):
        """Until the window opens: what enters a queue is not yet a hand-over."""
        return 0.5 + self.tasks / 2_000


def contended(tasks, processes):
    name = f"contended-{tasks}" + (f"-in-{processes}" if processes > 1 else "")
    return Workload(name, tasks=tasks, processes=processes)


WORKLOADS = [
    Workload("uncontended-1"),
    Workload("uncontended-64", tasks=64, locks=None),
    *(contended(tasks, 1) for tasks in (2, 10, 100, 1_000, 10_000)),
    *(contended(tasks, 8) for tasks in (10, 100, 1_000, 10_000)),
    # The counter lies on the server, where a lost update shows whatever the clocks say.
    Workload("guarded-10-in-8", tasks=10, processes=8, counter=True),
    Workload("giving-up", tasks=100, wait_ms=20, hold_ms=5),
    # Renewals are a third of the lease apart: two of them.
    *(Workload(f"held-{n}", "held", locks=n, tasks=1, window_s=20) for n in (1, 1_000, 100_000)),
    # The same in a process that has used locks before: does it still only renew what it holds?
    Workload("held-1000-after-turns", "held", locks=1_000, tasks=1, window_s=20, warm=True),
    *(Workload(f"idle-{n}", "idle", tasks=n, window_s=10) for n in (100, 1_000, 10_000)),
    *(Workload(f"host-{n}", tasks=n, host=True) for n in (1, 2, 10, 100)),
]

SMOKE = [
    Workload("uncontended-1"),
    Workload("contended-2", tasks=2),
    Workload("guarded-4-in-2", tasks=4, processes=2, counter=True),
    Workload("giving-up", tasks=2, wait_ms=20, hold_ms=50),
    Workload("held-10", "held", locks=10),
    Workload("idle-2", "idle", tasks=2),
    Workload("host-2", tasks=2, host=True),
]
