"""Builds all test programs and runs them side by side: those that wait beside those that compute. For scripts/test."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
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
# Two programs run at a time: one of LONGEST, one after the other, beside one of all others, which begin with BESIDE. Those
# that compute have one test more than processors, since some wait, and yield. Three programs at a time took 430 to 450 s
# instead of 500; but then threads waited for a processor for seconds, and tests failed. So did the command line's tests
# beside the library's.
LONGEST = ["fairlock main", "fairlock-cli main", "fairlock-torture main", "fairlock-interop main"]
COMPUTE = ["fairlock lib", "fairlock-core main", "documentation", "fairlock-core lib"]
# The tests of topologies are a program of their own here.
TOPOLOGIES = "fairlock main, topologies"
BESIDE = [*COMPUTE, TOPOLOGIES]
# All others. One that the build does not produce is an error: its tests would be gone.
OTHERS = [
    "fairlock errors", "fairlock observe", "fairlock sandbox", "fairlock-bench fairlock-bench", "fairlock-bench main",
    "fairlock-cli fairlock", "fairlock-examples main", "fairlock-examples several", "fairlock-exits fairlock-exits",
    "fairlock-exits main", "fairlock-hot-paths fairlock-hot-paths", "fairlock-interop fairlock-interop",
    "fairlock-interop lib", "fairlock-testkit lib", "fairlock-torture fairlock-torture",
]
# With these, another set of tests would run than the tier's.
CHANGES_TESTS = re.compile(
    "FAIRLOCK_(CASES|DIFF_.*|EXPLORE_DEEPER|FUZZ_.*|GUARD_RECORD|PAUSES|PICTURES_RECORD|SEED|SILENCE|SIMULATE_SEEDS|UPDATE_.*)"
    "|PROPTEST_.*")
# Most tests elsewhere wait for leases to end and for servers.
WAITING_TESTS_EACH_CPU = 4
CARGO = ["--workspace", "--all-features", "--locked"]
# Four times what the longest takes on a busy machine: it hangs.
PROGRAM_SECONDS_MAX = 3600
LOGS = pathlib.Path(__file__).resolve().parent.parent / "target/test-logs"


class Program:
    running, ending, changing, printing = set(), False, threading.Lock(), threading.Lock()

    def __init__(self, name, command, folder, package):
        self.name, self.command, self.folder, self.package = name, command, folder, package

    def run(self, threads, niceness):
        """Runs it and prints what it printed, when it is over. Returns whether all passed, and what was skipped or
        repeated."""
        began = time.monotonic()
        env = dict(os.environ)
        if self.package:
            # As cargo does for a test program. For cargo itself a changed name is a reason to build dependencies again.
            env.update(CARGO_PKG_NAME=self.package, CARGO_MANIFEST_DIR=str(self.folder))
        env.setdefault("RUST_TEST_THREADS", str(threads))
        log = LOGS / f"{self.name}.log"
        with log.open("w") as out, self.changing:
            if self.ending:
                return False, []
            # A file, not a pipe: what outlives the program may keep it open.
            process = subprocess.Popen(["nice", "-n", str(niceness), *self.command], cwd=self.folder, env=env,
                                       stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
            self.running.add(process)
        with contextlib.suppress(OSError):
            # Where each session has its share of the processors, niceness counts only within one.
            pathlib.Path(f"/proc/{process.pid}/autogroup").write_text(str(niceness))
        late = threading.Timer(PROGRAM_SECONDS_MAX, os.killpg, (process.pid, signal.SIGKILL))
        late.start()
        _, status, used = os.wait4(process.pid, 0)
        late.cancel()
        code = process.returncode = os.waitstatus_to_exitcode(status)
        if time.monotonic() - began >= PROGRAM_SECONDS_MAX:
            code = f"it hangs, after {PROGRAM_SECONDS_MAX} s"
        with self.changing:
            self.running.discard(process)
        said = log.read_text(errors="replace")
        code = code or self.incomplete(said)
        with self.printing:
            print(f"     Running {self.name} ({time.monotonic() - began:.0f} s, "
                  f"{used.ru_utime + used.ru_stime:.0f} s of a processor)\n{said}", flush=True)
            if code:
                print(f"error: {self.name} failed: {code}", flush=True)
        return not code, re.findall(r"(?:SKIPPED|REPEATED): .*", said)

    def incomplete(self, said):
        """What is wrong if a program ended without an error before all its tests had run, or had none to run."""
        begun = [int(number) for number in re.findall(r"^running (\d+) tests?$", said, re.M)]
        ended = re.findall(r"^test result: ok\. (\d+) passed; 0 failed; (\d+) ignored", said, re.M)
        ended = [int(passed) + int(ignored) for passed, ignored in ended]
        if begun != ended:
            return f"of {begun} tests {ended} have ended"
        if self.name in LONGEST + BESIDE and not sum(begun):
            return "it has no tests"
        return 0

    @classmethod
    def end_all(cls):
        with cls.changing:
            cls.ending = True
            for process in cls.running:
                os.killpg(process.pid, signal.SIGTERM)


def option(target):
    """The option of cargo test that selects the target; a package has one program at most."""
    return f"--test {target['name']}" if target["kind"] == ["test"] else f"--{target['kind'][0]}"


def programs(tier):
    """Builds the programs. Returns them, and the documentation tests."""
    command = ["cargo", "test", *CARGO, "--no-run", "--message-format", "json-render-diagnostics"]
    built = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if built.returncode:
        sys.exit(built.returncode)
    found, named = [], {}
    for message in map(json.loads, built.stdout.splitlines()):
        if not message.get("executable") or not message["profile"]["test"]:
            continue
        folder, target = pathlib.Path(message["manifest_path"]).parent, message["target"]
        name = f"{folder.name} {'lib' if target['kind'] == ['lib'] else target['name']}"
        named[f"-p {folder.name} {option(target)}"] = message["executable"]
        command = [message["executable"], *tier]
        if name == "fairlock main":
            found.append(Program(TOPOLOGIES, [*command, "topologies::"], folder, folder.name))
            command += ["--skip", "topologies::"]
        found.append(Program(name, command, folder, folder.name))
    expected = {*LONGEST, *BESIDE, *OTHERS} - {"documentation"}
    if {program.name for program in found} != expected:
        sys.exit(f"not the programs in scripts/tiers.py: {expected ^ {program.name for program in found}}")
    check_seeded_defects(named)
    doc = ["cargo", "test", *CARGO, "--doc", "--no-fail-fast", "--", *tier]
    return [*found, Program("documentation", doc, pathlib.Path.cwd(), "")]


def check_seeded_defects(executables):
    """Ends with an error if a seeded defect names a test that does not exist: nothing would find it."""
    table = (LOGS.parent.parent / "testing/mutants.txt").read_text()
    for program in sorted(set(re.findall(r"^test: (.*) \S+$", table, re.M))):
        listed = subprocess.run([executables[program], "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout
        for name in re.findall(rf"^test: {program} (\S+)$", table, re.M):
            if not re.search(rf"{name}.*: test$", listed, re.M):
                sys.exit(f"testing/mutants.txt names a test that does not exist: {program} {name}")


def stop(*_):
    raise KeyboardInterrupt


def main():
    commit = sys.argv[1:] != ["--all"]
    for name in COMMIT_ENVIRONMENT:
        os.environ.pop(name, None)
    changes = [name for name in os.environ if CHANGES_TESTS.fullmatch(name)]
    if changes:
        sys.exit(f"error: with {', '.join(changes)} these would not be the tests of the tier; scripts/test NAME takes them")
    if "FAIRLOCK_TEST_ONLY" in os.environ:
        print(f"note: only {os.environ['FAIRLOCK_TEST_ONLY']}, because of FAIRLOCK_TEST_ONLY", flush=True)
    # The programs have sessions of their own, which would live on.
    for number in signal.SIGTERM, signal.SIGHUP:
        # nohup ignores one.
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, stop)
    chosen = programs(SKIP if commit else [])
    LOGS.mkdir(parents=True, exist_ok=True)
    if commit:
        os.environ.update(COMMIT_ENVIRONMENT)
        chosen = [program for program in chosen if program.name not in FULL_PROGRAMS]
    began = time.monotonic()
    order = LONGEST + BESIDE
    chosen.sort(key=lambda program: order.index(program.name) if program.name in order else len(order))
    cpus = os.cpu_count() or 1

    def one_after_another(programs):
        waiting = WAITING_TESTS_EACH_CPU * cpus, 0
        return [program.run(*((cpus + 1, 5) if program.name in COMPUTE else waiting)) for program in programs]

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(one_after_another, [program for program in chosen if (program.name in LONGEST) == is_long])
            for is_long in (True, False)
        ]
        try:
            results = [result for run in runs for result in run.result()]
        except BaseException:
            Program.end_all()
            raise
    told = sorted(line for _, lines in results for line in lines)
    print(*told, sep="\n")
    skipped = sum(line.startswith("SKIPPED") for line in told)
    passed = sum(ok for ok, _ in results)
    print(f"{'commit' if commit else 'full'} tier: {passed} of {len(chosen)} test programs passed, {skipped} tests skipped, "
          f"{len(told) - skipped} repeated for want of a processor, "
          f"in {time.monotonic() - began:.0f} s after the build")
    sys.exit(passed < len(chosen))


if __name__ == "__main__":
    main()
