"""A context that is nearly full: idle slots give way, or the prompt is read; nothing aborts."""

import json
import threading
import unittest

from chat_client import KINDS, LOGPROBS, ChatTest
from parkade_process import ServerTest, model, tokens_of

CHAT = 500
ANSWER = 8


class PressureTest(ServerTest):
    def at_once(self, server, prompts, n_predict=ANSWER):
        """(status, body) of requests that all come at the same time."""
        answers = [None] * len(prompts)
        together = threading.Barrier(len(prompts))

        def ask(index):
            together.wait()
            status, text = server.request("POST", "/completion",
                                          server.body(prompts[index], n_predict))
            answers[index] = (status, json.loads(text))
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(prompts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answers

    def parked_chats(self, kind, count):
        """Chats in the tiers, and what they are answered."""
        chats = [tokens_of(f"chat {i}", CHAT) for i in range(count)]
        server = self.start(model(kind), slots=1)
        answers = [server.ask(chat, ANSWER).tokens for chat in chats]
        server.wait_parked()
        server.kill()
        return chats, answers

    def race(self, kind, slots, context, all_fit):
        chats, expected = self.parked_chats(kind, slots + 1)
        server = self.start(model(kind), "--kv-unified", context=context, slots=slots)
        for round_number in range(4):
            asked = [(round_number + i) % len(chats) for i in range(slots)]
            answers = self.at_once(server, [chats[i] for i in asked])
            self.assertTrue(server.running())
            for index, (status, body) in zip(asked, answers):
                if status == 200:
                    self.assertEqual(body["tokens"][:4], expected[index][:4])
                    continue
                self.assertFalse(all_fit, body)
                # llama-server's own answer when the pool is full.
                self.assertIn("Context size has been exceeded", body["error"]["message"])
        # One after the other they have room, whatever the slots held.
        server.wait_parked()
        for chat, tokens in zip(chats, expected):
            answer = server.ask(chat, ANSWER)
            self.assertEqual(answer.tokens[:4], tokens[:4])
            self.assertGreaterEqual(answer.cache_n, CHAT - 5, server.last_lookup())
        server.check_identity()

    def test_restores_race_for_a_pool_that_holds_them(self):
        self.race("dense", 3, 3 * (CHAT + ANSWER) + 100, True)

    def test_restores_race_window(self):
        self.race("window", 3, 3 * (CHAT + ANSWER) + 100, True)

    def test_restores_race_hybrid(self):
        self.race("hybrid", 3, 3 * (CHAT + ANSWER) + 100, True)

    def test_restores_race_hybrid_window(self):
        self.race("hybrid_window", 3, 3 * (CHAT + ANSWER) + 100, True)

    def test_restores_race_for_a_pool_that_is_too_small(self):
        self.race("dense", 3, 1200, False)

    def test_too_small_window(self):
        self.race("window", 3, 1200, False)

    def test_too_small_hybrid(self):
        self.race("hybrid", 3, 1200, False)

    def test_too_small_hybrid_window(self):
        self.race("hybrid_window", 3, 1200, False)

    def test_recurrent_state_needs_no_pool(self):
        self.race("recurrent", 3, 700, True)

    def test_a_conversation_longer_than_the_context(self):
        """llama-server's own refusal; the slot is not touched for it."""
        for kind in ("dense", "hybrid", "window"):
            server = self.start(model(kind), slots=1)
            long = tokens_of("long", 3000)
            server.ask(long, ANSWER)
            server.wait_parked()
            server.kill()
            server = self.start(model(kind), context=2048, slots=1)
            short = tokens_of("short", 300)
            first = server.ask(short, ANSWER)
            error = server.json("POST", "/completion", server.body(long, ANSWER), 400)
            self.assertEqual(error["error"]["type"], "exceed_context_size_error")
            more = short + first.tokens + tokens_of("more", 20)
            answer = server.ask(more, ANSWER)
            self.assertEqual(answer.cache_n, 300 + ANSWER - 1)
            self.assert_served(server, "slot", answer.cache_n)
            # A part of it that fits is reused.
            answer = server.ask(long[:1800], ANSWER)
            if kind == "dense":
                self.assertEqual(answer.cache_n, 1799)
            server.kill()

    def test_a_session_without_room(self):
        server = self.start(model("dense"), "--kv-unified", context=4096, slots=2)
        chat = tokens_of("chat", 1800)
        server.ask(chat, ANSWER, id_slot=0)
        server.json("POST", "/slots/0?action=save", {"filename": "kept"})
        server.json("POST", "/slots/0?action=erase")
        connection = server.begin_stream(tokens_of("busy", 2400), 1500, id_slot=1)
        response = connection.getresponse()
        response.readline()
        error = server.json("POST", "/slots/0?action=restore", {"filename": "kept"}, 507)
        self.assertIn("no room", error["error"]["message"])
        text = response.read()
        self.assertIn(b'"stop":true', text)
        connection.close()
        restored = server.json("POST", "/slots/0?action=restore", {"filename": "kept"})
        self.assertEqual(restored["n_restored"], 1800 + ANSWER - 1)


class BusyTest(ChatTest):
    """A chat comes back beside one that works and one that rests, in a pool for two of them."""

    POOL = 4096
    LONG = 1500
    HELD = LONG + ANSWER - 1
    RESTS, COMES, WORKS = range(3)  # slots

    def begin_busy(self, kind):
        self.kind = KINDS[kind]
        path = model(self.kind.model)
        self.plain = self.start_plain(path, slots=3, context=3 * self.POOL)
        server = self.start(path, slots=1)
        self.chats = []
        for name in ("rests", "comes"):
            chat = tokens_of(name, self.LONG)
            self.chats.append(chat + server.ask(chat, ANSWER).tokens + tokens_of("turn", 40))
        server.wait_durable(self.HELD)
        server.wait_parked()
        server.kill()
        self.server = self.start(path, "--kv-unified", slots=3, context=self.POOL)
        # Only recurrent state does not care how long a chat is.
        self.pooled = kind != "recurrent"

    def asked(self, slot, works=False):
        """The answer, which is that of a server where every chat has a context of its own."""
        fields = {"id_slot": slot, "n_probs": LOGPROBS}
        answer = self.server.ask(self.chats[slot], ANSWER, **fields)
        if works:
            worker = self.server.json("GET", "/slots")[self.WORKS]
            self.assertTrue(worker["is_processing"], "nothing was beside it")
        self.assert_near(answer, self.plain.ask(self.chats[slot], ANSWER, **fields))
        self.assertEqual(len(answer.tokens), ANSWER)
        return answer

    def work(self, prompt_tokens, n_predict):
        connection = self.server.begin_stream(tokens_of("works", prompt_tokens), n_predict,
                                              id_slot=self.WORKS)
        response = connection.getresponse()
        self.assertTrue(response.readline().startswith(b"data: "))
        self.addCleanup(connection.close)
        return response

    def gives_way(self, kind):
        self.begin_busy(kind)
        self.assertEqual(self.asked(self.RESTS).cache_n, self.HELD)
        stream = self.work(1400, 1000)
        self.assertEqual(self.asked(self.COMES, works=True).cache_n, self.HELD)
        self.assert_served(self.server, "disk", self.HELD)
        self.assertIn(b'"stop":true', stream.read())
        # What rested was parked; nothing of it is read again.
        before = len(self.chats[self.RESTS])
        self.chats[self.RESTS] += tokens_of("later", 30)
        self.assertGreaterEqual(self.asked(self.RESTS).cache_n, before - self.kind.again)
        self.assertEqual(set(self.server.last_lookup()["hit_tokens"]),
                         {"ram"} if self.pooled else {"slot"})

    def does_not_fit(self, kind):
        self.begin_busy(kind)
        stream = self.work(2700, 200)
        fields = {"id_slot": self.COMES, "n_probs": LOGPROBS}
        status, text = self.server.request(
            "POST", "/completion", self.server.body(self.chats[self.COMES], ANSWER, **fields))
        rest = stream.read()
        self.assertTrue(self.server.running())
        if status != 200:
            self.assertTrue(self.pooled, text)
            # llama-server's own answer when the pool is full.
            self.assertIn("Context size has been exceeded", text)
        else:
            self.assertIn(b'"stop":true', rest)
        self.server.wait_parked()
        lookup = self.server.last_lookup()
        self.assertEqual(lookup["prompt_tokens"], len(self.chats[self.COMES]), lookup)
        self.assertEqual(lookup["reused_tokens"], 0 if self.pooled else self.HELD, lookup)
        # Alone, each has room, and what was kept of it.
        for slot in (self.COMES, self.RESTS):
            self.assertGreaterEqual(self.asked(slot).cache_n, self.HELD)
        self.server.check_identity()

    def test_gives_way_dense(self):
        self.gives_way("dense")

    def test_gives_way_recurrent(self):
        self.gives_way("recurrent")

    def test_gives_way_hybrid(self):
        self.gives_way("hybrid")

    def test_does_not_fit_dense(self):
        self.does_not_fit("dense")

    def test_does_not_fit_recurrent(self):
        self.does_not_fit("recurrent")

    def test_does_not_fit_hybrid(self):
        self.does_not_fit("hybrid")


if __name__ == "__main__":
    unittest.main()
