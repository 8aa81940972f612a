"""Builds all test programs and runs them side by side: those that wait beside one that computes. For scripts/test."""

import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

# What the commit tier leaves to the full one. Whole programs: short runs of torture, and what needs Java.
FULL_PROGRAMS = ["fairlock-torture main", "fairlock-interop main"]
# Parts of the names of tests: what crates/fairlock/tests/tiers.rs leaves out, and what is played on other generations
# once more.
FULL_TESTS = ["::full::", "_on_redis_6_2", "_on_redis62", "_on_valkey_9_1", "_on_valkey91"]
# For what has to know the tier while it runs, and the same random cases each time.
COMMIT_ENVIRONMENT = {"FAIRLOCK_TEST_COMMIT_TIER": "1", "PROPTEST_RNG_SEED": "1"}
SKIP = [word for name in FULL_TESTS for word in ("--skip", name)]
# Longest first. One of these runs at a time, a test for each processor; they yield to those that wait.
COMPUTE = ["fairlock lib", "fairlock-core main", "documentation", "fairlock-core lib"]
# Longest first; the others follow. One of them runs at a time: two overloaded the machine, and servers took seconds to
# answer.
WAIT = ["fairlock main", "fairlock-cli main", "fairlock-torture main", "fairlock-interop main", "fairlock-testkit lib"]
# Most of their tests wait for leases to end and for servers.
WAITING_TESTS_EACH_CPU = 3
CARGO = ["--workspace", "--all-features", "--locked"]
# Four times what the longest takes on a busy machine: it hangs.
PROGRAM_SECONDS_MAX = 3600
LOGS = pathlib.Path(__file__).resolve().parent.parent / "target/test-logs"


class Program:
    running, ending, changing, printing = set(), False, threading.Lock(), threading.Lock()

    def __init__(self, name, command, folder, package):
        self.name, self.command, self.folder, self.package = name, command, folder, package

    def run(self, threads, niceness):
        """Runs it and prints what it printed, when it is over. Returns whether all passed, and what it skipped."""
        began = time.monotonic()
        env = dict(os.environ, CARGO_PKG_NAME=self.package, CARGO_MANIFEST_DIR=str(self.folder))
        env.setdefault("RUST_TEST_THREADS", str(threads))
        log = LOGS / f"{self.name}.log"
        with log.open("w") as out, self.changing:
            if self.ending:
                return False, []
            # A file, not a pipe: what outlives the program may keep it open.
            process = subprocess.Popen(["nice", "-n", str(niceness), *self.command], cwd=self.folder, env=env,
                                       stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
            self.running.add(process)
        try:
            code = process.wait(PROGRAM_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = f"it hangs, after {PROGRAM_SECONDS_MAX} s"
        with self.changing:
            self.running.discard(process)
        said = log.read_text(errors="replace")
        with self.printing:
            print(f"     Running {self.name} ({time.monotonic() - began:.0f} s)\n{said}", flush=True)
            if code:
                print(f"error: {self.name} failed: {code}", flush=True)
        return code == 0, [line for line in said.splitlines() if line.startswith("SKIPPED")]

    @classmethod
    def end_all(cls):
        with cls.changing:
            cls.ending = True
            for process in cls.running:
                os.killpg(process.pid, signal.SIGTERM)


def programs(tier):
    """Builds the programs. Returns them, and the documentation tests."""
    command = ["cargo", "test", *CARGO, "--no-run", "--message-format", "json-render-diagnostics"]
    built = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if built.returncode:
        sys.exit(built.returncode)
    found = []
    for message in map(json.loads, built.stdout.splitlines()):
        if not message.get("executable") or not message["profile"]["test"]:
            continue
        folder, target = pathlib.Path(message["manifest_path"]).parent, message["target"]
        kind = "lib" if target["kind"] == ["lib"] else target["name"]
        found.append(Program(f"{folder.name} {kind}", [message["executable"], *tier], folder, folder.name))
    doc = ["cargo", "test", *CARGO, "--doc", "--no-fail-fast", "--", *tier]
    return [*found, Program("documentation", doc, pathlib.Path.cwd(), "")]


def main():
    commit = sys.argv[1:] != ["--all"]
    for name in COMMIT_ENVIRONMENT:
        os.environ.pop(name, None)
    chosen = programs(SKIP if commit else [])
    LOGS.mkdir(parents=True, exist_ok=True)
    if commit:
        os.environ.update(COMMIT_ENVIRONMENT)
        chosen = [program for program in chosen if program.name not in FULL_PROGRAMS]
    began = time.monotonic()
    order = COMPUTE + WAIT
    chosen.sort(key=lambda program: order.index(program.name) if program.name in order else len(order))
    cpus = os.cpu_count() or 1
    with concurrent.futures.ThreadPoolExecutor(1) as compute, concurrent.futures.ThreadPoolExecutor(1) as wait:
        runs = [
            compute.submit(program.run, cpus, 5) if program.name in COMPUTE
            else wait.submit(program.run, WAITING_TESTS_EACH_CPU * cpus, 0)
            for program in chosen
        ]
        try:
            results = [run.result() for run in runs]
        except BaseException:
            Program.end_all()
            raise
    skipped = sorted({line for _, lines in results for line in lines})
    print(*skipped, sep="\n")
    passed = sum(ok for ok, _ in results)
    print(f"{passed} of {len(runs)} test programs passed, {len(skipped)} tests skipped, "
          f"in {time.monotonic() - began:.0f} s after the build")
    sys.exit(passed < len(runs))


if __name__ == "__main__":
    main()
