"""A driver's process: lines in, one line of JSON out, every answer bounded."""

import json
import queue
import signal
import subprocess
import threading

from server import cpu_s, memory


class Silent(Exception):
    """A driver that did not answer in time, or ended."""


class Driver:
    def __init__(self, command, *last):
        self.command = command
        # Its complaints are shown only if it does not work.
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
            # Some libraries greet on stdout.
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
        """It does nothing more; only `kill` is left to it."""
        self.process.send_signal(signal.SIGSTOP)

    def kill(self):
        self.process.kill()
        self.process.wait()
