"""Named sessions: POST /slots/{id}?action=save|restore|erase."""

import threading
import unittest

from parkade_process import ServerTest, model, tokens_of
from rpc_devices import SplitTest

PROMPT_TOKENS = 500


class Sessions:
    """What the tests of both classes do; mixed into a ServerTest."""

    def slot(self, server, action, name=None, slot=0, status=200):
        body = {} if name is None else {"filename": name}
        return server.json("POST", f"/slots/{slot}?action={action}", body, status)

    def error(self, server, action, name, status, slot=0):
        error = self.slot(server, action, name, slot, status)["error"]
        self.assertEqual(error["code"], status)
        self.assertTrue(error["type"])
        return error["message"]

    def save_and_restore(self, model_path, before, after, *arguments):
        """Saves, goes on, kills, restores: the saved state is back, and nothing is read again."""
        prompt, turn, other = (tokens_of(name, count) for name, count in (
            ("chat", PROMPT_TOKENS), ("turn", 30), ("other turn", 30)))
        plain = self.start_plain(model_path, *before, *arguments, slots=1)
        first = plain.ask(prompt)
        saved_tokens = prompt + first.tokens[:-1]
        longer = prompt + first.tokens + turn
        reference = plain.ask(longer)
        plain.kill()

        server = self.start(model_path, *before, *arguments, slots=1)
        server.ask(prompt)
        saved = self.slot(server, "save", "my chat")
        self.assertEqual(saved["n_saved"], len(saved_tokens))
        self.assertEqual((saved["id_slot"], saved["filename"]), (0, "my chat"))
        self.assertTrue(saved["durable"])
        self.assertGreater(saved["n_written"], 0)
        server.ask(prompt + first.tokens + other)  # the chat goes on elsewhere
        server.kill()

        server = self.start(model_path, *after, *arguments, slots=1)
        restored = self.slot(server, "restore", "my chat")
        self.assertEqual(restored["n_restored"], len(saved_tokens))
        self.assertGreater(restored["n_read"], 0)
        self.assertEqual(server.lookups(), [])
        answer = server.ask(longer)
        self.assertEqual(answer.cache_n, len(saved_tokens))
        self.assert_served(server, "slot", len(saved_tokens))
        self.assertEqual(len(answer.tokens), 64)
        self.assert_same_answer(answer, reference)
        return server


