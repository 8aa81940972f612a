"""A driver process: a line in, a line of JSON out, with a time limit for every answer."""

import json
import queue
import signal
import subprocess
import threading

from server import cpu_s, memory


class Silent(Exception):
    """A driver did not answer in time, or exited."""


class Driver:
    def __init__(self, command, *last):
        self.command = command
        # Its stderr is shown only if it fails.
        self.process = subprocess.Popen(
            [*command, *last],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        self.lines = queue.Queue()
        self.complaints = []
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=self._hear, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            # Some libraries print a greeting on stdout.
            if line.startswith("{"):
                self.lines.put(line)
        self.lines.put(None)

    def _hear(self):
        for line in self.process.stderr:
            if len(self.complaints) < 20:
                self.complaints.append(line.rstrip())

    def send(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the answer will not come, and that says it

    def answer(self, seconds):
        try:
            line = self.lines.get(timeout=seconds)
        except queue.Empty:
            raise Silent(f"no answer within {seconds:.0f} s") from None
        if line is None:
            raise Silent("it ended: " + " | ".join(self.complaints[:3]))
        return json.loads(line)

    def cpu_s(self):
        return cpu_s(self.process.pid)

    def memory(self):
        return memory(self.process.pid)

    def freeze(self):
        """Stops the process for good; only `kill` may follow."""
        self.process.send_signal(signal.SIGSTOP)

    def kill(self):
        self.process.kill()
        self.process.wait()
