"""Tests of the tables, the plots and the page they go into, on invented runs."""

import os
import unittest

import goals
import grow
import plan
import publish
import report

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
PAGE = os.path.join(ROOT, publish.PAGE)
GOALS_PAGE = os.path.join(ROOT, "docs/testing.md")


def run_of(part, rival, workload, number, slower):
    run = {"round": number, "rival": rival.name, "workload": workload.name, "told": [], "others": 0, "steal": 0}
    if plan.excused(rival, workload):
        return {**run, "told": [f"not asked: {plan.excused(rival, workload)}"]}
    run |= {"hello": {"version": "1", "runs_on": "x"}, "rate": 8000 / slower, "overlaps": 0, "errors": 0}
    if workload.shape != "turns":
        what = "waiter" if workload.shape == "idle" else "lock"
        return run | {
            f"client_bytes_a_{what}": 900, f"server_bytes_a_{what}": 300, "client_cpu_of_a_core": 0.01, "connections": 2,
            "server_cpu_of_a_core": 0.02, f"commands_per_s_a_{what}": 0.01, "commands_per_s": 0.5, "bytes_per_s": 9, "reads_per_s": 0.5,
        }  # fmt: skip
    run |= {"scripts_each": 2, "script_us": 20, "server_cpu_us_each": 80, "client_cpu_us_each": 90}
    if workload.is_pairs:
        return run | {"pair_p50_us": 110 * slower}
    return run | {"handovers_per_s": 8000 / slower, "handover_p50_us": 90 * slower, "wait_max_over_expected": slower}


def times_of(rival, workload):
    """Returns how many times slower than fairlock it is."""
    return 1 if rival.name != "redisson-fair" else 10 if workload.processes == 1 else 20


def everything(rounds=5):
    result = {}
    for part in plan.PARTS:
        rivals = [rival for rival in plan.RIVALS if part.has(rival) and not rival.control]
        # In the third round the machine was slow for all rivals.
        slow = lambda number: 3 if number == 2 else 1  # noqa: E731
        result[part.name] = {
            "part": part.name,
            "machine": {"processors": "2", "kernel": "6", "memory_gib": 1, "server": "Redis", "commit": "c"},
            "settings": {"command": "c"},
            "rounds": [
                {"at": "now", "load": 0, "took_s": 6, "yardstick": {"ping_p50_us": 50, "ping_p99_us": 90, "evalsha_per_s": 9}}
                for _ in range(rounds)
            ],
            "runs": [
                run_of(part, rival, workload, number, slow(number) * times_of(rival, workload))
                for number in range(rounds)
                for rival in rivals
                for workload in part.workloads
            ],
        }
    return result


class Tables(unittest.TestCase):
    def test_the_page_has_every_block_once_and_no_other(self):
        with open(PAGE) as file:
            names = [found[2] for found in publish.BLOCK.finditer(file.read())]
        self.assertEqual(sorted(names), sorted(grow.BLOCKS))

    def test_what_was_not_measured_is_told_and_filling_in_twice_changes_nothing(self):
        with open(PAGE) as file:
            page = file.read()
        empty = publish.filled(page, {})
        self.assertEqual(empty.count(grow.NOTHING), len(grow.BLOCKS))
        full = publish.filled(page, everything())
        self.assertEqual(full.count(grow.NOTHING), 1, "only `fairlock-bench own`, which is not made up")
        self.assertEqual(publish.filled(full, everything()), full)
        self.assertEqual(publish.filled(full, {}), empty)

    def test_every_workload_has_a_table(self):
        text = report.tables(everything())
        for workload in plan.workloads():
            self.assertIn(f"### {workload.name}\n", text)

    def test_beside_readers_no_hand_over_is_told_and_shares_are_the_measure(self):
        text = report.tables(everything())
        of = lambda name: text.split(f"### {name}\n")[1].split("\n###")[0]  # noqa: E731
        self.assertNotIn("hand-overs", of("readers-90-in-8"))
        self.assertIn("fairlock-rw's is x times", of("readers-90-in-8"))
        self.assertIn("fairlock-semaphore's is x times", of("permits-10"))
        self.assertNotIn("rw", of("contended-100"), "a part of locks for one has no others")

    def test_plots_have_a_line_for_each_rival(self):
        drawn = publish.plots(everything())
        self.assertEqual(drawn["handovers-in-1.svg"].count("<polyline"), 16)
        self.assertEqual(drawn["distance.svg"].count("<polyline"), 4)

    def test_figures_of_goals_are_the_worst(self):
        found = {name: value for name, value, _ in goals.found(everything())}
        self.assertEqual(found["redisson-at-100"], 10, "by round: a slow one is slow for both")
        self.assertEqual((found["round-trips"], found["scripts-each"], found["script-ms"]), (2, 2, 0.02))
        self.assertEqual(found["idle-commands"], 0.5)
        names = [f"{name}-{tasks}" for name in ("simple-of-rslock", "of-redis-lock") for tasks in (1, 64)]
        self.assertEqual([found[name] for name in names], [1, 1, 1, 1], "as fast as each other, also in the slow round")
        self.assertEqual(found["pings-beside-rivals"], 1.8)
        self.assertEqual(found["scripts-each-unordered"], 2)
        self.assertEqual([found["writers-of-fair"], found["permits-of-fair"]], [1, 1], "as fast as the fair lock")
        self.assertEqual(found["writer-waits"], 1)

    def test_goals_are_reached_explained_or_missed(self):
        by_id = {goal.id: goal for goal in goals.GOALS}
        verdicts = [by_id["N7"].verdict(figure) for figure in (8, 5, 4.9, None)]
        self.assertEqual(verdicts, ["reached", "explained", "MISSED", "not measured"])
        self.assertEqual([by_id["N4"].verdict(figure) for figure in (2.1, 2.2)], ["reached", "MISSED"])
        lines, bad = goals.judged({})
        self.assertTrue(bad and all(line.startswith("not measured") for line in lines))

    def test_the_goals_are_those_of_the_page(self):
        with open(GOALS_PAGE) as file:
            rows = [line for line in file if line.startswith("| N")]
        for goal in goals.GOALS:
            explained = f" explained up to {goal.explained} " if goal.explained else ""
            self.assertEqual(sum(row.startswith(f"| {goal.id} | {goal.text} |{explained}") for row in rows), 1, goal.id)


if __name__ == "__main__":
    unittest.main()
