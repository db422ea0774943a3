"""parkade-server on real models for PARKADE_SOAK_MINUTES: mixed traffic, kill -9, SIGTERM, restarts
with other settings, damage at rest, budgets that are too small. No token may be wrong, nothing may
grow. PARKADE_SEED repeats the choices, not the moments.

    PARKADE_SOAK_MINUTES=60 PARKADE_SOAK_REPORT=FOLDER tests/soak/server_soak_test.py
"""

import os
import random
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))

from parkade_process import GEMMA, ServerTest
from soak_box import Box
from soak_figures import MINUTES, Figures, tell

# Two servers at a time, one of each list; (model, encrypted).
SIDES = ((("gemma", GEMMA, False), ("dense", "dense", False), ("sealed", "dense", True)),
         (("window", "window", False), ("hybrid", "hybrid", True),
          ("recurrent", "recurrent", False)))
ROUNDS = (2, 3, 5, 16)


class ServerSoak(ServerTest):
    def setUp(self):
        super().setUp()
        self.seed = int(os.environ.get("PARKADE_SEED") or random.randrange(1 << 32))
        print(f"PARKADE_SEED={self.seed}", flush=True)
        self.figures = Figures(threading.Lock())
        self.end = time.monotonic() + 60 * MINUTES
        self.failures = []
        self.boxes = []

    def test_mixed_traffic(self):
        sides = []
        for number, kinds in enumerate(SIDES):
            boxes = [Box(self.folder, name, kind, sealed, self.figures, f"{self.seed} {name}")
                     for name, kind, sealed in kinds]
            self.boxes += boxes
            sides.append(threading.Thread(target=self.side, args=(number, boxes)))
        for side in sides:
            side.start()
        for side in sides:
            side.join()
        self.report()
        if self.failures:
            raise self.failures[0]
        for figure in ("answers_equal", "kills", "stops", "damages", "streams_left",
                       "sessions_saved", "reused_from_slot", "reused_from_ram",
                       "reused_from_disk", "durable_checked"):
            self.assertGreater(self.figures[figure], 0, figure)

    def side(self, number, boxes):
        visit_s = min(120, 60 * MINUTES / (len(boxes) + 0.5))
        choice = random.Random(f"{self.seed} side {number}")
        try:
            while not self.over():
                for box in boxes:
                    if not self.over():
                        self.visit(box, choice, min(self.end, time.monotonic() + visit_s))
            for box in boxes:
                self.look_back(box)
        except Exception as error:  # for the thread that joins this one
            self.failures.append(error)
            for box in boxes:
                for server in (box.server, box.plain):
                    if server is not None and server.running():
                        server.kill()

    def over(self):
        return bool(self.failures) or time.monotonic() >= self.end

    def visit(self, box, choice, end):
        box.begin_visit()
        while not self.failures and time.monotonic() < end:
            box.begin_life()
            self.live(box, choice, end)
        box.end_visit()

    def live(self, box, choice, end):
        rounds = choice.choice(ROUNDS)
        acts = 1 if box.text else 3
        for number in range(rounds):
            clients = choice.randint(2, 4 if box.text else 8)
            last = number == rounds - 1 or time.monotonic() >= end
            if last and choice.random() < 0.6:
                how = choice.choice(("kill", "kill", "terminate"))
                box.life.round(clients, acts, end, (choice.randint(1, clients * acts), how))
                box.rest(clean=how == "terminate")
                return
            box.life.round(clients, acts, end)
            box.life.quiet()
            box.life.session()
            if last:
                break
        if choice.random() < 0.5:
            self.kill_at_rest(box)
        else:
            box.end_life("terminate")
            box.rest(clean=True)

    def kill_at_rest(self, box):
        """What was durable is there afterwards."""
        box.life.quiet()
        durable = box.life.durable()
        box.end_life("kill")
        box.begin_life(disk_gib=max(0.3, box.disk_gib))
        there = {c["id"]: c["durable_tokens"] for c in box.server.conversations()}
        if not box.damaged:
            lost = {i: (n, there.get(i)) for i, n in durable.items() if there.get(i, 0) < n}
            self.assertEqual(lost, {}, f"{box.name}: durable before the kill, and now")
            self.figures.add("durable_checked", len(durable))
        box.life.quiet()
        box.end_life("terminate")
        box.rest(clean=True)

    def look_back(self, box):
        """In the end the directory is whole, but for what was damaged on purpose."""
        if not os.path.isdir(box.disk):
            return
        box.begin_visit()
        box.begin_life(disk_gib=0.3)
        box.life.quiet()
        box.end_visit()
        box.verify()
        if box.damaged:
            box.repair()

    def report(self):
        figures = {"seed": self.seed, "minutes": MINUTES, "wrong_tokens": 0, "aborts": 0,
                   "failures": len(self.failures), **dict(sorted(self.figures.items()))}
        figures["wrong_tokens"] = figures.get("answers_wrong", 0)
        counts = {}
        for group in ("reused", "computed"):
            count = counts[group] = figures.pop(f"first_logprobs_{group}", 0)
            apart = figures.pop(f"first_logprobs_{group}_apart", 0)
            figures[f"first_logprob_apart_{group}"] = round(apart / max(1, count), 5)
        for box in self.boxes:
            figures |= box.growth.figures(f"{box.name}_growth_bytes")
            figures |= box.files.figures(f"{box.name}_files")
        tell("server_soak", figures)
        if not self.failures and counts["reused"] >= 200 and counts["computed"] >= 50:
            # A wrong state would tell the first tokens apart more than other batches do.
            self.assertLess(figures["first_logprob_apart_reused"],
                            3 * figures["first_logprob_apart_computed"] + 0.01)


if __name__ == "__main__":
    unittest.main()
