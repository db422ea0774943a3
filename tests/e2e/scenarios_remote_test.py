"""Scenarios 16, 17 and 24: a remote tier that is away, slow, refuses, loses or damages values, or
is asked by many at once. No wrong token, one wait, and all is well again by itself."""

import os
import unittest

import redis_process
from chat_client import at_once
from parkade_process import model, tokens_of, wait_until
from remote_case import RemoteCase
from slow_proxy import SlowProxy

DENSE = model("dense")
PROMPT = 900
ANSWER = 16
# Long enough to tell a wait for it from an overloaded machine.
DEADLINE_S = 3.0
PATIENT = ("--conversation-cache-remote-deadline-ms", str(int(DEADLINE_S * 1000)))


class Scenarios16(RemoteCase):
    """A request waits at most the deadline, once; the breaker opens and closes by itself."""

    def setUp(self):
        super().setUp()
        self.plain = self.start_plain(DENSE)
        self.chats = 0

    def begin_chat(self, server):
        """A chat of the server's; returns the prompt that goes on with it, and what is held."""
        self.chats += 1
        prompt = tokens_of(f"chat {self.chats}", PROMPT)
        first = server.ask(prompt, ANSWER)
        held = PROMPT + ANSWER - 1
        self.wait_published(server, held)
        return prompt + first.tokens + tokens_of(f"turn {self.chats}", 23), held

    def ask(self, server, prompt):
        """The answer is that of the server without a cache; returns the lookup."""
        answer = server.ask(prompt, ANSWER)
        self.assert_same_answer(answer, self.plain.ask(prompt, ANSWER))
        lookup = server.last_lookup()
        self.assertEqual(answer.cache_n, lookup["reused_tokens"])
        return lookup

    def assert_missed(self, lookup, waited):
        self.assertEqual(lookup["reused_tokens"], 0, lookup)
        self.assertEqual(lookup["reason"], "remote", lookup)
        if waited:
            self.assertLess(lookup["seconds"], DEADLINE_S + 1, lookup)
        else:
            self.assertLess(lookup["seconds"], DEADLINE_S / 3, lookup)

    def assert_back(self, server, prompt, held):
        """The breaker closes by itself, and the chat is served from the remote tier."""
        self.assertEqual(self.wait_state(server, "up"), "up")
        self.assertEqual(self.tier_count(server, "parkade_tier_up"), 1)
        lookup = self.ask(server, prompt)
        self.assertEqual(lookup["hit_tokens"], {"remote": held}, lookup)

    def assert_down(self, server):
        self.wait_state(server, "down")
        self.assertEqual(self.tier_count(server, "parkade_tier_up"), 0)

    def test_scenario_16_stopped(self):
        """Then started anew, and empty: what is parked meanwhile goes there when it is back."""
        one = self.start_remote(DENSE, *PATIENT)
        lost, _ = self.begin_chat(one)
        other = self.start_remote(DENSE, *PATIENT)
        self.redis.kill()
        self.assert_missed(self.ask(other, lost), waited=False)
        self.assert_down(other)
        self.assert_missed(self.ask(other, tokens_of("more", PROMPT)), waited=False)
        other.wait_parked()
        self.redis.start()
        self.wait_state(other, "up")
        self.wait_published(other, len(lost) + ANSWER - 1)
        third = self.start_remote(DENSE, *PATIENT)
        lookup = self.ask(third, lost + [300])
        self.assertEqual(lookup["hit_tokens"], {"remote": len(lost)}, lookup)

    def test_scenario_16_paused(self):
        one = self.start_remote(DENSE, *PATIENT)
        chat, held = self.begin_chat(one)
        other = self.start_remote(DENSE, *PATIENT)
        self.redis.pause()
        missed = self.ask(other, tokens_of("unknown", PROMPT))
        self.assert_missed(missed, waited=True)
        self.assertGreater(missed["seconds"], DEADLINE_S * 0.9, missed)
        self.assert_down(other)
        for number in range(3):
            self.assert_missed(self.ask(other, tokens_of(f"unknown {number}", PROMPT)),
                               waited=False)
        self.redis.go_on()
        self.assert_back(other, chat, held)

    def test_scenario_16_paused_while_it_is_read(self):
        """In the middle of the values: what came of them counts, or nothing does."""
        one = self.start_remote(DENSE, *PATIENT)
        chat, held = self.begin_chat(one)
        proxy = SlowProxy(self.redis.port)
        self.addCleanup(proxy.close)
        other = self.start_remote(DENSE, *PATIENT, address=proxy.address)
        values = sum(self.redis.ask("STRLEN", key) for key in self.redis.keys("x"))
        proxy.hold_after(values // 2)
        lookup = self.ask(other, chat)
        self.assertLess(lookup["reused_tokens"], held, lookup)
        self.assertEqual(lookup["reason"], "remote", lookup)
        self.assertEqual(lookup["failed_tier"], "remote", lookup)
        self.assertGreater(lookup["seconds"], DEADLINE_S * 0.9, lookup)
        self.assertLess(lookup["seconds"], DEADLINE_S + 1.5, lookup)
        self.assert_down(other)
        again = self.ask(other, chat[:-20] + tokens_of("another turn", 40))
        self.assertLess(again["seconds"], DEADLINE_S / 3, again)
        proxy.hold_after(None)
        self.wait_state(other, "up")

    def test_scenario_16_restarted(self):
        """Between two requests: connections that lay idle are dead, and nobody notices."""
        one = self.start_remote(DENSE)
        self.begin_chat(one)
        self.redis.kill()
        self.redis.start()
        chat, held = self.begin_chat(one)
        other = self.start_remote(DENSE)
        self.assertEqual(self.ask(other, chat)["hit_tokens"], {"remote": held})
        self.assertEqual(self.state(one), "up")

    def test_scenario_16_slow_by_500_ms(self):
        self.slow(0.5, 500)

    def test_scenario_16_as_slow_as_one_answer(self):
        """A probe is answered in time, a lookup takes more than one answer: it must not fail
        again and again, each time after a wait."""
        self.slow(0.35, 500)

    def slow(self, delay_s, deadline_ms):
        one = self.start_remote(DENSE)
        chat, held = self.begin_chat(one)
        proxy = SlowProxy(self.redis.port, delay_s)
        self.addCleanup(proxy.close)
        other = self.start_remote(DENSE, "--conversation-cache-remote-deadline-ms",
                                  str(deadline_ms), address=proxy.address)
        self.assert_missed(self.ask(other, tokens_of("unknown", PROMPT)), waited=True)
        for number in range(12):
            self.assertEqual(self.state(other).split(":")[0], "down")
            self.assert_missed(self.ask(other, tokens_of(f"unknown {number}", PROMPT)),
                               waited=False)
        waited = [lookup for lookup in other.lookups() if lookup["seconds"] > 0.8 * delay_s]
        self.assertLessEqual(len(waited), 1, waited)
        proxy.delay_s = 0
        self.assert_back(other, chat, held)

    def test_scenario_16_wrong_password(self):
        """And a right one that is changed while servers run."""
        self.redis.ask("CONFIG", "SET", "requirepass", "right")
        self.redis.password = "right"
        host = f"127.0.0.1:{self.redis.port}"
        one = self.start_remote(DENSE, address=f"redis://:right@{host}")
        chat, held = self.begin_chat(one)
        other = self.start_remote(DENSE, address=f"redis://:wr0ng-secret@{host}")
        self.assert_missed(self.ask(other, tokens_of("unknown", PROMPT)), waited=False)
        self.assertIn("WRONGPASS", self.wait_state(other, "down"))
        for text in (other.log(), str(other.tiers())):
            self.assertNotIn("wr0ng-secret", text)
        self.redis.ask("CONFIG", "SET", "requirepass", "wr0ng-secret")
        self.redis.password = "wr0ng-secret"
        self.assert_back(other, chat, held)

    def test_scenario_16_fails_over(self):
        """Two servers are named: a replica takes over, and goes on as what it is then."""
        second = redis_process.Redis()
        self.addCleanup(second.close)
        second.ask("REPLICAOF", "127.0.0.1", self.redis.port)
        wait_until(lambda: b"master_link_status:up" in second.ask("INFO", "replication"),
                   "the replica")
        both = f"{self.redis.address},127.0.0.1:{second.port}"
        one = self.start_remote(DENSE, address=both)
        chat, held = self.begin_chat(one)
        other = self.start_remote(DENSE, address=both)
        wait_until(lambda: second.ask("DBSIZE") == self.redis.ask("DBSIZE"), "the copy")
        self.redis.kill()
        second.ask("REPLICAOF", "NO", "ONE")
        self.ask(other, tokens_of("unknown", PROMPT))
        self.assert_back(other, chat, held)
        chat, held = self.begin_chat(one)
        self.assertEqual(self.ask(other, chat)["hit_tokens"], {"remote": held})

    def test_scenario_16_starts_without_it(self):
        self.redis.kill()
        one = self.start_remote(DENSE)
        self.assert_missed(self.ask(one, tokens_of("chat", PROMPT)), waited=False)
        self.assert_down(one)
        one.wait_parked()
        self.redis.start()
        self.wait_published(one, PROMPT + ANSWER - 1)
        self.assertEqual(self.state(one), "up")


if __name__ == "__main__":
    unittest.main()
