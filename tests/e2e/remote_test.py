"""Two servers, one memory: conversations that go on at another server, through Redis."""

import unittest

from parkade_process import model, tokens_of
from remote_case import RemoteCase

DENSE = model("dense")


class RemoteTest(RemoteCase):
    def talk(self, path, *arguments, here=(), there=(), exact=True, tokens=900):
        """A chat begins at one server and goes on at another one."""
        prompt, turn = tokens_of("chat", tokens), tokens_of("turn", 23)
        plain = self.start_plain(path, *arguments)
        first = plain.ask(prompt)
        longer = prompt + first.tokens + turn
        uninterrupted = plain.ask(longer)
        one = self.start_remote(path, *arguments, *here)
        self.assert_same_answer(one.ask(prompt), first)
        held = len(prompt) + len(first.tokens) - 1
        self.wait_published(one, held)
        other = self.start_remote(path, *arguments, *there)
        answer = other.ask(longer)
        self.assert_served(other, "remote", held - 0.01 * held, len(longer))
        self.assertEqual(answer.cache_n, other.last_lookup()["reused_tokens"])
        if exact:
            self.assert_same_answer(answer, uninterrupted)
        other.check_identity()
        return one, other, longer, answer

    def test_dense(self):
        """And after reuse it lives in the second server's own tiers."""
        _, other, longer, answer = self.talk(DENSE)
        other.wait_parked()
        other.ask(tokens_of("another chat", 800), 4)
        other.ask(tokens_of("a third chat", 800), 4)
        again = other.ask(longer + answer.tokens + [300], 4)
        self.assert_served(other, "ram", len(longer) + len(answer.tokens) - 1)
        self.assertEqual(again.cache_n, len(longer) + len(answer.tokens) - 1)

    def test_recurrent(self):
        self.talk(model("recurrent"))

    def test_hybrid(self):
        self.talk(model("hybrid"))

    def test_window(self):
        self.talk(model("window"), exact=False)

    def test_back_again(self):
        """A to B to A: each goes on from what the other has added."""
        one, other, longer, answer = self.talk(DENSE)
        held = len(longer) + len(answer.tokens) - 1
        self.wait_published(other, held)
        longest = longer + answer.tokens + tokens_of("second turn", 30)
        back = one.ask(longest, 16)
        self.assertEqual(back.cache_n, held)
        self.assertGreater(one.last_lookup()["hit_tokens"]["remote"], 0)
        one.check_identity()
        plain = self.start_plain(DENSE)
        plain.ask(longer, 64)
        self.assert_same_answer(back, plain.ask(longest, 16))

    def test_nothing_is_written_twice(self):
        """What one server has stored, another one that reads the same only renews."""
        one, other, longer, answer = self.talk(DENSE)
        self.wait_published(other, len(longer) + len(answer.tokens) - 1)
        extents = self.redis.keys("x")
        third = self.start_remote(DENSE)
        third.ask(tokens_of("chat", 900), 64)
        third.wait_parked()
        fourth = third.ask(longer, 64)
        self.assertGreater(fourth.cache_n, 900)
        self.wait_published(third, len(longer) + 63)
        self.assertEqual(set(extents) - set(self.redis.keys("x")), set())
        del one

    def test_delete(self):
        one, other, longer, answer = self.talk(DENSE)
        self.wait_published(other, len(longer) + len(answer.tokens) - 1)
        for conversation in other.conversations():
            other.json("DELETE", f"/conversations/{conversation['id']}")
        self.assertEqual(self.redis.keys("x") + self.redis.keys("r") + self.redis.keys("b"), [])
        self.assertNotEqual(self.redis.keys("t"), [])
        # The first one has it still; it must not bring it back.
        one.ask(longer, 8)
        one.wait_parked()
        one.ask(longer + answer.tokens, 8)
        one.wait_parked()
        one.terminate()
        self.assertEqual(self.redis.keys("r") + self.redis.keys("b"), [])
        third = self.start_remote(DENSE)
        third.ask(longer, 8)
        self.assertEqual(third.last_lookup()["reused_tokens"], 0)


if __name__ == "__main__":
    unittest.main()
