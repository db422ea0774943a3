"""Which tier serves: RAM alone, disk alone, both, none."""

import unittest

from parkade_process import ServerTest, model, tokens_of, wait_until

CHATS = 4
ROUNDS = 3
PROMPT_TOKENS = 500
ANSWER_TOKENS = 64


class Chat:
    """One conversation, as a client keeps it: everything said so far."""

    def __init__(self, name):
        self.name = name
        self.turns = 0
        self.history = tokens_of(name, PROMPT_TOKENS)
        self.held = 0  # what the server has in memory of it

    def go_on(self, server):
        if self.turns:
            self.history = self.history + tokens_of(f"{self.name} turn {self.turns}", 20)
        self.turns += 1
        answer = server.ask(self.history, ANSWER_TOKENS)
        prompt = len(self.history)
        self.history = self.history + answer.tokens
        reused, self.held = answer.cache_n, len(self.history) - 1
        return answer, reused, prompt


class TiersTest(ServerTest):
    def round_robin(self, server, tier, before_each=lambda: None):
        """More chats than slots, in turn: after its first turn nothing of a chat is read again."""
        chats = [Chat(f"chat {i}") for i in range(CHATS)]
        answers = []
        for turn in range(ROUNDS):
            for chat in chats:
                held = chat.held
                before_each()
                answer, reused, prompt = chat.go_on(server)
                answers.append(answer)
                if turn == 0:
                    self.assertEqual(reused, 0)
                    self.assertEqual(server.last_lookup()["outcome"], "miss")
                else:
                    self.assertEqual(reused, held, f"{chat.name}, turn {turn}")
                    self.assert_served(server, tier, held, prompt)
        self.assertEqual(len(server.lookups()), CHATS * ROUNDS)
        return answers

    def reference(self):
        """The same chats, every one with a slot to itself on a server without a cache."""
        plain = self.start_plain(model("dense"), slots=CHATS, context=CHATS * 4096)
        chats = [Chat(f"chat {i}") for i in range(CHATS)]
        return [chat.go_on(plain)[0] for _ in range(ROUNDS) for chat in chats]

    def assert_all_same(self, answers):
        for answer, reference in zip(answers, self.reference(), strict=True):
            self.assert_same_answer(answer, reference)

    def test_ram_only(self):
        server = self.start(model("dense"), disk=False)
        answers = self.round_robin(server, "ram")
        self.assertEqual(list(server.tiers()), ["ram"])
        self.assert_all_same(answers)

    def test_disk_only(self):
        server = self.start(model("dense"), ram_mib=0)
        # What still waits in the queue is served from there.
        answers = self.round_robin(server, "disk", before_each=server.wait_parked)
        self.assertEqual(list(server.tiers()), ["disk"])
        metrics = server.metrics()
        self.assertGreater(metrics.get_one("parkade_read_bytes_total", tier="disk"), 0)
        self.assert_all_same(answers)

    def test_ram_first_then_disk(self):
        server = self.start(model("dense"))
        answers = self.round_robin(server, "ram")
        self.assertEqual(server.metrics().get_one("parkade_read_bytes_total", tier="disk"), 0)
        self.assert_all_same(answers)
        server.wait_parked()
        chat = Chat("chat 0")
        # Nothing fits any more: every image goes from RAM, and the disk has them all.
        server.json("POST", "/conversations/budgets", {"ram_mib": 0})
        wait_until(lambda: server.tiers()["ram"]["conversations"] == 0, "an empty RAM tier")
        self.assertEqual(server.tiers()["disk"]["conversations"], CHATS)
        answer, reused, _ = chat.go_on(server)
        self.assertEqual(reused, PROMPT_TOKENS - 1)
        self.assert_served(server, "disk", PROMPT_TOKENS - 1, PROMPT_TOKENS)
        self.assert_same_answer(answer, answers[0])

    def test_promoted_once_read(self):
        """What came from disk is in RAM afterwards."""
        server = self.start(model("dense"))
        chats = [Chat(f"chat {i}") for i in range(3)]
        for chat in chats:
            chat.go_on(server)
        server.wait_parked()
        server.kill()
        server = self.start(model("dense"))
        self.assertEqual(server.tiers()["ram"]["conversations"], 0)
        self.assertEqual(server.metrics().sum_of("parkade_read_bytes_total"), 0)
        held = chats[0].held
        chats[0].go_on(server)
        self.assert_served(server, "disk", held)
        read = server.metrics().get_one("parkade_read_bytes_total", tier="disk")
        # Two other chats take both slots.
        chats[1].go_on(server)
        chats[2].go_on(server)
        after = server.metrics().get_one("parkade_read_bytes_total", tier="disk")
        self.assertGreater(after, read)
        held = chats[0].held
        chats[0].go_on(server)
        self.assert_served(server, "ram", held)
        self.assertEqual(server.metrics().get_one("parkade_read_bytes_total", tier="disk"), after)

    def test_both_off(self):
        """Nothing is kept, and nothing that llama-server answers has another shape."""
        server = self.start_plain(model("dense"))
        first = [Chat(f"chat {i}") for i in range(3)]
        for chat in first:
            chat.go_on(server)
        answer, reused, _ = Chat("chat 0").go_on(server)
        self.assertEqual(reused, 0)
        keys = {"content", "tokens", "timings", "tokens_evaluated", "tokens_cached", "truncated",
                "stop_type", "id_slot", "generation_settings"}
        self.assertLessEqual(keys, set(answer.raw))
        cached = self.start(model("dense"))
        other = Chat("chat 0").go_on(cached)[0]
        self.assertEqual(set(answer.raw), set(other.raw))
        self.assertEqual(set(answer.raw["timings"]), set(other.raw["timings"]))
        self.assert_same_answer(answer, other)
        for path in ("/conversations", "/conversations/lookups"):
            status, text = server.request("GET", path)
            self.assertEqual(status, 501, text)
            self.assertIn("cache is off", text)
        # The counters of a cache that is off do not move.
        self.assertEqual(server.metrics().sum_of("parkade_lookup_tokens_total"), 0)
        self.assertNotIn("parkade: ", server.log())


if __name__ == "__main__":
    unittest.main()
