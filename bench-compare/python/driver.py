"""`driver.py redis-py|python-redis-lock URL`: Python's locks. The protocol is described in ../README.md.

redis-py's lock runs as its asyncio variant: with threads the result would be the interpreter's own lock.
python-redis-lock supports only threads, and each waiter keeps a connection.
"""

import asyncio
import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import redis
import redis.asyncio

LEASE_S = 30
AT_ONCE = 64
CONNECTIONS = 20_000
# Pause after an error, so that the run does not measure a tight loop of errors.
AFTER_ERROR_S = 0.01


def say(answer):
    try:
        sys.stdout.write(json.dumps(answer, separators=(",", ":")) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os._exit(0)


def parse(line):
    verb, *words = line.split()
    words = dict(word.split("=", 1) for word in words)
    return verb, {key: int(value) if value.isdigit() else value for key, value in words.items()}


class Run:
    """One `run`: its parameters and results."""

    def __init__(self, words):
        self.words = words
        self.over = False
        self.rows, self.gave_up, self.errors, self.error = [], [], 0, ""
        self.wait_s = words["wait_ms"] / 1000 or None
        self.hold_s = words["hold_ms"] / 1000
        self.counter = None if words["counter"] == "-" else words["counter"]

    def lock_name(self, task):
        return f"{self.words['name']}:{task % max(1, self.words['locks'])}"

    def failed(self, error):
        self.errors += 1
        self.error = self.error or f"{type(error).__name__}: {error}"

    def answer(self):
        self.over = True
        return {"rows": self.rows, "gave_up": self.gave_up, "errors": self.errors, "error": self.error}


class Asyncio:
    """redis-py: one task for each waiter, all on one client."""

    def __init__(self, url):
        # With its default pool, more than a hundred tasks get errors instead of connections. This pool, also
        # from redis-py, lets them wait for one of 50.
        pool = redis.asyncio.BlockingConnectionPool.from_url(url, timeout=None)
        self.client = redis.asyncio.Redis(connection_pool=pool)
        self.kept = []

    def lock(self, name):
        return self.client.lock(name, timeout=LEASE_S)

    async def turns(self, run, task):
        lock = self.lock(run.lock_name(task))
        now = time.monotonic_ns
        while not run.over:
            try:
                asked = now()
                if not await lock.acquire(blocking_timeout=run.wait_s):
                    run.gave_up.append(now() - asked)
                    continue
                acquired = now()
                if run.counter:
                    read = int(await self.client.get(run.counter) or 0)
                    await self.client.set(run.counter, read + 1)
                if run.hold_s:
                    await asyncio.sleep(run.hold_s)
                releasing = now()
                await lock.release()
                run.rows.extend((task, asked, acquired, releasing, now()))
            except Exception as error:  # whatever it is, it is told
                run.failed(error)
                await asyncio.sleep(AFTER_ERROR_S)

    async def hold(self, words):
        places = asyncio.Semaphore(AT_ONCE)

        async def one(number):
            async with places:
                lock = self.lock(f"{words['name']}:{number}")
                await lock.acquire()
                self.kept.append(lock)

        results = await asyncio.gather(*map(one, range(words["locks"])), return_exceptions=True)
        errors = [str(result) for result in results if result is not None]
        return {"held": len(self.kept), "error": (errors or [""])[0]}

    async def obey(self):
        loop = asyncio.get_running_loop()
        await self.client.ping()
        hello("redis", False)
        tasks, run = set(), None
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            verb, words = parse(line)
            if verb == "run":
                run = Run(words)
                tasks |= {
                    asyncio.create_task(self.turns(run, task))
                    for task in range(words["first"], words["first"] + words["tasks"])
                }
                say({"running": words["tasks"]})
            elif verb == "hold":
                say(await self.hold(words))
            elif verb == "stop":
                say(run.answer() if run else {"rows": [], "gave_up": [], "errors": 0, "error": ""})
            elif verb == "left":
                say({"left": sum(not task.done() for task in tasks)})
        os._exit(0)


class Threads:
    """python-redis-lock: one thread for each waiter."""

    def __init__(self, url):
        import redis_lock

        self.make = redis_lock.Lock
        # A waiter blocks its connection.
        self.client = redis.Redis.from_url(url, max_connections=CONNECTIONS)
        self.kept = []

    def lock(self, name, renewed):
        return self.make(self.client, name, expire=LEASE_S, auto_renewal=renewed)

    def turns(self, run, task):
        # Renewal starts a thread for each hold; it is off for these turns, which are far shorter than the lease.
        lock = self.lock(run.lock_name(task), False)
        now = time.monotonic_ns
        # Its bounded wait takes whole seconds; for less it can only try.
        how = {"blocking": False} if run.wait_s and run.wait_s < 1 else {"timeout": run.wait_s}
        while not run.over:
            try:
                asked = now()
                if not lock.acquire(**how):
                    run.gave_up.append(now() - asked)
                    if "blocking" in how:
                        time.sleep(run.wait_s)
                    continue
                acquired = now()
                if run.counter:
                    read = int(self.client.get(run.counter) or 0)
                    self.client.set(run.counter, read + 1)
                if run.hold_s:
                    time.sleep(run.hold_s)
                releasing = now()
                lock.release()
                run.rows.extend((task, asked, acquired, releasing, now()))
            except Exception as error:  # whatever it is, it is told
                run.failed(error)
                time.sleep(AFTER_ERROR_S)

    def hold(self, words):
        def one(number):
            lock = self.lock(f"{words['name']}:{number}", True)
            lock.acquire()
            self.kept.append(lock)

        error = ""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for result in [pool.submit(one, number) for number in range(words["locks"])]:
                error = error or str(result.exception() or "")
        return {"held": len(self.kept), "error": error}

    def obey(self):
        self.client.ping()
        hello("redis_lock", True)
        threading.stack_size(256 * 1024)
        run, tasks = None, []
        while line := sys.stdin.readline():
            verb, words = parse(line)
            if verb == "run":
                run = Run(words)
                for task in range(words["first"], words["first"] + words["tasks"]):
                    tasks.append(threading.Thread(target=self.turns, args=(run, task), daemon=True))
                    tasks[-1].start()
                say({"running": words["tasks"]})
            elif verb == "hold":
                say(self.hold(words))
            elif verb == "stop":
                say(run.answer() if run else {"rows": [], "gave_up": [], "errors": 0, "error": ""})
            elif verb == "left":
                say({"left": sum(task.is_alive() for task in tasks)})
        os._exit(0)


def hello(module, renews):
    versions = {"redis": redis.__version__}
    if module == "redis_lock":
        import redis_lock

        versions["redis_lock"] = redis_lock.__version__
    runs_on = f"Python {sys.version.split()[0]}"
    if module != "redis":
        runs_on += f", redis-py {redis.__version__}"
    say({"hello": {"version": versions[module], "runs_on": runs_on, "renews": renews}})


if __name__ == "__main__":
    which, url = sys.argv[1:]
    if which == "redis-py":
        asyncio.run(Asyncio(url).obey())
    else:
        Threads(url).obey()
