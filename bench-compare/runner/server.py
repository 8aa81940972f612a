"""A private server on a free port, and the few commands that the measurements ask of it."""

import os
import socket
import subprocess
import tempfile
import time

START_S = 10
QUIET_S = 60


class Server:
    def __init__(self, binary, clients):
        self.folder = tempfile.TemporaryDirectory(prefix="fairlock-compare-")
        self.port = free_port()
        # No file is written: what is compared is locks, not disks.
        self.process = subprocess.Popen(
            [
                binary, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.folder.name,
                "--save", "", "--appendonly", "no", "--maxclients", str(clients), "--tcp-backlog", "4096",
                "--logfile", os.path.join(self.folder.name, "log"), "--daemonize", "no",
            ]
        )  # fmt: skip
        self.url = f"redis://127.0.0.1:{self.port}/"
        # Where locks of this host lie.
        self.host_url = "sqlite:" + os.path.join(self.folder.name, "locks")
        self.connection = self._connect()

    def _connect(self):
        until = time.monotonic() + START_S
        while True:
            try:
                return Connection(self.port)
            except OSError:
                if self.process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError("the private server does not start") from None
                time.sleep(0.02)

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()

    def call(self, *words):
        return self.connection.call(*words)

    def info(self):
        """INFO as one flat dictionary; of commandstats the number of calls, as `calls:NAME`."""
        flat = {}
        for line in self.call("INFO", "everything").decode().splitlines():
            name, _, value = line.partition(":")
            if name.startswith("cmdstat_"):
                flat["calls:" + name[len("cmdstat_") :]] = int(value.split(",")[0].split("=")[1])
            elif value:
                flat[name] = value
        return flat

    def clear(self):
        """Forgets everything, once all clients of the last run are gone."""
        until = time.monotonic() + QUIET_S
        while int(self.info()["connected_clients"]) > 1:
            if time.monotonic() > until:
                raise RuntimeError("clients of an ended run are still connected")
            time.sleep(0.02)
        self.call("FLUSHALL")
        self.call("CONFIG", "RESETSTAT")


class Connection:
    """As much RESP as is needed here."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.file = self.socket.makefile("rb")
        self.call("PING")

    def call(self, *words):
        words = [str(word).encode() for word in words]
        parts = [b"*%d\r\n" % len(words)] + [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
        self.socket.sendall(b"".join(parts))
        return self._reply()

    def _reply(self):
        line = self.file.readline()
        if not line:
            raise ConnectionError("the server closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self._reply() for _ in range(int(rest))]
        return int(rest) if kind == b":" else rest


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
