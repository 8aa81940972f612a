"""Private servers on free ports, and the few commands that the measurements need."""

import os
import socket
import subprocess
import tempfile
import time

START_S = 10
QUIET_S = 60
TICKS = os.sysconf("SC_CLK_TCK")
# etcd writes each change to its log before it answers, while Redis writes none here, so etcd's files are in memory.
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class Server:
    """Redis or Valkey."""

    def __init__(self, binary, clients):
        self.folder = tempfile.TemporaryDirectory(prefix="fairlock-compare-")
        self.port = free_port()
        # Writes no files: the comparison is about locks, not disks.
        self.process = subprocess.Popen(
            [
                binary, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.folder.name,
                "--save", "", "--appendonly", "no", "--maxclients", str(clients), "--tcp-backlog", "4096",
                "--logfile", os.path.join(self.folder.name, "log"), "--daemonize", "no",
            ]
        )  # fmt: skip
        # The store of host locks.
        self.host_url = "sqlite:" + os.path.join(self.folder.name, "locks")
        self.connection = started(self.process, lambda: Connection(self.port))

    @staticmethod
    def url(port):
        return f"redis://127.0.0.1:{port}/"

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()

    def call(self, *words):
        return self.connection.call(*words)

    def info(self):
        """Returns INFO as one flat dictionary; commandstats become the number of calls, `calls:NAME`, and their
        microseconds, `us:NAME`."""
        flat = {}
        for line in self.call("INFO", "everything").decode().splitlines():
            name, _, value = line.partition(":")
            if name.startswith("cmdstat_"):
                of = dict(pair.split("=", 1) for pair in value.split(","))
                flat["calls:" + name[len("cmdstat_") :]] = int(of["calls"])
                flat["us:" + name[len("cmdstat_") :]] = int(of["usec"])
            elif value:
                flat[name] = value
        return flat

    def sample(self):
        info = self.info()
        kept = lambda start: {key[len(start) :]: value for key, value in info.items() if key.startswith(start)}  # noqa: E731
        return {
            "calls": kept("calls:"),
            "us": kept("us:"),
            "server_cpu_s": float(info["used_cpu_user"]) + float(info["used_cpu_sys"]),
            "server_memory": int(info["used_memory"]),
            "bytes": int(info["total_net_input_bytes"]) + int(info["total_net_output_bytes"]),
            "reads": int(info["total_reads_processed"]),
            "clients": int(info["connected_clients"]) - 1,
        }

    def clear(self):
        """Deletes everything, once all clients of the last run have disconnected."""
        until = time.monotonic() + QUIET_S
        while int(self.info()["connected_clients"]) > 1:
            if time.monotonic() > until:
                raise RuntimeError("clients of an ended run are still connected")
            time.sleep(0.02)
        self.call("FLUSHALL")
        self.call("CONFIG", "RESETSTAT")


class Etcd:
    """A cluster of one member, which needs no agreement; its commands are not counted."""

    def __init__(self, binary):
        self.folder = tempfile.TemporaryDirectory(prefix="fairlock-compare-", dir=IN_MEMORY)
        self.port, peers = free_port(), free_port()
        own, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{peers}"
        with open(os.path.join(self.folder.name, "log"), "w") as log:
            self.process = subprocess.Popen(
                [
                    binary, "--data-dir", os.path.join(self.folder.name, "data"), "--log-level", "error",
                    "--listen-client-urls", own, "--advertise-client-urls", own, "--listen-peer-urls", peer,
                    "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
                ],
                stdout=log, stderr=log,
            )  # fmt: skip
        started(self.process, lambda: socket.create_connection(("127.0.0.1", self.port)).close())

    @staticmethod
    def url(port):
        return f"http://127.0.0.1:{port}"

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()

    def sample(self):
        return {"server_cpu_s": cpu_s(self.process.pid), "server_memory": memory(self.process.pid)}

    def clear(self):
        """Does nothing: locks end with their clients' leases, and no name is used twice."""


def started(process, connect):
    until = time.monotonic() + START_S
    while True:
        try:
            return connect()
        except OSError:
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError("the private server does not start") from None
            time.sleep(0.02)


class Connection:
    """A minimal RESP client."""

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


def cpu_s(pid):
    """Returns the CPU time of a process so far, including its children that have exited."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS


def memory(pid):
    with open(f"/proc/{pid}/status") as file:
        for line in file:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    return 0


def machine_cpu_s():
    """Returns the CPU time of all programs on this machine, and the time stolen by the hypervisor."""
    with open("/proc/stat") as file:
        fields = [int(field) / TICKS for field in file.readline().split()[1:]]
    user, nice, system, steal = *fields[:3], fields[7]
    return user + nice + system, steal
