"""Runs the comparison; scripts/bench-compare builds its dependencies and calls it."""

import argparse
import json
import os
import platform
import resource
import signal
import subprocess
import sys
import time
from fnmatch import fnmatch

import glance
import goals
import plan
import publish
import report
from measure import measure
from server import Etcd, Server

# Some rivals use one connection for each waiter.
CLIENTS = 30_000
# Thousands of turns of a fast rival, and a few polls of a slow one; there are five rounds.
SECONDS = 0.7


def arguments():
    parser = argparse.ArgumentParser(prog="scripts/bench-compare")
    parser.add_argument("--smoke", action="store_true", help="each driver for a second, two waiters; no figures")
    parser.add_argument("--parts", default="all", help="names or patterns, separated by commas")
    parser.add_argument("--rivals", default="all", help="the same of rivals")
    parser.add_argument("--workloads", default="all", help="the same of workloads")
    parser.add_argument("--rounds", type=int, default=0, help="interleaved rounds, if not as the plan says")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"each window, where the plan says nothing ({SECONDS})")
    parser.add_argument("--minutes", type=float, default=0, help="begin no round that would end later")
    parser.add_argument("--again", action="store_true", help="measure what is there already once more")
    parser.add_argument("--out", default="target/bench-compare/results")
    parser.add_argument("--render", action="store_true", help="tables and plots of what --out has; measures nothing")
    parser.add_argument("--publish", action="store_true", help="with --render: into docs/ too")
    parser.add_argument("--glance", action="store_true", help="the README's picture from docs/performance.md; measures nothing")
    parser.add_argument("--goals", action="store_true", help="the goals of speed beside what --out has; measures nothing")
    parser.add_argument("--list", action="store_true", help="parts with their times, rivals, workloads")
    for internal in ("server", "rust", "go", "java", "jars", "node", "program", "redispy"):
        parser.add_argument(f"--{internal}", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


def chosen(all_of_them, patterns, what):
    if patterns == "all":
        return all_of_them
    patterns = patterns.split(",")
    for pattern in patterns:
        if not any(fnmatch(one.name, pattern) for one in all_of_them):
            sys.exit(f"unknown {what}: {pattern}")
    return [one for one in all_of_them if any(fnmatch(one.name, pattern) for pattern in patterns)]


class Deployment:
    """The servers under measurement, and the programs that connect to them."""

    def __init__(self, args):
        self.args = args
        self.way = [f"{args.rust}/distance"]
        self.redis, self.etcd = Server(args.server, CLIENTS), None

    def server_of(self, rival):
        if rival.store == "etcd" and not self.etcd:
            self.etcd = Etcd(f"{self.args.go}/etcd")
        return self.etcd if rival.store == "etcd" else self.redis

    def url_of(self, rival):
        server = self.server_of(rival)
        return server.host_url if rival.store == "host" else server.url(server.port)

    def command_of(self, rival):
        here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        return [word.format(**vars(self.args), here=here) for word in rival.command]

    def rest(self):
        """Stops the servers that the next measurement does not use."""
        if self.etcd:
            self.etcd.stop()
            self.etcd = None

    def stop(self):
        self.rest()
        self.redis.stop()

    def yardstick(self, seconds):
        ran = subprocess.run(
            [f"{self.args.rust}/yardstick", self.redis.url(self.redis.port), str(seconds)],
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        if ran.returncode != 0:
            sys.exit(f"the yardstick does not work: {ran.stderr[-500:]}")
        self.redis.clear()
        return json.loads(ran.stdout)

    def machine(self):
        with open("/proc/cpuinfo") as file:
            models = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
        info = self.redis.info()
        version = info.get("valkey_version") or info["redis_version"]
        git = subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True, text=True)
        return {
            "processors": f"{os.cpu_count()} x {models[0] if models else platform.machine()}",
            "kernel": platform.release(),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
            "server": f"{'Valkey' if 'valkey_version' in info else 'Redis'} {version}",
            "commit": git.stdout.strip(),
        }


def guilty(rival, workload, result):
    """Returns what is wrong with a smoke run: a driver that does not do its job."""
    wrong = [text for text in result["told"] if text != "does not renew by itself" and not text.startswith("not asked")]
    if len(wrong) < len(result["told"]):
        return wrong
    if rival.name.startswith("redisson.rs-fair"):
        # A waiter that reaches the head of its queue before the holder has left gets an error; that is expected.
        wrong = [text for text in wrong if not text.startswith("errors, the first: Failed to acquire lock")]
    broken = result.get("overlaps", 0) + result.get("lost_updates", 0)
    if rival.control:
        # Without time spent under the lock, nothing can break.
        must = workload.counter or workload.hold_ms
        return ["no overlap was found where there is no lock"] if must and not broken else []
    if workload.shape == "turns" and result.get("grants", 0) < 1:
        wrong.append("no grant")
    if workload.wait_ms and not result.get("gave_up"):
        wrong.append("nobody gave up")
    return wrong


def settings(args, part, rivals, workloads):
    """The settings that must be equal for rounds to belong to one part."""
    return {
        "window_s": args.seconds,
        "rivals": [rival.name for rival in rivals],
        "workloads": [workload.name for workload in workloads],
        "command": "scripts/bench-compare " + " ".join(part_words(args, part)),
    }


def part_words(args, part):
    words = [f"--parts {part.name}"]
    words += [f"--{name} {getattr(args, name)}" for name in ("rivals", "workloads") if getattr(args, name) != "all"]
    words += [f"--seconds {args.seconds:g}"] if args.seconds != SECONDS else []
    return words + ([f"--rounds {args.rounds}"] if args.rounds else [])


def begun(args, deployment, part, wanted):
    """Returns the existing data of this part if it can be continued."""
    path = os.path.join(args.out, f"{part.name}.json")
    machine = deployment.machine()
    fresh = {"part": part.name, "machine": machine, "settings": wanted, "rounds": [], "runs": []}
    if args.again or args.smoke or not os.path.exists(path):
        return fresh
    with open(path) as file:
        data = json.load(file)
    enough = len(data["rounds"]) >= (part.name == "own" or args.rounds or part.rounds)
    if not enough and (data["machine"], data["settings"]) != (machine, wanted):
        sys.exit(f"{path} is of another machine, commit or plan: --again begins anew, another --out keeps it")
    return data


def round_of(deployment, part, rivals, workloads, number, args, data):
    """Runs one round of a part. Returns how many of its runs were bad, which only a smoke run checks."""
    bad = 0
    began = time.monotonic()
    load, stamp = os.getloadavg()[0], time.strftime("%Y-%m-%d %H:%M", time.gmtime())
    yardstick = deployment.yardstick(0.5 if args.smoke else 1)
    runs = []
    # Interleaved as A B C, so that other load on the machine affects all of them.
    for rival in rivals:
        hopeless = {run["workload"] for run in data["runs"] if run["rival"] == rival.name and run.get("silent")}
        for workload, result in measure(deployment, rival, workloads, args.seconds, args.smoke, hopeless):
            runs.append({"round": number, "rival": rival.name, "workload": workload.name, **result})
            wrong = guilty(rival, workload, result) if args.smoke else []
            bad += bool(wrong)
            print(line_of(part, number, rival, workload, result, wrong), flush=True)
        deployment.rest()
    took_s = round(time.monotonic() - began, 1)
    data["rounds"].append({"at": stamp, "load": load, "took_s": took_s, "yardstick": yardstick})
    data["runs"] += runs
    return bad


def own(args, deployment, part, data):
    """Runs `fairlock-bench own` on the same server, which computes its own rounds, medians and ratios."""
    began = time.monotonic()
    load, stamp = os.getloadavg()[0], time.strftime("%Y-%m-%d %H:%M", time.gmtime())
    url = deployment.redis.url(deployment.redis.port)
    command = [f"{args.program}-bench", "own", url, *plan.OWN]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if ran.returncode != 0:
        sys.exit(f"fairlock-bench own: {ran.stderr[-500:]}")
    deployment.redis.clear()
    data["bench"] = json.loads(ran.stdout)
    data["settings"]["command"] += f" (fairlock-bench own {' '.join(plan.OWN)})"
    data["rounds"].append({"at": stamp, "load": load, "took_s": round(time.monotonic() - began, 1), "yardstick": {}})
    print(f"{part.name}: {ran.stdout.strip()}", flush=True)


def line_of(part, number, rival, workload, result, wrong):
    figures = [f"{result['rate']:.0f}/s"] if "rate" in result else []
    if "handover_p50_us" in result:
        figures.append(f"p50 {result['handover_p50_us']:.0f} us")
    if result.get("others", 0) > 0.1:
        figures.append(f"others {100 * result['others']:.0f} %")
    told = "; ".join(wrong if wrong else result["told"])
    mark = "BAD " if wrong else ""
    return f"{mark}{part.name} {number + 1} {workload.name} {rival.name}: {', '.join(figures)} {told}".rstrip()


def listing(parts, rivals, args):
    total = 0
    for part in parts:
        rounds = 1 if part.name == "own" else args.rounds or part.rounds
        minutes = rounds * plan.seconds(part, [rival for rival in rivals if part.has(rival)], args.seconds) / 60
        total += minutes
        print(f"{part.name}: {part.about}; {rounds} rounds, about {minutes:.1f} minutes")
        print("    " + " ".join(workload.name for workload in part.workloads))
        print("    " + " ".join(rival.name for rival in rivals if part.has(rival)))
    print(f"all: about {total:.0f} minutes")


def main():
    args = arguments()
    parts = chosen(plan.SMOKE if args.smoke else plan.PARTS, args.parts, "part")
    all_workloads = [workload for part in parts for workload in part.workloads]
    workloads = {workload.name for workload in chosen(all_workloads, args.workloads, "workload")}
    rivals = [rival for rival in chosen(plan.RIVALS, args.rivals, "rival") if args.smoke or not rival.control]
    if args.list:
        return listing(parts, rivals, args)
    if args.glance:
        return glance.write(publish.PAGE)
    if args.goals:
        lines, bad = goals.judged(report.load(args.out))
        print("\n".join(lines))
        sys.exit(bad)
    if args.render:
        return publish.render(args.out, args.publish)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2 * CLIENTS)), hard))
    os.environ["PYTHONPATH"] = args.redispy
    # So that a SIGTERM stops the servers too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    until = time.monotonic() + args.minutes * 60 if args.minutes else float("inf")
    deployment, bad, done = Deployment(args), 0, 0
    try:
        for part in parts:
            asked = [rival for rival in rivals if part.has(rival)]
            wanted = [workload for workload in part.workloads if workload.name in workloads]
            if part.name != "own" and not (asked and wanted):
                continue
            data = begun(args, deployment, part, settings(args, part, asked, wanted))
            rounds = 1 if args.smoke or part.name == "own" else args.rounds or part.rounds
            for number in range(len(data["rounds"]), rounds):
                if time.monotonic() + plan.seconds(part, asked, args.seconds) > until:
                    print(f"{part.name}: no time for round {number + 1}")
                    break
                if part.name == "own":
                    own(args, deployment, part, data)
                else:
                    bad += round_of(deployment, part, asked, wanted, number, args, data)
                if not args.smoke:
                    report.write_json(os.path.join(args.out, f"{part.name}.json"), data)
            done += len(data["runs"])
    finally:
        deployment.stop()
    if args.smoke:
        print(f"smoke: {done} runs, {bad} bad")
        sys.exit(1 if bad else 0)
    publish.render(args.out, False)


main()
