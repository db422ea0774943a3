"""The remote tier in a cluster: conversations spread over it, and go on while it changes."""

import unittest

from parkade_process import ServerTest, model, tokens_of
from redis_cluster import MASTERS, RedisCluster
from remote_case import RemoteCase

DENSE = model("dense")
PROMPT = 3000
ANSWER = 16
DEADLINE_MS = 500


class RemoteClusterTest(RemoteCase):
    def setUp(self):
        ServerTest.setUp(self)
        self.redis = RedisCluster()
        self.addCleanup(self.redis.close)
        self.plain = self.start_plain(DENSE)

    def ask(self, server, prompt):
        answer = server.ask(prompt, ANSWER)
        self.assert_answer_to(prompt, answer, self.plain)
        return answer

    def begin(self):
        one = self.start_remote(DENSE)
        prompt = tokens_of("chat", PROMPT)
        chat = prompt + self.ask(one, prompt).tokens
        self.wait_published(one, len(chat) - 1)
        return one, chat

    def goes_on(self, chat, turn):
        """At a server that has nothing of it but the cluster's."""
        other = self.start_remote(DENSE)
        longer = chat + tokens_of(turn, 90)
        answer = self.ask(other, longer)
        self.assertEqual(answer.cache_n, len(chat) - 1, other.last_lookup())
        self.assertEqual(list(other.last_lookup()["hit_tokens"]), ["remote"])
        return other, longer + answer.tokens

    def test_spreads_and_goes_on(self):
        _, chat = self.begin()
        for master in self.redis.nodes[:MASTERS]:
            self.assertNotEqual(master.keys("x") + master.keys("b"), [], "a master has nothing")
        rows = {key.split(":")[2] for key in self.redis.keys("x")}
        homes = {node.port for node in self.redis.nodes[:MASTERS] for key in node.keys("x")
                 if key.split(":")[2] in rows}
        self.assertGreater(len(homes), 1, "all extents lie on one master")
        other, chat = self.goes_on(chat, "first")
        self.wait_published(other, len(chat) - 1)
        self.goes_on(chat, "second")

    def test_a_master_fails(self):
        """Requests go on meanwhile; afterwards the replicas have what was stored."""
        one, chat = self.begin()
        # What the masters have acknowledged is with the replicas, too.
        for master in self.redis.nodes[:MASTERS]:
            master.ask("WAIT", 1, 20000)
        number = next(i for i in range(MASTERS) if self.redis.nodes[i].keys("x"))
        self.redis.fail_over(number)
        _, chat = self.goes_on(chat, "after it")
        # Who used the old master finds the new one.
        new = tokens_of("another chat", PROMPT)
        new += self.ask(one, new).tokens
        self.wait_published(one, len(new) - 1)
        self.goes_on(new, "a turn")

    def test_a_master_is_gone_for_good(self):
        """Without a replica a third of all keys is out of reach: shorter hits or misses, and right
        answers."""
        one, chat = self.begin()
        for number in (0, MASTERS):
            self.redis.nodes[number].kill()
        for server in (one, self.start_remote(DENSE)):
            for turn in range(3):
                self.ask(server, chat + tokens_of(f"turn {turn}", 90))
                self.assertLess(server.last_lookup()["lookup_seconds"], 3 * DEADLINE_MS / 1000)

    def test_slots_move_while_it_is_used(self):
        one, chat = self.begin()
        for number in range(MASTERS):
            for key in self.redis.nodes[number].keys("x")[:2] + self.redis.nodes[number].keys("b")[
                    :2] + self.redis.nodes[number].keys("r"):
                self.redis.move(key, number, (number + 1) % MASTERS)
        _, chat = self.goes_on(chat, "moved")
        longer = chat[:PROMPT] + tokens_of("at the first one", 200)
        answer = self.ask(one, longer)
        self.assertGreaterEqual(answer.cache_n, PROMPT - 1)
        self.wait_published(one, len(longer) + ANSWER - 1)
        self.goes_on(longer + answer.tokens, "back")


if __name__ == "__main__":
    unittest.main()
