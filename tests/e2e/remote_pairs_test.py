"""Two servers that read and write the same conversations: at the same time, with other slots,
splits, tiers and keys."""

import os
import unittest

from chat_client import at_once
from parkade_process import model, tokens_of, wait_until
from remote_case import RemoteCase
from rpc_devices import SplitTest

DENSE = model("dense")
PROMPT = 900
ANSWER = 16


class RemotePairsTest(RemoteCase):
    def setUp(self):
        super().setUp()
        self.plain = self.start_plain(DENSE)

    def ask(self, server, prompt, count=ANSWER):
        answer = server.ask(prompt, count)
        self.assert_answer_to(prompt, answer, self.plain)
        return answer

    def begin(self, *arguments, name="chat", tokens=PROMPT, **options):
        """A server with a chat that is published. Returns it and the chat so far."""
        one = self.start_remote(DENSE, *arguments, **options)
        prompt = tokens_of(name, tokens)
        chat = prompt + self.ask(one, prompt).tokens
        self.wait_published(one, len(chat) - 1)
        return one, chat

    def goes_on(self, server, chat, tier="remote", turn="turn"):
        """The chat goes on at the server with all that is held of it. Returns the chat."""
        longer = chat + tokens_of(turn, 90)
        answer = self.ask(server, longer)
        self.assertEqual(answer.cache_n, len(chat) - 1, server.last_lookup())
        self.assertIn(tier, server.last_lookup()["hit_tokens"])
        return longer + answer.tokens

    # ---- the same conversation at both

    def test_both_begin_at_the_same_time(self):
        servers = [self.start_remote(DENSE), self.start_remote(DENSE)]
        prompt = tokens_of("chat", 3000)
        first, second = at_once([lambda s=server: s.ask(prompt, ANSWER) for server in servers])
        self.assert_same_answer(first, second)
        for server in servers:
            self.wait_published(server, len(prompt) + ANSWER - 1)
        third = self.start_remote(DENSE)
        self.goes_on(third, prompt + first.tokens)

    def test_both_go_on_differently(self):
        """Each branch is whole for a third server, and what they share is stored once."""
        one, chat = self.begin()
        other = self.start_remote(DENSE)
        self.goes_on(other, chat, turn="other's")
        before = set(self.redis.keys("x"))
        branches = [chat + tokens_of("one's", 200), chat + tokens_of("other's", 700)]
        answers = at_once([lambda: self.ask(one, branches[0]),
                           lambda: self.ask(other, branches[1])])
        for number, (server, answer) in enumerate(zip((one, other), answers)):
            branches[number] += answer.tokens
            self.wait_published(server, len(branches[number]) - 1)
        added = set(self.redis.keys("x")) - before
        whole = sum(self.redis.ask("STRLEN", key) for key in before)
        new = sum(self.redis.ask("STRLEN", key) for key in added)
        # The branches' own tokens, and not the 900 that they share.
        self.assertLess(new, 1.2 * whole)
        third = self.start_remote(DENSE)
        for branch in branches:
            self.goes_on(third, branch)

    def test_there_and_back_and_there(self):
        """Each time the longer one survives, and is found whole."""
        one, chat = self.begin()
        other = self.start_remote(DENSE)
        for turn in range(2):
            for server in (other, one):
                longer = chat + tokens_of(f"turn {turn}", 100)
                answer = self.ask(server, longer)
                self.assertEqual(answer.cache_n, len(chat) - 1, server.last_lookup())
                chat = longer + answer.tokens
                self.wait_published(server, len(chat) - 1)
        third = self.start_remote(DENSE)
        self.goes_on(third, chat)

    def test_forks_share_the_prefix(self):
        """A system prompt that one server has stored is not stored again by another's chats."""
        system = tokens_of("system", 1024)
        one = self.start_remote(DENSE)
        self.ask(one, system + tokens_of("first chat", 300))
        self.wait_published(one, 1024 + 300 + ANSWER - 1)
        before = sum(self.redis.ask("STRLEN", key) for key in self.redis.keys("x"))
        other = self.start_remote(DENSE)
        chats = []
        for chat in range(3):
            prompt = system + tokens_of(f"chat {chat}", 200)
            answer = self.ask(other, prompt)
            self.assertEqual(answer.cache_n, 1024)
            self.wait_published(other, len(prompt) + ANSWER - 1)
            chats.append(prompt + answer.tokens)
        after = sum(self.redis.ask("STRLEN", key) for key in self.redis.keys("x"))
        self.assertLess(after - before, 3 * before * 0.35)
        third = self.start_remote(DENSE)
        for chat in chats:
            self.goes_on(third, chat)

    # ---- unlike servers

    def test_other_slots(self):
        """-np, -c, one pool for all slots or one for each."""
        _, chat = self.begin("--kv-unified", slots=1)
        for slots, arguments in ((4, ["--kv-unified"]), (4, ["--no-kv-unified"]), (1, [])):
            other = self.start_remote(DENSE, *arguments, slots=slots, context=16384)
            chat = self.goes_on(other, chat)
            self.wait_published(other, len(chat) - 1)
            other.kill()

    def test_another_kv_type(self):
        """Is another conversation: a miss, and each is stored for its own."""
        one, chat = self.begin("-fa", "on")
        other = self.start_remote(DENSE, "-fa", "on", "-ctk", "q8_0", "-ctv", "q8_0")
        answer = other.ask(chat + [300], ANSWER)
        self.assertEqual(answer.cache_n, 0)
        self.assertEqual(other.last_lookup()["reason"], "cold")
        self.wait_published(other, len(chat) + ANSWER)
        third = self.start_remote(DENSE, "-fa", "on", "-ctk", "q8_0", "-ctv", "q8_0")
        self.assertEqual(third.ask(chat + [300, 301], 1).cache_n, len(chat) + 1)
        self.goes_on(one, chat, tier="slot")

    def test_another_prefix(self):
        self.begin()
        other = self.start_remote(DENSE, address=self.redis.address + "/others")
        self.assertEqual(self.ask(other, tokens_of("chat", PROMPT)).cache_n, 0)
        self.wait_published(other, PROMPT + ANSWER - 1)
        self.assertNotEqual([key for key in self.redis.keys() if key.startswith("others:")], [])

    # ---- with disks

    def test_lives_on_in_the_second_servers_disk(self):
        """After reuse: without the store, after a restart."""
        _, chat = self.begin(disk=False)
        other = self.start_remote(DENSE, disk=True)
        chat = self.goes_on(other, chat)
        other.wait_durable(len(chat) - 1)
        other.terminate()
        self.redis.kill()
        again = self.start_remote(DENSE, disk=True)
        self.goes_on(again, chat, tier="disk")

    def test_disk_alone(self):
        """No RAM tier at either: published from the disk, and kept there."""
        one, chat = self.begin(disk=True, ram_mib=0)
        one.kill()
        self.disk = os.path.join(self.folder, "another")
        other = self.start_remote(DENSE, disk=True, ram_mib=0)
        chat = self.goes_on(other, chat)
        other.wait_durable(len(chat) - 1)
        self.wait_published(other, len(chat) - 1)
        other.terminate()
        self.redis.kill()
        again = self.start_remote(DENSE, disk=True, ram_mib=0)
        self.goes_on(again, chat, tier="disk")

    def test_published_after_a_restart(self):
        """The store was away, the server ended: what lies on its disk follows when it is used."""
        self.redis.kill()
        one = self.start_remote(DENSE, disk=True)
        prompt = tokens_of("chat", PROMPT)
        chat = prompt + self.ask(one, prompt).tokens
        one.wait_durable(len(chat) - 1)
        one.terminate()
        self.redis.start()
        one = self.start_remote(DENSE, disk=True)
        chat = self.goes_on(one, chat, tier="disk")
        self.wait_published(one, len(chat) - 1)
        self.disk = os.path.join(self.folder, "another")
        self.goes_on(self.start_remote(DENSE, disk=True), chat)

    def test_forgotten_locally(self):
        """A server with little RAM and no disk takes from the store what it had itself."""
        one, chat = self.begin(ram_mib=128, tokens=3900)
        for other in range(6):
            self.ask(one, tokens_of(f"other {other}", 4000), 1)
        one.wait_parked()
        self.goes_on(one, chat)

    def test_forgotten_locally_and_away(self):
        """The same with the store away: what the slot or RAM have is kept."""
        deadline = ("--conversation-cache-remote-deadline-ms", "3000")
        one, chat = self.begin(*deadline, ram_mib=128, tokens=4000)
        for other in range(12):
            self.ask(one, tokens_of(f"other {other}", 4000), 1)
        one.wait_parked()
        wait_until(lambda: sum(c["tiers"] == ["remote"] for c in one.conversations()) >= 2,
                   "two chats that only the store has")
        self.redis.pause()
        lookup = self.missed(one, chat + [300])
        self.assertLess(lookup["seconds"], 4, lookup)
        self.assertGreater(lookup["seconds"], 2.5, lookup)
        # The first 500 tokens of another chat that only the store has are in a slot by now.
        half = tokens_of("other 0", 4000)[:500]
        self.ask(one, half + tokens_of("a branch", 10))
        lookup = self.missed(one, tokens_of("other 0", 4000) + [300], at_least=500)
        self.assertLess(lookup["seconds"], 1, lookup)

    def missed(self, server, prompt, at_least=0):
        answer = self.ask(server, prompt)
        lookup = server.last_lookup()
        self.assertEqual(lookup["reason"], "remote", lookup)
        self.assertGreaterEqual(answer.cache_n, at_least, lookup)
        self.assertLess(answer.cache_n, at_least + 64, lookup)
        return lookup

    # ---- keys

    def key_file(self, name, byte):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="ascii") as file:
            file.write(f"{byte:02x}" * 32)
        os.chmod(path, 0o600)
        return ("--conversation-cache-key-file", path)

    def test_encrypted(self):
        """Nothing of the text, and no extent, is readable in the store; both servers read it."""
        key = self.key_file("key", 7)
        _, chat = self.begin(*key)
        with_key = {k: self.redis.ask("GET", k) for k in self.redis.keys("x")}
        self.redis.ask("FLUSHALL")
        self.begin(address=self.redis.address + "/plain")
        plain = {self.redis.ask("GET", k) for k in self.redis.keys("x")}
        self.assertEqual(plain & set(with_key.values()), set())
        self.redis.ask("FLUSHALL")
        one, chat = self.begin(*key, name="another")
        other = self.start_remote(DENSE, *key)
        chat = self.goes_on(other, chat)
        self.wait_published(other, len(chat) - 1)
        self.goes_on(one, chat)

    def test_encrypted_damaged(self):
        """One bit of a sealed value is a miss with a reason."""
        key = self.key_file("key", 7)
        _, chat = self.begin(*key)
        for kind in "rx":
            # Extents of a row that was thrown away lie there until they expire.
            rows = {key.split(":")[2] for key in self.redis.keys("r")}
            name = next(key for key in self.redis.keys(kind) if key.split(":")[2] in rows)
            value = bytearray(self.redis.ask("GET", name))
            value[len(value) // 2] ^= 1
            self.redis.ask("SET", name, bytes(value))
            other = self.start_remote(DENSE, *key)
            self.ask(other, chat + [300])
            self.assertEqual(other.last_lookup()["reason"], "corrupt", other.last_lookup())
            self.assertEqual(self.tier_count(other, "parkade_corrupt_total"), 1)
            self.wait_published(other, len(chat) + ANSWER)
            other.kill()

    def test_wrong_key(self):
        """Another key, or none where there is one, or one where there is none: the tier is down
        with one clear line, and each request is answered."""
        right, wrong = self.key_file("right", 7), self.key_file("wrong", 8)
        self.begin(*right)
        self.refused(wrong, "encrypted with another key")
        self.refused((), "encrypted with another key")
        self.redis.ask("FLUSHALL")
        self.begin(name="plain")
        self.refused(right, "is not encrypted")

    def refused(self, key, why):
        other = self.start_remote(DENSE, *key)
        for turn in range(3):
            self.ask(other, tokens_of(f"chat {turn}", PROMPT))
            self.assertEqual(other.last_lookup()["reason"], "remote")
        self.assertIn(why, self.wait_state(other, "down"))
        told = lambda: [line for line in other.log().splitlines() if why in line]
        wait_until(told, f"a line that says {why}")
        # That the tier is down, and the request's own, if one came before it was known.
        self.assertLessEqual(len(told()), 2, told())
        for line in told():
            self.assertIn("--conversation-cache-key-file", line)
        other.kill()


class RemoteSplitTest(RemoteCase, SplitTest):
    def test_another_split(self):
        """Two stages at one server, one at the other, and back."""
        chat = tokens_of("chat", PROMPT)
        plain = self.start_plain(DENSE)
        split = self.split(1, 1)
        one = self.start_remote(DENSE, *split)
        other = self.start_remote(DENSE)
        for server in (one, other, one, other):
            answer = server.ask(chat, ANSWER)
            self.assert_answer_to(chat, answer, plain)
            if len(chat) > PROMPT:
                self.assertEqual(answer.cache_n, held, server.last_lookup())
            held = len(chat) + ANSWER - 1
            self.wait_published(server, held)
            chat = chat + answer.tokens + tokens_of(f"turn {len(chat)}", 90)


if __name__ == "__main__":
    unittest.main()
