"""What is deleted goes from the store and stays away; what is used lives on; names and pins beside
a store."""

import unittest

from parkade_process import model, tokens_of, wait_until
from remote_case import RemoteCase
from slow_proxy import SlowProxy

DENSE = model("dense")
PROMPT = 900
ANSWER = 16
TTL_S = 60
SHORT = ("--conversation-cache-remote-ttl-s", str(TTL_S))


class RemoteDeleteTest(RemoteCase):
    def begin(self, *arguments, name="chat", tokens=PROMPT, **options):
        one = self.start_remote(DENSE, *arguments, **options)
        prompt = tokens_of(name, tokens)
        chat = prompt + one.ask(prompt, ANSWER).tokens
        self.wait_published(one, len(chat) - 1)
        return one, chat

    def delete_all(self, server):
        """Returns the ids."""
        ids = [c["id"] for c in server.conversations()]
        for conversation in ids:
            server.json("DELETE", f"/conversations/{conversation}")
        return ids

    def stored(self):
        return self.redis.keys("b") + self.redis.keys("r") + self.redis.keys("x")

    # ---- deleted

    def test_everything_goes(self):
        """Of many parks and turns, with forks; and nobody stores it again."""
        one, chat = self.begin()
        for turn in range(3):
            chat = chat + tokens_of(f"turn {turn}", 150)
            chat = chat + one.ask(chat, ANSWER).tokens
        self.wait_published(one, len(chat) - 1)
        one.ask(chat[:700] + tokens_of("a fork", 300), ANSWER)
        self.wait_published(one, 700 + 300 + ANSWER - 1)
        ids = self.delete_all(one)
        self.assertEqual(len(ids), 2)
        # What was just on its way there is erased after it has come.
        wait_until(lambda: not self.stored(), "nothing to be left in the store")
        self.assertEqual({key.split(":")[-1] for key in self.redis.keys("t")}, set(ids))
        for key in self.redis.keys("t"):
            self.assertGreater(self.redis.ask("PTTL", key), 604800000 * 1.9)
        # Asked again it is another conversation, and that one is stored.
        one.ask(chat, ANSWER)
        self.wait_published(one, len(chat) + ANSWER - 1)
        self.assertNotEqual(self.stored(), [])

    def test_a_sleeping_server_does_not_bring_it_back(self):
        """It has the chat on its disk and goes on with it: for itself alone."""
        one, chat = self.begin()
        asleep = self.start_remote(DENSE, disk=True)
        longer = chat + tokens_of("turn", 90)
        longer += asleep.ask(longer, ANSWER).tokens
        self.wait_published(asleep, len(longer) - 1)
        asleep.terminate()
        self.delete_all(one)
        awake = self.start_remote(DENSE, disk=True)
        answer = awake.ask(longer + tokens_of("awake", 90), ANSWER)
        self.assertEqual(answer.cache_n, len(longer) - 1)
        # In the order in which it is asked for: when the second is there, the first was tried.
        awake.ask(tokens_of("after it", PROMPT), ANSWER)
        self.wait_published(awake, PROMPT + ANSWER - 1)
        third = self.start_remote(DENSE)
        self.assertEqual(third.ask(longer, ANSWER).cache_n, 0)
        self.assertGreater(third.ask(tokens_of("after it", PROMPT), 1).cache_n, 0)

    def test_what_it_added_goes_with_it(self):
        """A second server has added to the chat; when it goes on there, that is taken away, too."""
        one, chat = self.begin()
        other = self.start_remote(DENSE)
        longer = chat + tokens_of("turn", 600)
        longer += other.ask(longer, ANSWER).tokens
        self.wait_published(other, len(longer) - 1)
        self.delete_all(one)
        self.assertNotEqual(self.stored(), [])  # nobody here knew of it
        other.ask(longer + tokens_of("more", 90), ANSWER)
        wait_until(lambda: self.stored() == [], "the rest to go")

    def test_while_it_is_away(self):
        """The answer does not wait for it longer than for anything, and it is done when it is back;
        what is parked meanwhile is not held up."""
        one, chat = self.begin()
        self.redis.pause()
        ids = self.delete_all(one)
        self.assertEqual(one.conversations(), [])
        one.ask(tokens_of("another", PROMPT), ANSWER)
        self.redis.go_on()
        wait_until(lambda: self.redis.ask("EXISTS", f"parkade:t:{ids[0]}"), "the tombstone")
        self.wait_published(one, PROMPT + ANSWER - 1)
        third = self.start_remote(DENSE)
        self.assertEqual(third.ask(chat, ANSWER).cache_n, 0)
        self.assertGreater(third.ask(tokens_of("another", PROMPT), 1).cache_n, 0)
        self.assertEqual(one.log().count("is not gone from the remote tier yet"), 1)

    def test_while_it_is_stored(self):
        """Half of it is on its way there."""
        proxy = SlowProxy(self.redis.port, 0.05)
        self.addCleanup(proxy.close)
        one = self.start_remote(DENSE, address=proxy.address, context=16384)
        prompt = tokens_of("chat", 6000)
        one.ask(prompt, ANSWER)
        wait_until(lambda: self.redis.keys("x"), "the first extents")
        self.delete_all(one)
        one.ask(tokens_of("after it", PROMPT), ANSWER)
        self.wait_published(one, PROMPT + ANSWER - 1)
        rows = self.redis.keys("r")
        self.assertEqual(len(rows), 1, rows + self.redis.keys("x") + self.redis.keys("b"))
        self.assertEqual({key.split(":")[-2] for key in self.redis.keys("x")},
                         {rows[0].split(":")[-1]})

    def test_of_a_server_that_was_restarted(self):
        """It does not know any more where its chat stands there, and finds it."""
        one, _ = self.begin(disk=True)
        one.terminate()
        one = self.start_remote(DENSE, disk=True)
        self.delete_all(one)
        self.assertEqual(self.stored(), [])

    # ---- time to live

    def ttls(self, kind, of=None):
        return [self.redis.ask("PTTL", key) for key in of or self.redis.keys(kind)
                if f":{kind}:" in key]

    def test_everything_expires(self):
        one, _ = self.begin(*SHORT)
        for kind in "brx":
            for ttl in self.ttls(kind):
                self.assertLessEqual(ttl, TTL_S * 1000)
                self.assertGreater(ttl, TTL_S * 1000 * 0.5)
        self.delete_all(one)
        for ttl in self.ttls("t"):
            self.assertLessEqual(ttl, TTL_S * 2000)
            self.assertGreater(ttl, TTL_S * 1000)

    def test_renewed_by_who_uses_it(self):
        """At another server at once, at the one that stored it after an eighth of the time."""
        one, chat = self.begin(*SHORT)
        mine = self.stored()
        for key in mine:
            self.redis.ask("PEXPIRE", key, 40000)
        other = self.start_remote(DENSE, *SHORT)
        self.assertEqual(other.ask(chat, 1).cache_n, len(chat) - 1)
        for kind in "brx":
            wait_until(lambda kind=kind: min(self.ttls(kind, mine)) > 42000,
                       f"renewed {kind}")
        other.kill()
        wait_until(lambda: max(self.ttls("r", mine)) < TTL_S * 1000 * 0.85, "an eighth to pass")
        one.ask(chat[:-1], 1)
        for kind in "brx":
            wait_until(lambda kind=kind: min(self.ttls(kind, mine)) > TTL_S * 1000 * 0.9,
                       f"renewed {kind}")
        self.assertEqual(one.last_lookup()["reused_tokens"], len(chat) - 2)

    # ---- names and pins

    def slot(self, server, action, name, status=200):
        return server.json("POST", f"/slots/0?action={action}", {"filename": name}, status)

    def test_names_are_a_servers_own(self):
        """A saved session is restored where it was saved; another server does not know the name,
        and finds the conversation by its tokens like any other."""
        one = self.start_remote(DENSE, slots=1)
        prompt = tokens_of("chat", PROMPT)
        first = one.ask(prompt, ANSWER)
        saved = self.slot(one, "save", "mine")
        self.assertFalse(saved["durable"])
        self.wait_published(one, saved["n_saved"])
        one.ask(tokens_of("another", PROMPT), ANSWER)
        self.assertEqual(self.slot(one, "restore", "mine")["n_restored"], saved["n_saved"])
        other = self.start_remote(DENSE, slots=1)
        self.slot(other, "restore", "mine", status=404)
        answer = other.ask(prompt + first.tokens + [300], 1)
        self.assertEqual(answer.cache_n, PROMPT + ANSWER - 1)
        saved = self.slot(other, "save", "mine")
        self.assertEqual(self.slot(other, "restore", "mine")["n_restored"], saved["n_saved"])

    def test_a_session_only_the_store_still_has(self):
        """A name keeps its rows in this server's tiers, whatever the store has."""
        one = self.start_remote(DENSE, slots=1, ram_mib=128)
        one.ask(tokens_of("chat", 3000), ANSWER)
        saved = self.slot(one, "save", "mine")["n_saved"]
        for other in range(8):
            one.ask(tokens_of(f"other {other}", 4000), 1)
        one.wait_parked()
        self.redis.kill()
        self.assertEqual(self.slot(one, "restore", "mine")["n_restored"], saved)

    def test_pins(self):
        one, chat = self.begin(ram_mib=128, tokens=3000)
        mine = one.conversations()[0]["id"]
        pinned = one.json("POST", f"/conversations/{mine}/pin", {"pinned": True})
        self.assertTrue(pinned["pinned"])
        for other in range(8):
            one.ask(tokens_of(f"other {other}", 4000), 1)
        one.wait_parked()
        one.ask(chat + [300], 1)
        self.assert_served(one, "ram", len(chat) - 1)
        one.json("POST", f"/conversations/{mine}/pin", {"pinned": False})
        self.assertFalse(one.conversation(mine)["pinned"])


if __name__ == "__main__":
    unittest.main()
