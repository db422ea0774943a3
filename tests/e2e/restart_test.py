"""A conversation goes on after kill -9, on every kind of memory."""

import unittest

import parkade_process as parkade
from parkade_process import GEMMA, ServerTest, model, tokens_of

STORY = " ".join(f"Item {i} weighs {i * 7 % 101} grams and is coloured "
                 f"{('red', 'blue', 'green')[i % 3]}." for i in range(46))


class RestartTest(ServerTest):
    """Prompt, answer, kill -9, start, the same chat with a new turn."""

    def restart(self, server, model_path, *arguments, **options):
        server.kill()
        return self.start(model_path, *arguments, **options)

    def talk(self, model_path, *arguments, prompt=None):
        """Returns the uninterrupted, the cold and the restored answer, and the server."""
        plain = self.start_plain(model_path, *arguments)
        if prompt is None:
            prompt, turn = plain.tokenize(STORY), plain.tokenize(" Which items are red?")[1:]
        else:
            turn = tokens_of("turn", 23)
        first = plain.ask(prompt)
        longer = prompt + first.tokens + turn
        uninterrupted = plain.ask(longer, n_probs=20)
        plain.kill()
        cold = self.start_plain(model_path, *arguments)
        read = cold.ask(longer, n_probs=20)
        self.assertEqual(read.cache_n, 0)
        cold.kill()

        server = self.start(model_path, *arguments)
        self.assert_same_answer(server.ask(prompt), first)
        self.assertEqual(server.last_lookup()["outcome"], "miss")
        held = len(prompt) + len(first.tokens) - 1
        server.wait_durable(held)
        server = self.restart(server, model_path, *arguments)
        restored = server.ask(longer, n_probs=20)
        self.assert_served(server, "disk", held - 0.01 * held, len(longer))
        self.assertEqual(restored.cache_n, server.last_lookup()["reused_tokens"])
        return uninterrupted, read, restored, server

    def assert_equal_text(self, uninterrupted, restored):
        self.assertEqual(len(restored.tokens), 64)
        self.assert_same_answer(restored, uninterrupted)

    def assert_close(self, uninterrupted, cold, restored):
        """Sums in a small window's cache round differently; by no more than cold against warm."""
        def distance(one, other):
            shared = set(one.logprobs[0]) & set(other.logprobs[0])
            self.assertGreaterEqual(len(shared), 10)
            return max(abs(one.logprobs[0][t] - other.logprobs[0][t]) for t in shared)
        usual = distance(uninterrupted, cold)
        self.assertLessEqual(distance(uninterrupted, restored), max(1.5 * usual, 0.02), usual)

    def test_dense(self):
        uninterrupted, _, restored, _ = self.talk(model("dense"), prompt=tokens_of("chat", 900))
        self.assert_equal_text(uninterrupted, restored)

    def test_window(self):
        uninterrupted, cold, restored, _ = self.talk(model("window"),
                                                     prompt=tokens_of("chat", 900))
        self.assert_close(uninterrupted, cold, restored)

    def test_window_full_cache(self):
        uninterrupted, _, restored, _ = self.talk(model("window"), "--swa-full",
                                                  prompt=tokens_of("chat", 900))
        self.assert_equal_text(uninterrupted, restored)

    def test_recurrent(self):
        uninterrupted, _, restored, _ = self.talk(model("recurrent"),
                                                  prompt=tokens_of("chat", 900))
        self.assert_equal_text(uninterrupted, restored)

    def test_hybrid(self):
        uninterrupted, _, restored, _ = self.talk(model("hybrid"), prompt=tokens_of("chat", 900))
        self.assert_equal_text(uninterrupted, restored)

    def test_hybrid_window(self):
        uninterrupted, cold, restored, _ = self.talk(model("hybrid_window"),
                                                     prompt=tokens_of("chat", 900))
        self.assert_close(uninterrupted, cold, restored)

    def test_gemma_full_cache(self):
        uninterrupted, _, restored, _ = self.talk(GEMMA, "--swa-full")
        self.assert_equal_text(uninterrupted, restored)

    def test_gemma_window(self):
        uninterrupted, cold, restored, _ = self.talk(GEMMA)
        self.assert_close(uninterrupted, cold, restored)


if __name__ == "__main__":
    unittest.main()
