"""Scenarios 16, 17 and 24: a remote tier that is away, slow, refuses, loses or damages values, or
is asked by many at once. No wrong token, one wait, and all is well again by itself."""

import math
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
        self.assert_answer_to(prompt, answer, self.plain)
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
        # What waited longer goes first.
        self.wait_published(other, PROMPT + ANSWER - 1)
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



class Scenarios17(RemoteCase):
    """Values that are dropped or damaged: a shorter hit or a miss, counted with a reason; never a
    wrong token, and never found again by anybody."""

    def setUp(self):
        super().setUp()
        self.plain = self.start_plain(DENSE)
        self.one = self.start_remote(DENSE)
        self.other = self.start_remote(DENSE)
        self.chats = 0

    def publish(self, tokens=PROMPT):
        """A chat of two parks at the first server, with boundaries in each. Returns the prompt that
        goes on with it, what is held, and its keys by kind."""
        before = set(self.redis.keys())
        self.chats += 1
        prompt = tokens_of(f"chat {self.chats}", tokens)
        for turn in range(2):
            prompt = (prompt + self.one.ask(prompt, ANSWER).tokens +
                      tokens_of(f"turn {self.chats}.{turn}", 150))
            held = len(prompt) - 151
            wait_until(lambda: len(self.added(before, "r")) > turn, "the row")
            self.wait_published(self.one, held)
        kinds = {kind: self.added(before, kind) for kind in "brx"}
        self.assertGreaterEqual(len(kinds["r"]), 2, kinds)
        self.assertGreaterEqual(len(kinds["b"]), 2, kinds)
        self.assertGreaterEqual(len(kinds["x"]), 2, kinds)
        return prompt, held, kinds

    def added(self, before, kind):
        return sorted(set(self.redis.keys(kind)) - before)

    def look_up(self, prompt):
        """The second server's answer is right; returns its lookup."""
        answer = self.other.ask(prompt, ANSWER)
        self.assert_answer_to(prompt, answer, self.plain)
        return self.other.last_lookup()

    def errors(self):
        metrics = self.other.metrics()
        return metrics.get_one("parkade_corrupt_total", tier="remote")

    def damaged(self, damage, reasons=("remote",), corrupt=0, longest=None,
                most_told=math.inf):
        """Damages a chat that was published, and asks for it at the second server."""
        prompt, held, kinds = self.publish()
        before = self.errors()
        damage(kinds)
        lookup = self.look_up(prompt)
        self.assertLess(lookup["reused_tokens"], held if longest is None else longest + 1, lookup)
        self.assertIn(lookup["reason"], reasons, lookup)
        self.assertEqual(min(self.errors() - before, most_told), corrupt, lookup)
        self.wait_published(self.other, len(prompt) + ANSWER - 1)
        # Whole again for everybody, as far as the second server has it now.
        third = self.start_remote(DENSE)
        again = third.ask(prompt + [300], 1)
        self.assertEqual(again.cache_n, len(prompt), third.last_lookup())
        self.assertEqual(third.last_lookup()["hit_tokens"], {"remote": len(prompt)})
        third.kill()
        return lookup

    def change(self, key, how):
        value = bytearray(self.redis.ask("GET", key))
        how(value)
        self.redis.ask("SET", key, bytes(value), "KEEPTTL")

    def flip(self, key, at):
        def how(value):
            value[int(at * (len(value) - 1))] ^= 1
        self.change(key, how)

    def swap(self, first, second):
        self.redis.ask("RENAME", first, "spare")
        self.redis.ask("RENAME", second, first)
        self.redis.ask("RENAME", "spare", second)

    def deepest(self, boundaries):
        """The boundary with the longest chain."""
        return max(boundaries, key=lambda key: self.redis.ask("STRLEN", key))

    def last_row(self, kinds):
        """The row that the deepest boundary ends in; FORMAT: digests highest byte first."""
        value = self.redis.ask("GET", self.deepest(kinds["b"]))
        return next(row for row in kinds["r"]
                    if value.rfind(bytes.fromhex(row.split(":")[-1])) ==
                    max(value.rfind(bytes.fromhex(r.split(":")[-1])) for r in kinds["r"]))

    # ---- dropped

    def test_scenario_17_no_extents(self):
        lookup = self.damaged(lambda kinds: self.redis.ask("DEL", *kinds["x"]))
        self.assertEqual(lookup["reused_tokens"], 0, lookup)
        self.assertEqual(lookup["failed_tier"], "remote", lookup)

    def test_scenario_17_one_extent(self):
        self.damaged(lambda kinds: self.redis.ask("DEL", kinds["x"][0]))

    def test_scenario_17_no_rows(self):
        lookup = self.damaged(lambda kinds: self.redis.ask("DEL", *kinds["r"]))
        self.assertEqual(lookup["reused_tokens"], 0, lookup)

    def test_scenario_17_last_row(self):
        lookup = self.damaged(lambda kinds: self.redis.ask("DEL", self.last_row(kinds)))
        self.assertGreater(lookup["reused_tokens"], PROMPT, lookup)

    def test_scenario_17_deepest_boundary(self):
        """A boundary that is gone is as one that never was: the shallower one is used."""
        def damage(kinds):
            self.redis.ask("DEL", self.deepest(kinds["b"]))
        lookup = self.damaged(damage, (None,))
        self.assertEqual(lookup["reused_tokens"], PROMPT + ANSWER - 1, lookup)

    def test_scenario_17_no_boundaries(self):
        self.damaged(lambda kinds: self.redis.ask("DEL", *kinds["b"]), ("cold",))

    def test_scenario_17_everything(self):
        """And the first server, which believes that all of it is there, stores it anew when the
        chat goes on."""
        prompt, held, _ = self.publish()
        self.redis.ask("FLUSHALL")
        self.assertEqual(self.look_up(tokens_of("unknown", PROMPT))["reason"], "cold")
        longer = prompt + self.one.ask(prompt, ANSWER).tokens
        self.wait_published(self.one, len(longer) - 1)
        wait_until(lambda: len(self.redis.keys("r")) >= 4, "all rows to be there again")
        lookup = self.look_up(longer + [300])
        self.assertGreater(lookup["reused_tokens"], held, lookup)
        self.assertEqual(set(lookup["hit_tokens"]), {"remote"}, lookup)

    def test_scenario_17_secret(self):
        """The servers know it, and put it back."""
        prompt, held, _ = self.publish()
        secret = self.redis.ask("GET", "parkade:secret")
        lookup = self.look_up(tokens_of("unknown", PROMPT))
        self.redis.ask("DEL", "parkade:secret")
        lookup = self.look_up(prompt)
        self.assertEqual(lookup["hit_tokens"], {"remote": held}, lookup)
        wait_until(lambda: self.redis.ask("GET", "parkade:secret") == secret, "the secret")

    def test_scenario_17_tombstones_dropped(self):
        """A deleted chat whose tombstone is gone early is not found either."""
        prompt, _, _ = self.publish()
        for conversation in self.one.conversations():
            self.one.json("DELETE", f"/conversations/{conversation['id']}")
        self.assertEqual(self.redis.keys("x") + self.redis.keys("r") + self.redis.keys("b"), [])
        self.redis.ask("DEL", *self.redis.keys("t"))
        self.assertEqual(self.look_up(prompt)["reason"], "cold")

    def test_scenario_17_expires_while_it_is_read(self):
        """Its head and all boundaries are read, then the values go."""
        prompt, held, kinds = self.publish(3000)
        sizes = sum(self.redis.ask("STRLEN", key) for key in kinds["b"] + kinds["r"])
        proxy = SlowProxy(self.redis.port)
        self.addCleanup(proxy.close)
        self.other.kill()
        self.other = self.start_remote(DENSE, "--conversation-cache-remote-deadline-ms", "20000",
                                       address=proxy.address)
        proxy.hold_after(sizes + 20000)

        def drop():
            wait_until(lambda: proxy.held(), "the values to be asked for")
            self.redis.ask("DEL", *kinds["x"][len(kinds["x"]) // 2:])
            proxy.hold_after(None)
        lookup, _ = at_once([lambda: self.look_up(prompt), drop])
        self.assertLess(lookup["reused_tokens"], held, lookup)
        self.assertEqual(lookup["reason"], "remote", lookup)

    # ---- exchanged

    def test_scenario_17_two_extents_swapped(self):
        # Whether the second one is read before the first is given up is chance.
        self.damaged(lambda kinds: self.swap(kinds["x"][0], kinds["x"][-1]), ("corrupt",), 1,
                     most_told=1)

    def test_scenario_17_two_rows_swapped(self):
        lookup = self.damaged(lambda kinds: self.swap(*kinds["r"][:2]), ("corrupt",), 1)
        self.assertEqual(lookup["reused_tokens"], 0, lookup)

    def test_scenario_17_two_boundaries_swapped(self):
        """Of one chat: the deepest one's way is too short. Of two chats: it is another's."""
        def of_one(kinds):
            deepest = self.deepest(kinds["b"])
            self.swap(deepest, next(key for key in kinds["b"] if key != deepest and
                                    self.redis.ask("GET", key) != self.redis.ask("GET", deepest)))
        self.damaged(of_one, ("corrupt",), 1)
        _, _, others = self.publish()

        def of_two(kinds):
            for mine, theirs in zip(kinds["b"], others["b"]):
                self.swap(mine, theirs)
        lookup = self.damaged(of_two, ("corrupt",), 1)
        self.assertEqual(lookup["reused_tokens"], 0, lookup)

    # ---- damaged

    def test_scenario_17_extent_flipped(self):
        for at in (0, 0.5, 1):
            self.damaged(lambda kinds, at=at: self.flip(kinds["x"][0], at), ("corrupt",), 1)

    def test_scenario_17_row_flipped(self):
        for at in (0, 0.3, 0.6, 1):
            self.damaged(lambda kinds, at=at: self.flip(self.last_row(kinds), at), ("corrupt",), 1)

    def test_scenario_17_boundary_flipped(self):
        for at in (0, 0.1, 0.5, 1):
            self.damaged(lambda kinds, at=at: self.flip(self.deepest(kinds["b"]), at),
                         ("corrupt",), 1)

    def test_scenario_17_cut_off(self):
        for kind in "brx":
            for part in (0, 0.5):
                def damage(kinds, kind=kind, part=part):
                    for key in kinds[kind]:
                        self.change(key, lambda value: value.__delitem__(
                            slice(int(part * len(value)), None)))
                self.damaged(damage, ("corrupt",), 1)

    def test_scenario_17_another_type(self):
        """What is no string is an error of the store's, not of the request."""
        for kind in "brx":
            def damage(kinds, kind=kind):
                for key in kinds[kind]:
                    self.redis.ask("DEL", key)
                    self.redis.ask("LPUSH", key, "1")
            self.damaged(damage, ("corrupt",), 1)

    def test_scenario_17_secret_damaged(self):
        """No secret at all: it is taken away, and put back. Another one: all begin anew."""
        prompt, held, _ = self.publish()
        secret = self.redis.ask("GET", "parkade:secret")
        self.look_up(tokens_of("unknown", PROMPT))
        for wrong in (("SET", "what is this"), ("SET", ""), ("LPUSH", "1")):
            self.redis.ask("DEL", "parkade:secret")
            self.redis.ask(wrong[0], "parkade:secret", wrong[1])
            lookup = self.look_up(prompt)
            self.assertEqual(lookup["hit_tokens"], {"remote": held}, lookup)
            wait_until(lambda: self.redis.ask("EXISTS", "parkade:secret") == 0 or
                       self.redis.ask("TYPE", "parkade:secret") == b"string" and
                       self.redis.ask("GET", "parkade:secret") == secret, "the secret")
            prompt, held, _ = self.publish()
            wait_until(lambda: self.redis.ask("GET", "parkade:secret") == secret, "the secret")
        self.redis.ask("SET", "parkade:secret", "0" * 31 + "1")
        prompt, held, _ = self.publish()
        self.assertEqual(self.look_up(prompt)["hit_tokens"], {"remote": held})

    def test_scenario_17_not_asked_in_a_loop(self):
        """What was damaged costs one look, and nothing while nobody asks."""
        prompt, _, kinds = self.publish()
        for key in kinds["x"]:
            self.flip(key, 0.5)
        self.look_up(prompt)
        self.wait_published(self.other, len(prompt) + ANSWER - 1)
        wait_until(lambda: self.redis.ask("EXISTS", *kinds["r"]) < len(kinds["r"]),
                   "the row to be removed")
        before = self.tier_count(self.other, "parkade_read_bytes_total")
        for turn in range(3):
            self.look_up(prompt[:-10] + tokens_of(f"other {turn}", 40))
        self.assertEqual(self.tier_count(self.other, "parkade_read_bytes_total"), before)


class Scenario24(RemoteCase):
    def test_scenario_24_one_fetch(self):
        """16 clients at once, and a prefix that only the remote tier holds."""
        prefix = tokens_of("prefix", 3000)
        one = self.start_remote(DENSE)
        one.ask(prefix, ANSWER)
        self.wait_published(one, len(prefix) + ANSWER - 1)
        stored = sum(self.redis.ask("STRLEN", key) for key in self.redis.keys("x"))
        one.kill()
        plain = self.start_plain(DENSE, slots=4, context=32768)
        prompts = [prefix + tokens_of(f"client {client}", 30) for client in range(16)]
        other = self.start_remote(DENSE, slots=4, context=32768)
        answers = at_once([lambda prompt=prompt: other.ask(prompt, 4) for prompt in prompts])
        for prompt, answer in zip(prompts, answers):
            self.assertGreaterEqual(answer.cache_n, len(prefix) - 1)
            self.assert_answer_to(prompt, answer, plain)
        self.assertLessEqual(self.tier_count(other, "parkade_read_bytes_total"), 1.1 * stored)
        self.assertGreaterEqual(self.tier_count(other, "parkade_read_bytes_total"), 0.9 * stored)


if __name__ == "__main__":
    unittest.main()
