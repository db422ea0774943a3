"""A context that is nearly full: idle slots give way, or the prompt is read; nothing aborts."""

import json
import threading
import unittest

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


if __name__ == "__main__":
    unittest.main()
