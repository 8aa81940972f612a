"""A client of redis-py's Lock, told line by line what to do. Arguments: URL, name of the lock."""

import random
import sys
import threading
import time

import redis
from redis.exceptions import LockError, LockNotOwnedError
from redis.lock import Lock

URL, NAME = sys.argv[1:3]


def contend(rounds):
    """Counts unprotected under the lock; says how often somebody else was inside."""
    client = redis.Redis.from_url(URL)
    # A new owner each time, as threads and processes have.
    strangers = 0
    for _ in range(rounds):
        lock = Lock(client, NAME, timeout=30, sleep=0.02)
        lock.acquire()
        strangers += client.incr("inside") != 1
        client.rpush("log", "python")
        seen = int(client.get("count") or 0)
        time.sleep(random.uniform(0, 0.002))
        client.set("count", seen + 1)
        client.decr("inside")
        lock.release()
        time.sleep(random.uniform(0, 0.02))
    return strangers


def main():
    client = redis.Redis.from_url(URL)
    lock = Lock(client, NAME)
    for line in sys.stdin:
        word, *args = line.split()
        if word == "acquire":
            # TTL in seconds, how long to wait in seconds.
            ttl, wait = float(args[0]), float(args[1])
            lock = Lock(client, NAME, timeout=ttl or None, sleep=0.01)
            got = lock.acquire(blocking_timeout=wait)
            said = "acquired" if got else "not acquired"
        elif word == "release":
            try:
                lock.release()
                said = "released"
            except LockNotOwnedError:
                said = "not owned"
            except LockError as error:
                said = str(error)
        elif word == "owned":
            said = str(lock.owned())
        elif word == "extend":
            said = str(lock.extend(float(args[0]), replace_ttl=True))
        elif word == "contend":
            results = []
            threads = [
                threading.Thread(target=lambda: results.append(contend(int(args[1]))))
                for _ in range(int(args[0]))
            ]
            print("begun", flush=True)
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            # A thread that failed has no result.
            said = f"{len(results)} threads met {sum(results)} strangers"
        else:
            said = f"unknown: {word}"
        print(said, flush=True)


main()
