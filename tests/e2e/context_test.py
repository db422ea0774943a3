"""Contexts that are full (scenario 27): what memory does not hold is never parked."""

import threading
import unittest

from parkade_process import ServerTest, model, tokens_of

DENSE = model("dense")


class ContextTest(ServerTest):
    def all_tokens(self, server):
        return sorted(c["tokens"] for c in server.conversations())

    def test_answer_ends_at_the_context(self):
        """What memory holds is parked, and goes on under a larger context."""
        prompt = tokens_of("chat", 400)
        server = self.start(DENSE, context=512, slots=1)
        first = server.ask(prompt, 500)
        self.assertTrue(first.raw["truncated"])
        server.wait_parked()
        held = 400 + len(first.tokens) - 1
        self.assertLessEqual(self.all_tokens(server)[0], 512)
        self.assertEqual(self.all_tokens(server), [held])
        server.kill()
        server = self.start(DENSE, context=2048, slots=1)
        longer = prompt + first.tokens + tokens_of("turn", 20)
        again = server.ask(longer)
        self.assert_served(server, "disk", held, len(longer))
        plain = self.start_plain(DENSE, context=2048, slots=1)
        plain.ask(prompt, len(first.tokens))
        self.assert_same_answer(again, plain.ask(longer))

    def test_context_shift(self):
        """Rows that were moved are not those of their tokens any more."""
        prompt = tokens_of("chat", 300)
        arguments = ("--context-shift",)
        plain = self.start_plain(DENSE, *arguments, context=512, slots=1)
        server = self.start(DENSE, *arguments, context=512, slots=1)
        requests = [(prompt, 600), (prompt, 32), (prompt[:250] + tokens_of("other", 60), 32)]
        for asked, count in requests:
            answer = server.ask(asked, count)
            reference = plain.ask(asked, count)
            self.assert_same_answer(answer, reference)
        self.assertIn("slot context shift", server.log())
        self.assertTrue(server.metrics().get_one("parkade_skipped_parks_total",
                                                 reason="unsupported") > 0)
        server.wait_parked()
        for conversation in server.conversations():
            # Up to the first shift at most, never the 900 tokens that went by.
            self.assertLess(conversation["tokens"], 512)
        server.kill()
        server = self.start(DENSE, *arguments, context=512, slots=1)
        plain.kill()
        plain = self.start_plain(DENSE, *arguments, context=512, slots=1)
        for asked, count in requests[1:]:
            self.assert_same_answer(server.ask(asked, count), plain.ask(asked, count))

    def test_shift_then_the_continued_text(self):
        """A client that sends all the text back gets an answer to that text."""
        prompt = tokens_of("chat", 300)
        server = self.start(DENSE, "--context-shift", context=512, slots=1)
        generated = server.ask(prompt, 400).tokens
        server.wait_parked()
        server.kill()
        server = self.start(DENSE, context=2048, slots=1)
        whole = prompt + generated
        answer = server.ask(whole)
        lookup = server.last_lookup()
        # At most what was there before the first shift.
        self.assertLess(lookup["reused_tokens"], 512)
        plain = self.start_plain(DENSE, context=2048, slots=1)
        self.assertEqual(answer.tokens, plain.ask(whole).tokens)

    def test_chunk_reuse_is_not_parked(self):
        """--cache-reuse moves rows, too."""
        prompt = tokens_of("chat", 400)
        server = self.start(DENSE, "--cache-reuse", "32", slots=1)
        server.ask(prompt, 8)
        server.wait_parked()
        before = self.all_tokens(server)
        # The middle is cut out: the end is reused at other positions.
        cut = prompt[:100] + prompt[200:]
        shifted = server.ask(cut, 8)
        self.assertGreater(shifted.cache_n, 200)
        server.wait_parked()
        for tokens in self.all_tokens(server):
            self.assertTrue(tokens in before or tokens <= 101, self.all_tokens(server))
        server.kill()
        server = self.start(DENSE, slots=1)
        answer = server.ask(cut)
        self.assertLessEqual(server.last_lookup()["reused_tokens"], 101)
        plain = self.start_plain(DENSE, slots=1)
        plain.ask(prompt, 8)
        self.assert_same_answer(answer, plain.ask(cut))

    def test_decode_fails_in_a_shared_pool(self):
        """Two chats fill one pool: one of them is released with a prompt memory does not hold."""
        prompts = [tokens_of(f"chat {i}", 400) for i in range(2)]
        server = self.start(DENSE, "--kv-unified", context=1024)
        answers = [None, None]

        def ask(index):
            answers[index] = server.request("POST", "/completion",
                                            server.body(prompts[index], 400))
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertTrue(server.running())
        self.assertTrue(any(status != 200 for status, _ in answers) or
                        any('"truncated":true' in text for _, text in answers), answers)
        server.wait_parked()
        for conversation in server.conversations():
            self.assertLessEqual(conversation["tokens"], 1024)
        server.kill()
        server = self.start(DENSE)
        plain = self.start_plain(DENSE)
        for prompt in prompts:
            self.assertEqual(server.ask(prompt).tokens, plain.ask(prompt).tokens)

    def test_prompt_larger_than_the_context(self):
        """llama-server's own refusal; nothing is counted or parked."""
        server = self.start(DENSE, context=512, slots=1)
        error = server.json("POST", "/completion", server.body(tokens_of("chat", 600), 8), 400)
        self.assertEqual(error["error"]["type"], "exceed_context_size_error")
        server.wait_parked()
        self.assertEqual(server.conversations(), [])
        self.assertEqual(server.metrics().sum_of("parkade_lookup_tokens_total"), 0)
        # The slot works.
        self.assertEqual(server.ask(tokens_of("chat", 200), 8).cache_n, 0)

    def test_restore_needs_room_in_a_shared_pool(self):
        """Idle slots, parked, give way to what is restored."""
        chats = [tokens_of(f"chat {i}", 500) for i in range(4)]
        server = self.start(DENSE, "--kv-unified", context=1200, slots=3)
        first = [server.ask(chat, 8) for chat in chats]
        for _ in range(2):
            for chat, answer in zip(chats, first):
                self.assertEqual(server.ask(chat, 8).tokens, answer.tokens)
                self.assertEqual(server.last_lookup()["reused_tokens"], 499)
        plain = self.start_plain(DENSE)
        for chat, answer in zip(chats, first):
            self.assert_same_answer(answer, plain.ask(chat, 8))


if __name__ == "__main__":
    unittest.main()
