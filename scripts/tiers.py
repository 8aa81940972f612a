"""Builds all test programs and runs them side by side: those that wait beside one that computes. For scripts/test."""

import concurrent.futures
import json
import os
import pathlib
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
# Longest first. One of these runs at a time, two tests for each processor; they yield to those that wait.
COMPUTE = ["fairlock lib", "fairlock-core main", "documentation", "fairlock-core lib"]
COMPUTING_TESTS_EACH_CPU = 2
# Longest first; the others follow. Two of them run at a time.
WAIT = ["fairlock main", "fairlock-cli main", "fairlock-torture main", "fairlock-interop main", "fairlock-testkit lib"]
# Most of their tests wait for leases to end and for servers.
WAITING_TESTS_EACH_CPU = 4
CARGO = ["--workspace", "--all-features", "--locked"]


class Program:
    def __init__(self, name, command, folder, package):
        self.name, self.command, self.folder, self.package = name, command, folder, package

    def run(self, threads, niceness):
        """Runs it and prints what it printed, when it is over. Returns whether all passed."""
        began = time.monotonic()
        env = dict(os.environ, CARGO_PKG_NAME=self.package, CARGO_MANIFEST_DIR=str(self.folder))
        env.setdefault("RUST_TEST_THREADS", str(threads))
        done = subprocess.run(["nice", "-n", str(niceness), *self.command], cwd=self.folder, env=env,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        with printing:
            print(f"     Running {self.name} ({time.monotonic() - began:.0f} s)\n{done.stdout}", flush=True)
            if done.returncode:
                print(f"error: {self.name} failed: {done.returncode}", flush=True)
        return done.returncode == 0


printing = threading.Lock()


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
    doc = ["cargo", "test", *CARGO, "--doc", "--", *tier]
    return [*found, Program("documentation", doc, pathlib.Path.cwd(), "")]


def main():
    commit = sys.argv[1:] != ["--all"]
    chosen = programs(SKIP if commit else [])
    if commit:
        os.environ.update(COMMIT_ENVIRONMENT)
        chosen = [program for program in chosen if program.name not in FULL_PROGRAMS]
    began = time.monotonic()
    order = COMPUTE + WAIT
    chosen.sort(key=lambda program: order.index(program.name) if program.name in order else len(order))
    cpus = os.cpu_count() or 1
    with concurrent.futures.ThreadPoolExecutor(1) as compute, concurrent.futures.ThreadPoolExecutor(2) as wait:
        runs = [
            compute.submit(program.run, COMPUTING_TESTS_EACH_CPU * cpus, 5) if program.name in COMPUTE
            else wait.submit(program.run, WAITING_TESTS_EACH_CPU * cpus, 0)
            for program in chosen
        ]
        passed = sum(run.result() for run in runs)
    print(f"{passed} of {len(runs)} test programs passed, in {time.monotonic() - began:.0f} s after the build")
    sys.exit(passed < len(runs))


if __name__ == "__main__":
    main()