class SessionsTest(Sessions, ServerTest):
    def test_dense(self):
        self.save_and_restore(model("dense"), [], [])

    def test_window_full_cache(self):
        self.save_and_restore(model("window"), [], [], "--swa-full")

    def test_window(self):
        """Text may differ by rounding; what is reused may not."""
        prompt = tokens_of("chat", PROMPT_TOKENS)
        server = self.start(model("window"), slots=1)
        first = server.ask(prompt)
        held = self.slot(server, "save", "w")["n_saved"]
        server.ask(tokens_of("another chat", 300))
        self.assertEqual(self.slot(server, "restore", "w")["n_restored"], held)
        self.assertEqual(server.ask(prompt + first.tokens + [300, 301]).cache_n, held)

    def test_recurrent(self):
        self.save_and_restore(model("recurrent"), [], [])

    def test_hybrid(self):
        self.save_and_restore(model("hybrid"), [], [])

    def test_position_survives_the_chat(self):
        """Two names on one chat; the chat itself is one conversation and is not stored twice."""
        prompt = tokens_of("chat", PROMPT_TOKENS)
        server = self.start(model("dense"), slots=1)
        first = server.ask(prompt)
        self.slot(server, "save", "early")
        second = server.ask(prompt + first.tokens + tokens_of("turn", 40))
        late = self.slot(server, "save", "late")["n_saved"]
        server.wait_parked()
        rows = late * 2048
        self.assertLess(server.metrics().get_one("parkade_written_bytes_total", tier="disk"),
                        1.1 * rows)
        named = {c["name"]: c for c in server.conversations() if c["name"]}
        self.assertEqual(set(named), {"early", "late"})
        for conversation in named.values():
            self.assertTrue(conversation["pinned"])
            self.assertEqual(conversation["durable_tokens"], conversation["tokens"])
        early = PROMPT_TOKENS + len(first.tokens) - 1
        self.assertEqual((named["early"]["tokens"], named["late"]["tokens"]), (early, late))
        self.assertEqual(self.slot(server, "restore", "early")["n_restored"], early)
        self.assertEqual(self.slot(server, "restore", "late")["n_restored"], late)
        answer = server.ask(prompt + first.tokens + tokens_of("turn", 40) + second.tokens + [300])
        self.assertEqual(answer.cache_n, late)

    def test_a_name_is_given_again(self):
        server = self.start(model("dense"), slots=1)
        server.ask(tokens_of("one", 300))
        self.slot(server, "save", "name")
        server.ask(tokens_of("two", 400))
        saved = self.slot(server, "save", "name")["n_saved"]
        self.assertEqual(len([c for c in server.conversations() if c["name"] == "name"]), 1)
        server.kill()
        server = self.start(model("dense"), slots=1)
        self.assertEqual(self.slot(server, "restore", "name")["n_restored"], saved)

    def test_what_the_slot_held_is_parked_before(self):
        server = self.start(model("dense"), ram_mib=0, slots=1)
        mine = tokens_of("mine", 300)
        server.ask(mine)
        self.slot(server, "save", "mine")
        other = tokens_of("other", 400)
        answer = server.ask(other)
        self.slot(server, "restore", "mine")
        server.wait_parked()
        again = server.ask(other + answer.tokens + [300])
        self.assertEqual(again.cache_n, len(other) + len(answer.tokens) - 1)
        self.assert_served(server, "disk", again.cache_n)

    def test_short_session(self):
        server = self.start(model("dense"), slots=1)
        server.ask(tokens_of("short", 10), 5)
        self.assertEqual(self.slot(server, "save", "short")["n_saved"], 14)
        server.kill()
        server = self.start(model("dense"), slots=1)
        self.assertEqual(self.slot(server, "restore", "short")["n_restored"], 14)

    def test_without_disk_it_is_not_durable(self):
        server = self.start(model("dense"), disk=False, slots=1)
        server.ask(tokens_of("chat", 300))
        self.assertFalse(self.slot(server, "save", "ram")["durable"])
        server.ask(tokens_of("another", 300))
        self.assertEqual(self.slot(server, "restore", "ram")["n_restored"], 363)

    def test_another_identity_is_named(self):
        server = self.start(model("dense"), slots=1)
        server.ask(tokens_of("chat", 300))
        self.slot(server, "save", "f16")
        server.kill()
        server = self.start(model("dense"), "-ctk", "q8_0", slots=1)
        prompt = tokens_of("here", 300)
        server.ask(prompt)
        self.assertIn("'", self.error(server, "restore", "f16", 409))
        self.assertEqual(server.ask(prompt + [300]).cache_n, 300)

    def test_too_long_for_the_context(self):
        server = self.start(model("dense"), slots=1, context=2048)
        server.ask(tokens_of("chat", 1500))
        self.slot(server, "save", "long")
        server.kill()
        server = self.start(model("dense"), slots=1, context=1024)
        self.assertIn("1563", self.error(server, "restore", "long", 400))

    def test_erase(self):
        server = self.start(model("dense"), ram_mib=0, slots=1)
        prompt = tokens_of("chat", 300)
        answer = server.ask(prompt)
        erased = self.slot(server, "erase")
        self.assertEqual(erased, {"id_slot": 0, "n_erased": 363})
        # It was parked when it was released.
        server.wait_parked()
        again = server.ask(prompt + answer.tokens + [300])
        self.assert_served(server, "disk", 363)
        self.assertEqual(again.cache_n, 363)

    def test_waits_for_a_busy_slot(self):
        server = self.start(model("dense"), slots=1)
        connection = server.begin_stream(tokens_of("chat", 300), 400)
        response = connection.getresponse()
        response.readline()
        saved = []
        thread = threading.Thread(target=lambda: saved.append(self.slot(server, "save", "busy")))
        thread.start()
        while response.readline():
            pass
        thread.join(60)
        connection.close()
        self.assertEqual(saved[0]["n_saved"], 699)

    def test_a_key_is_asked_for(self):
        server = self.start(model("dense"), "--api-key", "secret", slots=1)
        status, _ = server.request("POST", "/slots/0?action=save", {"filename": "a"})
        self.assertEqual(status, 401)
        server.kill()  # the check after a test has no key

    def test_without_a_cache_llama_server_answers(self):
        server = self.start_plain(model("dense"), slots=1)
        status, text = server.request("POST", "/slots/0?action=save", {"filename": "a"})
        self.assertEqual(status, 501, text)
        self.assertIn("--slot-save-path", text)

    def test_others_go_on_while_one_is_restored(self):
        server = self.start(model("dense"), ram_mib=0, slots=2)
        server.ask(tokens_of("chat", 3000), id_slot=0)
        held = self.slot(server, "save", "long")["n_saved"]
        connection = server.begin_stream(tokens_of("stream", 100), 600, id_slot=1)
        response = connection.getresponse()
        response.readline()
        self.assertEqual(self.slot(server, "restore", "long")["n_restored"], held)
        text = b""
        while line := response.readline():
            text += line
        connection.close()
        self.assertIn(b'"stop":true', text)

    def test_pin_gives_a_name_too(self):
        server = self.start(model("dense"), slots=1)
        server.ask(tokens_of("chat", 300))
        server.wait_parked()
        chat = server.conversations()[0]["id"]
        server.json("POST", f"/conversations/{chat}/pin", {"pinned": True, "name": "pinned"})
        server.ask(tokens_of("another", 300))
        self.assertEqual(self.slot(server, "restore", "pinned")["n_restored"], 363)


class SplitSessionsTest(Sessions, SplitTest):
    def test_two_stages(self):
        split = self.split(1, 1)
        server = self.save_and_restore(model("dense"), split, split)
        self.assertEqual(len(self.stage_map(server)), 2)

    def test_two_stages_to_three(self):
        self.save_and_restore(model("window"), self.split(1, 1), self.split(1, 2, 4), "--swa-full")

    def test_one_device_to_two_stages(self):
        self.save_and_restore(model("hybrid"), [], self.split(1, 1))

    def test_two_stages_to_one_device(self):
        self.save_and_restore(model("recurrent"), self.split(1, 1), [])


if __name__ == "__main__":
    unittest.main()
