"""Scenarios about many chats: more of them than memory holds, several clients, all at once."""

import unittest

from chat_client import ANSWER_TOKENS, DELIMITERS, ChatTest, at_once, distinct_rows
from parkade_process import tokens_of


class ChatsScenariosTest(ChatTest):
    # ---- 11: one conversation more than RAM holds, in turn, ten rounds

    def scenario_11(self, kind):
        chats = 4
        self.begin(kind, cache=("--conversation-cache-slots", str(chats - 1)), chats=chats,
                   context=4096)
        prompts = [tokens_of(f"system {i}", 200) + self.message(f"chat {i}", 800)
                   for i in range(chats)]
        held = [0] * chats
        for turn in range(10):
            for i in range(chats):
                answer = self.ask(prompts[i], 16, chat=i)
                if turn:
                    # The one whose turn it is has waited longest: it is the one RAM has not.
                    self.assert_reused(answer, held[i], "disk")
                held[i] = len(prompts[i]) + 15
                prompts[i] = prompts[i] + answer.tokens + self.message(f"{i} turn {turn}", 20)
                self.server.wait_parked()
                self.assertLess(self.server.tiers()["ram"]["conversations"], chats)
        self.assertEqual(self.server.tiers()["disk"]["conversations"], chats)
        self.assert_stored_once(sum(held))

    def test_scenario_11_dense(self):
        self.scenario_11("dense")

    def test_scenario_11_window(self):
        self.scenario_11("window")

    def test_scenario_11_recurrent(self):
        self.scenario_11("recurrent")

    def test_scenario_11_hybrid(self):
        self.scenario_11("hybrid")

    # ---- 12: two clients with the same system prompt, their turns interleaved

    def scenario_12(self, kind, tokens=5000):
        self.begin(kind, chats=2)
        system = tokens_of("system", tokens)
        prompts = [system + self.message(f"client {i}", 100) for i in range(2)]
        shared = len(system) + len(self.mark)
        held = [0, 0]
        for turn in range(4):
            for i in range(2):
                if i and not turn:
                    # Sums round differently in other batches: the reference reads the same ones.
                    self.plain.ask(prompts[i][:shared], 1, id_slot=i)
                answer = self.ask(prompts[i], chat=i)
                if held[i]:
                    self.assert_reused(answer, held[i], "ram")
                elif i:
                    self.assert_reused(answer, shared, "slot", below=len(self.mark))
                held[i] = len(prompts[i]) + ANSWER_TOKENS - 1
                prompts[i] = prompts[i] + answer.tokens + self.message(f"{i} turn {turn}", 30)
                self.server.wait_parked()
        self.assert_stored_once(sum(held) - shared)
        written = self.server.metrics().get_one("parkade_written_bytes_total", tier="disk")
        stored = sum(c["bytes"] for c in self.server.conversations())
        self.assertLess(written, 1.02 * stored + (128 << 10))  # headers of parks
        # After a restart the second finds in RAM what the first has brought there.
        self.restart()
        self.assert_reused(self.ask(prompts[0], chat=0), held[0], "disk")
        self.assert_reused(self.ask(prompts[1], chat=1), held[1], "ram", "disk")

    def test_scenario_12_dense(self):
        self.scenario_12("dense", 3000)

    def test_scenario_12_window(self):
        self.scenario_12("window")

    def test_scenario_12_recurrent(self):
        self.scenario_12("recurrent")

    def test_scenario_12_hybrid(self):
        self.scenario_12("hybrid")

    # ---- 24: 16 clients at once with the same cold prefix, then with one that only the disk holds

    def scenario_24(self, kind):
        clients, own = 16, 40
        self.begin(kind, slots=clients, context=2048)
        system = tokens_of("system", 1200)
        prompts = [system + self.message(f"client {i}", own) for i in range(clients)]

        def ask_all(prompts):
            before = self.server.metrics()
            answers = at_once([lambda p=p: self.server.ask(
                p, 8, message_delimiters=DELIMITERS, n_probs=10) for p in prompts])
            for prompt, answer in zip(prompts, answers):
                reference = self.plain.ask(prompt, 8, message_delimiters=DELIMITERS, n_probs=10)
                self.assert_near(answer, reference)
            self.server.wait_parked()
            self.server.check_identity()
            computed = sum(answer.prompt_n for answer in answers)
            name = "parkade_read_bytes_total"
            read = (self.server.metrics().get_one(name, tier="disk") -
                    before.get_one(name, tier="disk"))
            return computed, read, [prompt + answer.tokens[:-1]
                                    for prompt, answer in zip(prompts, answers)]

        computed, read, parked = ask_all(prompts)
        self.assertEqual(read, 0)
        # One of them has read the prefix, the others have waited for it.
        most = len(system) + sum(len(prompt) - len(system) for prompt in prompts)
        self.assertLessEqual(computed, most)
        self.assert_stored_once(distinct_rows(parked))
        stored = sum(c["bytes"] for c in self.server.conversations())
        self.restart()
        computed, read, _ = ask_all([prompt[:-own // 2] + tokens_of(f"other {i}", own // 2)
                                  for i, prompt in enumerate(prompts)])
        self.assertLessEqual(computed, most - len(system))
        for lookup in self.server.lookups(clients):
            self.assertGreaterEqual(lookup["reused_tokens"], len(system), lookup)
            self.assertLessEqual(set(lookup["hit_tokens"]), {"ram", "disk"}, lookup)
        self.assertGreater(read, 0)
        self.assertLessEqual(read, stored)

    def test_scenario_24_dense(self):
        self.scenario_24("dense")

    def test_scenario_24_window(self):
        self.scenario_24("window")

    def test_scenario_24_recurrent(self):
        self.scenario_24("recurrent")

    def test_scenario_24_hybrid(self):
        self.scenario_24("hybrid")


if __name__ == "__main__":
    unittest.main()
