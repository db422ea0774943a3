"""A Redis that is full: with every way of making room, or with none. No request fails, no token is
wrong, and all goes on by itself."""

import time
import unittest

from parkade_process import model, tokens_of, wait_until
from remote_case import RemoteCase

DENSE = model("dense")
PROMPT = 900
ANSWER = 8
MIB = 1 << 20
CHATS = 8


class RemotePressureTest(RemoteCase):
    def setUp(self):
        super().setUp()
        self.plain = self.start_plain(DENSE)
        self.one = self.start_remote(DENSE)

    def limit(self, policy, extra_bytes):
        """The store has room for so much more than it has now."""
        used = int(self.info("memory")["used_memory"])
        self.redis.ask("CONFIG", "SET", "maxmemory-policy", policy)
        self.redis.ask("CONFIG", "SET", "maxmemory", used + extra_bytes)

    def info(self, section):
        lines = self.redis.ask("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def ask(self, server, prompt):
        answer = server.ask(prompt, ANSWER)
        self.assert_answer_to(prompt, answer, self.plain)
        return answer

    def test_full_without_eviction(self):
        """The tier is read-only with a reason; what is there is still used; deleting makes room;
        then writes go on, and what was parked meanwhile follows."""
        first = tokens_of("first", PROMPT)
        prompt = first + self.ask(self.one, first).tokens
        self.wait_published(self.one, len(prompt) - 1)
        self.limit("noeviction", 3 * MIB)
        for chat in range(4):
            self.ask(self.one, tokens_of(f"chat {chat}", PROMPT))
        self.assertIn("OOM", self.wait_state(self.one, "read_only"))
        self.assertEqual(self.tier_count(self.one, "parkade_tier_up"), 0)
        other = self.start_remote(DENSE)
        answer = self.ask(other, prompt + [300])
        self.assertEqual(answer.cache_n, len(prompt) - 1)
        self.assert_served(other, "remote", len(prompt) - 1)
        # Told once while it lasts, not for every try.
        lines = self.one.log().count("OOM command not allowed")
        self.assertLessEqual(lines, 4)
        # What was begun and not finished is gone again.
        complete = {key.split(":")[-1] for key in self.redis.keys("r")}
        self.assertLessEqual({key.split(":")[-2] for key in self.redis.keys("x")}, complete)
        whole = next(c["id"] for c in self.one.conversations() if "remote" in c["tiers"])
        self.one.json("DELETE", f"/conversations/{whole}")
        self.assertEqual(self.redis.ask("EXISTS", f"parkade:t:{whole}"), 1)
        self.redis.ask("CONFIG", "SET", "maxmemory", 0)
        self.wait_state(self.one, "up")
        wait_until(lambda: all("remote" in c["tiers"] for c in self.one.conversations()),
                   "all chats to be stored")
        self.wait_state(other, "up")

    def test_full_from_the_beginning(self):
        """Not even a secret can be written; deleting what was never stored is no trouble."""
        self.limit("noeviction", -MIB // 2)
        self.ask(self.one, tokens_of("chat", PROMPT))
        self.assertIn("OOM", self.wait_state(self.one, "read_only"))
        for conversation in self.one.conversations():
            self.one.json("DELETE", f"/conversations/{conversation['id']}")
        self.ask(self.one, tokens_of("chat", PROMPT))
        self.one.wait_parked()
        self.redis.ask("CONFIG", "SET", "maxmemory", 0)
        self.wait_published(self.one, PROMPT + ANSWER - 1)
        self.assertEqual(self.state(self.one), "up")
        wait_until(lambda: len(self.redis.keys("t")) == 1, "the tombstone")

    def test_writes_refused(self):
        """As of a store that can't save itself (MISCONF): read_only, not down."""
        self.ask(self.one, tokens_of("chat", PROMPT))
        self.wait_published(self.one, PROMPT + ANSWER - 1)
        self.redis.ask("CONFIG", "SET", "min-replicas-to-write", 1)
        self.ask(self.one, tokens_of("more", PROMPT))
        self.assertIn("NOREPLICAS", self.wait_state(self.one, "read_only"))
        other = self.start_remote(DENSE)
        self.assertGreater(self.ask(other, tokens_of("chat", PROMPT) + [300]).cache_n, PROMPT - 10)
        self.redis.ask("CONFIG", "SET", "min-replicas-to-write", 0)
        wait_until(lambda: all("remote" in c["tiers"] for c in self.one.conversations()),
                   "all chats to be stored")
        self.wait_state(self.one, "up")

    def until_stored(self, server, prompt):
        """The chat goes on until all of it stands in the store; returns it. What a server had only
        there and finds lost on the way is captured with the answer after that."""
        for turn in range(4):
            prompt = prompt + self.ask(server, prompt).tokens
            end = time.monotonic() + 10
            while time.monotonic() < end:
                if self.is_published(server, len(prompt) - 1):
                    server.wait_parked()
                    return prompt
                time.sleep(0.05)
            prompt = prompt + tokens_of(f"once more {turn}", 90)
        self.fail("the chat is not stored anew")

    def evicting(self, policy):
        """Chats go on at one server and at the other by turns while the store drops what it likes:
        room for about a third of them."""
        self.ask(self.one, tokens_of("chat 0", PROMPT))
        self.wait_published(self.one, PROMPT + ANSWER - 1)
        self.limit(policy, 5 * MIB)
        # So small that a server forgets, too, and asks the store again and again.
        servers = [self.one, self.start_remote(DENSE, ram_mib=160)]
        chats = [tokens_of(f"chat {chat}", PROMPT) for chat in range(CHATS)]
        for turn in range(3):
            for chat, prompt in enumerate(chats):
                answer = self.ask(servers[(turn + chat) % 2], prompt)
                chats[chat] = prompt + answer.tokens + tokens_of(f"turn {turn} {chat}", 90)
        self.assertGreater(int(self.info("stats")["evicted_keys"]), 0)
        for server in servers:
            server.wait_parked()
            server.check_identity()
            self.assertEqual(server.metrics().get_one("parkade_corrupt_total", tier="remote"), 0)
        self.redis.ask("CONFIG", "SET", "maxmemory", 0)
        # What was dropped is stored anew when a chat goes on, and whole for a third server.
        prompt = self.until_stored(servers[0], chats[0])
        third = self.start_remote(DENSE)

        def whole():
            answer = self.ask(third, prompt[:-1] + [300])
            if answer.cache_n == len(prompt) - 1:
                return True
            # Of the third server's own: it must not be what is found.
            for conversation in third.conversations():
                third.json("DELETE", f"/conversations/{conversation['id']}")
            return False
        self.wait_state(servers[0], "up")
        self.assertTrue(whole(), third.last_lookup())

    def test_allkeys_lru(self):
        self.evicting("allkeys-lru")

    def test_allkeys_random(self):
        self.evicting("allkeys-random")

    def test_volatile_ttl(self):
        self.evicting("volatile-ttl")

    def test_volatile_random(self):
        self.evicting("volatile-random")


if __name__ == "__main__":
    unittest.main()
