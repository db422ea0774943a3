"""Scenarios about one chat: what its client sends again, changed or not."""

import unittest

from chat_client import ANSWER_TOKENS, ChatTest, common_prefix
from parkade_process import tokens_of


class PromptScenariosTest(ChatTest):
    # ---- 1: a long prompt, a stop, the chat plus one turn, the same again, one that branches off

    def scenario_01(self, kind, tokens=6000):
        self.begin(kind)
        prompt = (tokens_of("system", tokens // 6) + self.message("first", tokens // 3) +
                  self.message("second", tokens // 2))
        first = self.ask(prompt)
        self.assertEqual(first.cache_n, 0)
        self.assertEqual(self.server.last_lookup()["reason"], "cold")
        self.restart("terminate")

        longer = prompt + first.tokens + self.message("turn", 50)
        held = len(prompt) + ANSWER_TOKENS - 1
        self.assert_reused(self.ask(longer), held, "disk")
        # The identical prompt, from the slot and from disk.
        again = len(longer) - self.kind.again
        self.assert_reused(self.ask(longer), again, "slot")
        self.restart()
        self.assert_reused(self.ask(longer), again, "disk")
        # One that leaves it 5 tokens before its end, in the middle of the last message.
        message = len(longer) - 5 - held
        self.restart()
        branch = longer[:-5] + [token + 1 for token in longer[-5:]]
        lookup = self.assert_reused(self.ask(branch), len(longer) - 5, "disk", below=message)
        self.assertEqual(lookup["matched_tokens"], len(longer) - 5)
        self.assertEqual(lookup["first_difference"], len(longer) - 5)

    def test_scenario_01_dense(self):
        self.scenario_01("dense", 3000)

    def test_scenario_01_window(self):
        self.scenario_01("window")

    def test_scenario_01_full_window(self):
        self.scenario_01("full_window", 3000)

    def test_scenario_01_recurrent(self):
        self.scenario_01("recurrent")

    def test_scenario_01_hybrid(self):
        self.scenario_01("hybrid")

    # ---- 8: the history comes back without the reasoning, or with it

    def scenario_08(self, kind):
        self.begin(kind)
        reasoning = ANSWER_TOKENS // 2
        prompt = tokens_of("system", 300) + self.message("turn 0", 200)
        answer = self.ask(prompt)
        self.assertEqual(answer.cache_n, 0)
        for turn in range(1, 4):
            # Dropped: the last turn's answer has lost its first half, older ones lost theirs then.
            history = prompt + answer.tokens[reasoning:]
            shared = common_prefix(history, prompt + answer.tokens)
            self.assertLess(shared, len(prompt) + reasoning)
            prompt, before = history + self.message(f"turn {turn}", 100), len(prompt)
            self.forget_slot()
            answer = self.ask(prompt)
            # The end of the prompt before is the last boundary that both share.
            self.assert_reused(answer, shared, "ram", below=shared - before, reason="diverged")
        self.restart()
        kept = prompt + answer.tokens + self.message("turn 4", 100)
        answer = self.ask(kept)
        self.assert_reused(answer, len(prompt) + ANSWER_TOKENS - 1, "disk")
        dropped = prompt + answer.tokens[reasoning:] + self.message("turn 4", 100)
        self.restart()
        answer = self.ask(dropped)
        self.assertGreaterEqual(answer.cache_n, len(prompt))
        self.assert_reused(answer, answer.cache_n, "disk", reason="diverged")

    def test_scenario_08_dense(self):
        self.scenario_08("dense")

    def test_scenario_08_window(self):
        self.scenario_08("window")

    def test_scenario_08_recurrent(self):
        self.scenario_08("recurrent")

    def test_scenario_08_hybrid(self):
        self.scenario_08("hybrid")

    # ---- 9: regenerate

    def scenario_09(self, kind):
        self.begin(kind)
        prompt = tokens_of("system", 500) + self.message("question", 700)
        first = self.ask(prompt)
        again = len(prompt) - self.kind.again
        for _ in range(2):
            answer = self.ask(prompt)
            self.assert_reused(answer, again, "slot")
            self.assert_answers_like(answer, first)
        self.forget_slot()
        self.assert_reused(self.ask(prompt), again, "ram")
        self.restart()
        answer = self.ask(prompt)
        self.assert_reused(answer, again, "disk")
        self.assert_answers_like(answer, first)
        self.server.wait_parked()
        self.assert_stored_once(len(prompt) + ANSWER_TOKENS - 1)

    def test_scenario_09_dense(self):
        self.scenario_09("dense")

    def test_scenario_09_window(self):
        self.scenario_09("window")

    def test_scenario_09_recurrent(self):
        self.scenario_09("recurrent")

    def test_scenario_09_hybrid(self):
        self.scenario_09("hybrid")

    # ---- 10: the last message is edited, three times

    def scenario_10(self, kind, tokens=10000):
        self.begin(kind, context=12288)
        history = (tokens_of("system", tokens // 10) + self.message("first", tokens // 2) +
                   tokens_of("answer", tokens * 4 // 10))
        self.assertEqual(self.ask(history + self.message("question", 300)).cache_n, 0)
        self.restart()
        common = len(history) + len(self.mark)
        for edit in range(3):
            if edit:
                self.forget_slot()
            answer = self.ask(history + self.message(f"edit {edit}", 250 + edit))
            # Of what was read from disk, the parks that were needed whole are in RAM now.
            tiers = ("ram", "disk") if edit else ("disk",)
            lookup = self.assert_reused(answer, common, *tiers, below=len(self.mark),
                                        reason="diverged")
            self.assertEqual(lookup["first_difference"], common)

    def test_scenario_10_dense(self):
        self.scenario_10("dense", 3000)

    def test_scenario_10_window(self):
        self.scenario_10("window", 5000)

    def test_scenario_10_recurrent(self):
        self.scenario_10("recurrent")

    def test_scenario_10_hybrid(self):
        self.scenario_10("hybrid")


if __name__ == "__main__":
    unittest.main()
