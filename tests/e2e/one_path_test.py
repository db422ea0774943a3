"""A restart and RAM go through the same look-up: the same decisions, only the tier differs."""

import unittest

from parkade_process import ServerTest, model, tokens_of

SAME = ("prompt_tokens", "matched_tokens", "usable_tokens", "reused_tokens", "outcome",
        "miss_tokens", "reason", "first_difference", "identity_field", "restored_bytes")


class OnePathTest(ServerTest):
    def fill(self, server):
        """A chat of two turns and a fork of it; returns the prompts to ask for."""
        system = tokens_of("system", 640)
        chat = system + tokens_of("chat", 130)
        chat = chat + server.ask(chat, 32).tokens + tokens_of("turn", 77)
        chat = chat + server.ask(chat, 32).tokens
        fork = system + tokens_of("fork", 201)
        fork = fork + server.ask(fork, 32).tokens
        server.wait_parked()
        return [chat + tokens_of("next", 9),            # goes on
                chat[:-1],                              # all that is parked
                fork + tokens_of("next", 70),
                chat[:700] + tokens_of("away", 50),     # leaves it in the middle of a page
                system[:100] + tokens_of("early", 30),
                tokens_of("unknown", 300),
                tokens_of("tiny", 40)]

    def probe(self, server, prompts):
        """Every prompt in an empty slot; returns what was decided."""
        decisions = []
        for i, prompt in enumerate(prompts):
            # Too short to be parked: takes the slot and leaves nothing behind.
            server.ask(tokens_of(f"flush {i}", 20), 1)
            server.ask(prompt, 1)
            server.wait_parked()
            decisions.append(server.last_lookup())
        return decisions

    def compare(self, kind):
        warm_server = self.start(model(kind), slots=1)
        prompts = self.fill(warm_server)
        warm = self.probe(warm_server, prompts)
        warm_server.kill()

        self.disk += "-other"
        server = self.start(model(kind), slots=1)
        self.assertEqual(self.fill(server), prompts)
        for conversation in server.conversations():
            server.wait_durable(conversation["tokens"])
        server.kill()
        server = self.start(model(kind), slots=1)
        # Opening has read the catalogue and no payload.
        self.assertEqual(server.metrics().sum_of("parkade_read_bytes_total"), 0)
        self.assertGreaterEqual(len(server.conversations()), 2)
        cold = self.probe(server, prompts)

        for one, other, prompt in zip(warm, cold, prompts):
            with self.subTest(tokens=len(prompt)):
                self.assertEqual({key: one[key] for key in SAME},
                                 {key: other[key] for key in SAME})
                self.assertEqual(sum(one["hit_tokens"].values()),
                                 sum(other["hit_tokens"].values()))
                self.assertEqual(len(one["stage_tiers"]), len(other["stage_tiers"]))
                self.assertLessEqual(set(one["hit_tokens"]), {"ram"})
        # The first of them has come from disk, whole.
        self.assertEqual(set(cold[0]["hit_tokens"]), {"disk"})
        return warm

    def test_dense(self):
        decisions = self.compare("dense")
        self.assertEqual([d["outcome"] for d in decisions],
                         ["full", "full", "full", "partial", "partial", "miss", "miss"])

    def test_window(self):
        self.compare("window")

    def test_recurrent(self):
        self.compare("recurrent")

    def test_hybrid(self):
        self.compare("hybrid")


if __name__ == "__main__":
    unittest.main()
