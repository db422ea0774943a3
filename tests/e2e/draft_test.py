"""Speculative decoding: the draft's rows are a stage of their own, given back but not needed."""

import json
import os
import subprocess
import unittest

from parkade_process import DEADLINE_S, PROGRAM, ServerTest, model, tokens_of

PROMPT_TOKENS = 600


class DraftTest(ServerTest):
    # The model itself as its draft: every draft is accepted as long as it has the same rows.
    DRAFT = ("-md", model("dense"), "--spec-type", "draft-simple")

    def setUp(self):
        super().setUp()
        self.prompt = tokens_of("chat", PROMPT_TOKENS)

    def accepted(self, answer):
        timings = answer.raw["timings"]
        self.assertGreater(timings["draft_n"], 0, timings)
        return timings["draft_n_accepted"] / timings["draft_n"]

    def reference(self):
        """The next prompt and what an uninterrupted server says to it."""
        plain = self.start_plain(model("dense"), *self.DRAFT)
        first = plain.ask(self.prompt)
        longer = self.prompt + first.tokens + tokens_of("turn", 20)
        answer = plain.ask(longer)
        plain.kill()
        self.assertGreater(self.accepted(answer), 0.9)
        return longer, answer

    def park(self, *arguments):
        server = self.start(model("dense"), *arguments)
        answer = server.ask(self.prompt)
        self.held = PROMPT_TOKENS + len(answer.tokens) - 1
        server.wait_durable(self.held)
        detail = server.conversation(server.conversations()[0]["id"])
        server.kill()
        return [stage["device"] for stage in detail["stage_map"]]

    def test_goes_on_with_the_drafts_rows(self):
        longer, reference = self.reference()
        devices = self.park(*self.DRAFT)
        self.assertEqual(len(devices), 2)
        self.assertRegex(devices[1], "^draft [0-9a-f]{32} on ")
        server = self.start(model("dense"), *self.DRAFT)
        answer = server.ask(longer)
        self.assertEqual(answer.cache_n, self.held)
        lookup = self.assert_served(server, "disk", self.held)
        self.assertEqual(lookup["stage_tiers"], ["disk", "disk"])
        self.assert_same_answer(answer, reference)
        self.assertGreater(self.accepted(answer), 0.9)

    def test_without_the_drafts_part_the_main_part_works(self):
        """Parked without a draft, gone on with one."""
        longer, reference = self.reference()
        self.assertEqual(len(self.park()), 1)
        server = self.start(model("dense"), *self.DRAFT)
        answer = server.ask(longer)
        self.assertEqual(answer.cache_n, self.held)
        self.assertEqual(server.last_lookup()["stage_tiers"], ["disk"])
        self.assert_same_answer(answer, reference)
        # What tells the first test apart from this one.
        self.assertLess(self.accepted(answer), 0.9)

    def test_without_a_draft_model_the_main_part_works(self):
        longer, reference = self.reference()
        self.assertEqual(len(self.park(*self.DRAFT)), 2)
        server = self.start(model("dense"))
        answer = server.ask(longer)
        self.assertEqual(answer.cache_n, self.held)
        self.assertEqual(server.last_lookup()["stage_tiers"], ["disk"])
        self.assertEqual(answer.tokens[0], reference.tokens[0])

    def test_another_draft_gets_nothing(self):
        longer, reference = self.reference()
        self.park(*self.DRAFT)
        server = self.start(model("dense"), *self.DRAFT, "-ctkd", "q8_0")
        answer = server.ask(longer)
        self.assertEqual(answer.cache_n, self.held)
        self.assertEqual(server.last_lookup()["stage_tiers"], ["disk"])
        self.assert_same_answer(answer, reference)

    def test_damage_in_the_drafts_part_costs_the_draft_alone(self):
        longer, reference = self.reference()
        self.park(*self.DRAFT)
        self.assertGreaterEqual(len(self.extents(1)), 1)
        self.damage(self.extents(1)[0])
        server = self.start(model("dense"), *self.DRAFT)
        answer = server.ask(longer)
        self.assertEqual(answer.cache_n, self.held)
        self.assert_same_answer(answer, reference)
        self.assertIn("restore goes on without the draft's rows", server.log())

    def test_moves_with_an_export(self):
        longer, reference = self.reference()
        self.park(*self.DRAFT)
        tool = os.path.join(os.path.dirname(PROGRAM), "parkade")
        moved = os.path.join(self.folder, "moved")
        listed = subprocess.run([tool, "ls", "--disk", self.disk, "--json"], check=True,
                                capture_output=True, text=True, timeout=DEADLINE_S).stdout
        (chat,) = json.loads(listed)["conversations"]
        for arguments in (("export", chat["id"], moved + ".chat", "--disk", self.disk),
                          ("import", moved + ".chat", "--disk", moved)):
            subprocess.run([tool, *arguments], check=True, timeout=DEADLINE_S)
        self.disk = moved
        server = self.start(model("dense"), *self.DRAFT)
        answer = server.ask(longer)
        self.assertEqual(answer.cache_n, self.held)
        self.assertEqual(server.last_lookup()["stage_tiers"], ["disk", "disk"])
        self.assert_same_answer(answer, reference)
        self.assertGreater(self.accepted(answer), 0.9)

    def test_a_fork_and_a_session_have_it_too(self):
        longer, reference = self.reference()
        server = self.start(model("dense"), *self.DRAFT, slots=1)
        server.ask(self.prompt)
        server.json("POST", "/slots/0?action=save", {"filename": "s"})
        fork = self.prompt[:450] + tokens_of("fork", 80)
        server.ask(fork)
        server.wait_parked()
        server.kill()
        server = self.start(model("dense"), *self.DRAFT, slots=1)
        restored = server.json("POST", "/slots/0?action=restore", {"filename": "s"})
        answer = server.ask(longer)
        self.assertEqual(answer.cache_n, restored["n_restored"])
        self.assertGreater(self.accepted(answer), 0.9)
        self.assert_same_answer(answer, reference)
        again = server.ask(fork + [300, 301])
        self.assertGreaterEqual(again.cache_n, 530)
        self.assertGreater(self.accepted(again), 0.9)


if __name__ == "__main__":
    unittest.main()
