"""The table of scripts/servers-report: one row for each file of results in the folder that is named."""

import pathlib
import re
import sys

# The modules of the tests, as they begin, and the columns that they are counted in.
COLUMNS = {
    "contract": "contract::redis70::",
    "on a Cluster": "contract::cluster70::",
    "behind a Sentinel": "contract::sentinel::",
    "over TLS": "contract::tls::",
    "faults": "faults::",
    "topologies": "topologies::",
}


def cell(module, outcomes, skipped, left_out):
    """What became of the tests of a module; of each, the outcomes in their order."""
    ours = {test: seen for test, seen in outcomes.items() if test.startswith(module)}
    without = sum(test in skipped for test in ours)
    passed = sum(seen[-1] == "ok" for seen in ours.values()) - without
    again = sum(seen[-1] == "ok" and "FAILED" in seen for seen in ours.values())
    failed = sum(seen[-1] == "FAILED" for seen in ours.values())
    older = sum(test.startswith(module) for test in left_out)
    words = [str(passed)] if passed or not without else []
    words += [f"{again} of them at a later try"] if again else []
    words += [f"{without} skipped"] if without else []
    words += [f"{older} left out"] if older else []
    words += [f"{failed} FAILED"] if failed else []
    return ", ".join(words)


def row(generation, text):
    """The row of a generation, and the commit that it is about."""
    version = re.search(rf"reported: {generation} is (.*)$", text, re.MULTILINE)
    commit = re.search(r"^commit: (.*)$", text, re.MULTILINE)
    if not version or not commit:
        sys.exit(f"servers-report: the results of {generation} are not whole: run scripts/servers-report {generation}")
    outcomes = {}
    # One after the other, a test's notice of what it skips comes between its name and its outcome.
    line = r"^test (\S+) \.\.\. (?:SKIPPED: .*\n)*.*?(ok|FAILED)$"
    for test, outcome in re.findall(line, text, re.MULTILINE):
        outcomes.setdefault(test, []).append(outcome)
    skipped = set(re.findall(r"SKIPPED: (\S+) needs", text))
    left_out = re.findall(r"^left out: (\S+)$", text, re.MULTILINE)
    cells = [cell(module, outcomes, skipped, left_out) for module in COLUMNS.values()]
    return f"| {generation} | {version[1]} | {' | '.join(cells)} |", commit[1]


files = sorted(pathlib.Path(sys.argv[1]).glob("*.txt"))
if not files:
    sys.exit("servers-report: no results: run scripts/servers-report")
rows, commits = zip(*(row(file.stem, file.read_text(errors="replace")) for file in files))
print(f"""# The servers of the tests

Made by `scripts/servers-report table` from the output of the tests at commit {", ".join(sorted(set(commits)))}; not edited.
*server* is what the servers report of themselves. A number is how many tests passed while every server in them was of that
generation; *skipped* are those that need TLS, where the server is built without; *left out* are those about what that generation
does not have. A later try runs one test after the other.

| generation | server | {" | ".join(COLUMNS)} |
|---|---|{"---|" * len(COLUMNS)}""")
print("\n".join(rows))
print("""
- *contract*: what every store must do: on one server, on a Cluster, behind a Sentinel with a replica, over TLS.
- *faults*: what each fault may cost, see [guarantees](guarantees.md#what-each-fault-costs).
- *topologies*: failovers of Sentinels, slots that move, replicas that are behind.

`scripts/test` runs what differs between generations on all of them, and the rest on Redis 7.0. The tests beside
Redisson's own jars have [a matrix of their own](interop-report.md). Redis before 6.2 does not work.""")
