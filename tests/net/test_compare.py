# SPDX-License-Identifier: Apache-2.0
"""bench/compare.py: which cells, what is asked of peers, what becomes of the figures. Peers are played by
small scripts; nothing is measured."""
import os
import sys
import unittest

import ranks

BENCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench")
sys.path.insert(0, BENCH)
import coll_peers  # noqa: E402
import coll_results as results  # noqa: E402
import compare  # noqa: E402
from compare_peers import Failed  # noqa: E402

CELL = results.Cell("shm", "allreduce", 8, 2)
CONTROLS = [("bbr", []), ("cubic", ["ns"])]
PLAYED = """
import sys, time
print("noise", file=sys.stderr)
for line in sys.stdin:
    op = line.split()[0]
    if op == "hello":
        print("hello no: not offered")
    elif op == "hang":
        time.sleep(60)
    elif op == "die":
        sys.exit("a reason")
    elif op == "wrong":
        print("wrong 2 8 1.5 2.5 1.0 5 100 7")
    else:
        print("%s 2 %s 1.5 2.5 1.0 5 100 0" % (op, line.split()[1]))
    sys.stdout.flush()
"""


def row(who, us, number=0, cell=CELL, state="near", control=None, way=None):
    return {"round": number, "cell": cell, "who": who, "way": way or cell.op, "us": us, "p99": us,
            "state": state, "control": control, "more": {}, "probe_ns": [50, 50]}


class Choices(unittest.TestCase):
    def test_without_words_everything_is_chosen(self):
        choice = compare.Choice(None)
        self.assertEqual(choice.sections, ["shm", "alloc", "tcp", "cubic"])
        self.assertEqual(choice.paths(), ["shm", "tcp"])
        self.assertEqual(len(choice.cells("shm", 2)), 31)

    def test_words_of_one_kind_are_alternatives(self):
        choice = compare.Choice("alloc n2,n16 allreduce broadcast 8,3M")
        self.assertEqual((choice.sections, choice.ranks), (["alloc"], [2, 16]))
        self.assertEqual(choice.ops, ["allreduce", "broadcast"])
        self.assertEqual(choice.sizes, [8, 3 << 20])
        self.assertEqual(choice.paths(), ["shm"])
        self.assertEqual(len(choice.cells("shm", 2)), 4)

    def test_a_size_leaves_out_what_has_none(self):
        self.assertNotIn("barrier", compare.Choice("8").ops)
        self.assertIn("barrier", compare.Choice("8 barrier").ops)

    def test_an_unknown_word_is_named(self):
        for word in ("allreduse", "n1", "K", "8Q"):
            with self.assertRaisesRegex(ValueError, word):
                compare.Choice("shm " + word)


class Ratios(unittest.TestCase):
    def found(self, rows, section="shm"):
        return results.compare_cell(rows, CELL, section, CONTROLS)

    def test_the_value_is_the_median_of_the_rounds_own_ratios(self):
        rows = []
        for number, (weft, first, second) in enumerate([(1, 2, 9), (2, 10, 6), (1, 5, 4)]):
            rows += [row("weft", weft, number), row("openmpi", first, number),
                     row("mpich", second, number)]
        found = self.found(rows)
        self.assertEqual(found["ratio"], 3)  # of 2, 3, 4
        self.assertEqual((found["best"], found["rounds"]), ("mpich", 3))

    def test_rounds_whose_state_changed_do_not_count(self):
        rows = [row("weft", 1), row("openmpi", 2), row("weft", 1, 1, state="changed"),
                row("openmpi", 100, 1, state="changed")]
        self.assertEqual(self.found(rows)["ratio"], 2)

    def test_without_a_figure_there_is_no_ratio(self):
        self.assertIsNone(self.found([row("weft", 1)]))
        self.assertIsNone(self.found([row("weft", None), row("openmpi", 3)])["ratio"])

    def test_sections_take_their_own_weft_and_their_own_peers(self):
        rows = [row("weft", 1), row("weft alloc", 4), row("openmpi", 8)]
        self.assertEqual(self.found(rows)["ratio"], 8)
        self.assertEqual(self.found(rows, "alloc")["ratio"], 2)
        cell = CELL._replace(path="tcp")
        rows = [row("weft", 2, cell=cell), row("gloo bbr", 6, cell=cell, control="bbr"),
                row("gloo cubic", 4, cell=cell, control="cubic")]
        ratios = [results.compare_cell(rows, cell, section, CONTROLS)["ratio"]
                  for section in ("tcp", "cubic")]
        self.assertEqual(ratios, [3, 2])

    def test_means_are_geometric_and_the_lowest_is_named(self):
        found = [dict(section="shm", ratio=ratio, cell=CELL, best="mpich") for ratio in (1, 4, 16)]
        (section, mean, count, lowest), = results.means_of(found)
        self.assertEqual((section, count, lowest["ratio"]), ("shm", 3, 1))
        self.assertAlmostEqual(mean, 4)

    def test_the_page_has_one_result_per_program_and_cell(self):
        rows = [row("openmpi", 3, 0, way="a"), row("openmpi", 2, 0, way="b"), row("openmpi", 6, 1),
                row("weft", 1, 1)]
        page = results.medians(rows)
        self.assertEqual([(one["who"], one["time_us"]["p50"]) for one in page],
                         [("openmpi", 4), ("weft", 1)])
        self.assertAlmostEqual(page[1]["busbw_gbs"], 0.008)


class FarBehind(unittest.TestCase):
    def test_a_peer_ten_times_behind_the_best_one_is_left_out(self):
        rounds = compare.Rounds(None, None, None)
        rounds.leave_out_far_behind(CELL, [row("weft", 0.1), row("openmpi", 2), row("mpich", 21),
                                           row("gloo", 19), row("other", None)])
        self.assertEqual(list(rounds.left_out), [(CELL, "mpich", "allreduce")])


class Jobs(unittest.TestCase):
    def setUp(self):
        self.peer = coll_peers.Peer("played", "shm", None, {"allreduce": ["a", "b"]},
                                    lambda *_: [sys.executable, "-c", PLAYED])
        self.peer.open(2)
        self.addCleanup(self.peer.close)
        self.peer.await_open()

    def test_it_is_asked_again_and_again(self):
        for count in (8, 16):
            answer = self.peer.run(CELL._replace(bytes=count), "allreduce", 50)
            self.assertEqual((answer.us, answer.p99, answer.bytes), (1.5, 2.5, count))
        self.assertEqual(self.peer.ways_of("allreduce"), ["a", "b"])
        self.assertEqual(self.peer.ways_of("barrier"), ["barrier"])

    def test_wrong_elements_are_no_figure(self):
        with self.assertRaisesRegex(Failed, "7 elements are wrong"):
            self.peer.run(CELL, "wrong", 50)

    def test_who_dies_says_why_and_is_not_asked_again(self):
        with self.assertRaisesRegex(Failed, "a reason"):
            self.peer.run(CELL, "die", 50)
        with self.assertRaisesRegex(Failed, "is not running"):
            self.peer.run(CELL, "allreduce", 50)

    def test_who_hangs_is_ended(self):
        child = self.peer.job.child
        with self.assertRaisesRegex(Failed, "no answer within"):
            self.peer.job.ask("hang", 8, 50, "batch", 0.2)
        self.peer.close()
        self.assertIsNotNone(child.poll())


if __name__ == "__main__":
    ranks.main()
