"""Runs the comparison; scripts/bench-compare builds what it needs and calls it."""

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

import plan
import report
from measure import measure
from server import Server

# Each waiter of some rivals is a connection.
CLIENTS = 30_000


def arguments():
    parser = argparse.ArgumentParser(prog="scripts/bench-compare")
    parser.add_argument("--smoke", action="store_true", help="each driver for a second, two waiters; no figures")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (5)")
    parser.add_argument("--seconds", type=float, default=3, help="each window (3)")
    parser.add_argument("--rivals", default="all", help="names or patterns (redis*), separated by commas")
    parser.add_argument("--workloads", default="all", help="the same of workloads")
    parser.add_argument("--out", default="target/bench-compare/results")
    parser.add_argument("--list", action="store_true", help="names of rivals and workloads")
    for internal in ("server", "rust", "go", "java", "jars", "node", "program", "redispy"):
        parser.add_argument(f"--{internal}", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


def chosen(all_of_them, patterns):
    patterns = ["*"] if patterns == "all" else patterns.split(",")
    for pattern in patterns:
        if not any(fnmatch(one.name, pattern) for one in all_of_them):
            sys.exit(f"unknown: {pattern}")
    return [one for one in all_of_them if any(fnmatch(one.name, pattern) for pattern in patterns)]


def command_of(rival, args):
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    places = {**vars(args), "here": here}
    return [word.format(**places) for word in rival.command]


def machine(server):
    with open("/proc/cpuinfo") as file:
        models = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    info = server.info()
    version = info.get("valkey_version") or info["redis_version"]
    return {
        "processors": f"{os.cpu_count()} x {models[0] if models else platform.machine()}",
        "kernel": platform.release(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "server": f"{'Valkey' if 'valkey_version' in info else 'Redis'} {version}",
        "load_at_start": os.getloadavg()[0],
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True).stdout.strip(),
    }  # fmt: skip


def yardstick(args, server, seconds):
    ran = subprocess.run(
        [f"{args.rust}/yardstick", server.url, str(seconds)], capture_output=True, text=True, timeout=120
    )
    if ran.returncode != 0:
        sys.exit(f"the yardstick does not work: {ran.stderr[-500:]}")
    server.clear()
    return json.loads(ran.stdout)


def guilty(rival, workload, result):
    """What is wrong with a smoke run: a driver that does not do what it is there for."""
    wrong = [text for text in result["told"] if text != "does not renew by itself"]
    broken = result.get("overlaps", 0) + result.get("lost_updates", 0)
    if rival.control:
        # Nothing breaks where nothing takes time under the lock.
        must = workload.counter or workload.hold_ms
        return ["no overlap was found where there is no lock"] if must and not broken else []
    if workload.shape == "turns" and result.get("grants", 0) < 1:
        wrong.append("no grant")
    if workload.wait_ms and not result.get("gave_up"):
        wrong.append("nobody gave up")
    return wrong


def main():
    args = arguments()
    if args.list:
        print("rivals:", *(rival.name for rival in plan.RIVALS))
        print("workloads:", *(workload.name for workload in plan.WORKLOADS))
        return
    workloads = chosen(plan.SMOKE if args.smoke else plan.WORKLOADS, args.workloads)
    rivals = [rival for rival in chosen(plan.RIVALS, args.rivals) if args.smoke or not rival.control]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2 * CLIENTS)), hard))
    os.environ["PYTHONPATH"] = args.redispy
    # So that the server ends too, whoever ends this.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    server = Server(args.server, CLIENTS)
    rounds, window_s = (1, 1.0) if args.smoke else (args.rounds, args.seconds)
    data = {"machine": machine(server), "window_s": window_s, "yardsticks": [], "runs": []}
    bad = 0
    try:
        for number in range(rounds):
            data["yardsticks"].append(yardstick(args, server, 0.5 if args.smoke else 2))
            # A B C of each workload, so that what the machine does meanwhile happens to all of them.
            for workload in workloads:
                for rival in (rival for rival in rivals if rival.host == workload.host):
                    result = one(args, server, rival, workload, window_s)
                    data["runs"].append(
                        {"round": number, "rival": rival.name, "workload": workload.name, **result}
                    )
                    wrong = guilty(rival, workload, result) if args.smoke else []
                    bad += bool(wrong)
                    print(line_of(number, rival, workload, result, wrong), flush=True)
            if not args.smoke:
                report.write(data, args.out)
    finally:
        server.stop()
    if args.smoke:
        print(f"smoke: {len(data['runs'])} runs, {bad} bad")
        sys.exit(1 if bad else 0)
    print(f"written: {args.out}/results.json, tables.md and the plots beside them")


def one(args, server, rival, workload, window_s):
    each = -(-workload.tasks // workload.processes)
    if each > rival.tasks_max:
        return {"told": [f"not asked: {rival.reason}"]}
    window_s = window_s if args.smoke else workload.window_s or window_s
    return measure(server, command_of(rival, args), rival, workload, window_s, args.smoke)


def line_of(number, rival, workload, result, wrong):
    figures = [f"{result['rate']:.0f}/s"] if "rate" in result else []
    if "handover_p50_us" in result:
        figures.append(f"p50 {result['handover_p50_us']:.0f} us")
    told = "; ".join(wrong if wrong else result["told"])
    mark = "BAD " if wrong else ""
    return f"{mark}round {number + 1} {workload.name} {rival.name}: {', '.join(figures)} {told}".rstrip()


main()
