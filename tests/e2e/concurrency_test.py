"""Several requests at once, pinned slots, clients that go away."""

import json
import unittest

from chat_client import at_once
from parkade_process import ServerTest, model, tokens_of, wait_until

DENSE = model("dense")


class ConcurrencyTest(ServerTest):
    def test_two_answers_to_one_prompt(self):
        """n = 2: one look-up; the second answer shares the first one's prompt."""
        server = self.start(DENSE)
        prompt = tokens_of("chat", 500)
        server.ask(prompt, 16)
        server.wait_parked()
        server.kill()
        server = self.start(DENSE)
        answers = server.json("POST", "/completion", server.body(prompt, 16, n=2))
        self.assertEqual(len(answers), 2)
        self.assertEqual(answers[0]["tokens"], answers[1]["tokens"])
        lookups = server.lookups()
        self.assertEqual(lookups[-1]["hit_tokens"], {"disk": 499})
        self.assertEqual(answers[0]["timings"]["cache_n"], 499)
        plain = self.start_plain(DENSE)
        self.assertEqual(answers[0]["tokens"], plain.ask(prompt, 16).tokens)

    def test_pinned_slots(self):
        """id_slot: the chat is restored into the slot that the client names."""
        server = self.start(DENSE, slots=3, context=12288)
        prompt = tokens_of("chat", 500)
        first = server.ask(prompt, 16, id_slot=0)
        self.assertEqual(first.raw["id_slot"], 0)
        for slot in (2, 1):
            again = server.ask(prompt, 16, id_slot=slot)
            self.assertEqual(again.raw["id_slot"], slot)
            self.assert_served(server, "ram", 499, 500)
            self.assert_same_answer(again, first)
        server.ask(prompt, 16, id_slot=1)
        self.assert_served(server, "slot", 499, 500)

    def test_eight_clients_with_the_same_cold_prefix(self):
        server = self.start(DENSE, slots=4, context=16384)
        prefix = tokens_of("system prompt", 1200)
        prompts = [prefix + tokens_of(f"client {i}", 40) for i in range(8)]
        answers = at_once([lambda p=p: server.ask(p, 16) for p in prompts])
        plain = self.start_plain(DENSE)
        for prompt, answer in zip(prompts, answers):
            self.assertEqual(answer.tokens[0], plain.ask(prompt, 16).tokens[0])
        server.wait_parked()
        server.check_identity()
        # The second wave finds the prefix, whoever has parked it.
        later = at_once([lambda p=p: server.ask(p + [300, 301], 8) for p in prompts])
        for answer in later:
            self.assertGreaterEqual(answer.cache_n, 1200)
        # Whoever was first, the bytes of the prefix are there once.
        server.wait_parked()
        total = sum(c["bytes"] for c in server.conversations())
        self.assertLess(total, 2048 * (1200 + 8 * (40 + 16 + 2 + 8 + 64)))

    def test_eight_clients_after_a_restart(self):
        """One read serves all that wait for the same bytes."""
        server = self.start(DENSE)
        prefix = tokens_of("system prompt", 1200)
        server.ask(prefix, 8)
        server.wait_parked()
        stored = sum(c["bytes"] for c in server.conversations())
        server.kill()
        server = self.start(DENSE, slots=8, context=8 * 2048)
        prompts = [prefix + tokens_of(f"client {i}", 40) for i in range(8)]
        answers = at_once([lambda p=p: server.ask(p, 8) for p in prompts])
        plain = self.start_plain(DENSE)
        for prompt, answer in zip(prompts, answers):
            self.assertEqual(answer.cache_n, 1200)
            self.assertEqual(answer.tokens[0], plain.ask(prompt, 8).tokens[0])
        read = server.metrics().get_one("parkade_read_bytes_total", tier="disk")
        self.assertLess(read, 1.2 * stored)

    def test_a_client_leaves_a_stream(self):
        server = self.start(DENSE, slots=1)
        prompt = tokens_of("chat", 500)
        connection = server.begin_stream(prompt, 5000)
        response = connection.getresponse()
        received = []
        while len(received) < 40:
            line = response.readline()
            if line.startswith(b"data: "):
                received += json.loads(line[6:]).get("tokens", [])
        response.close()
        connection.close()
        server.wait_for_line("stop processing")
        wait_until(lambda: server.conversations(), "a parked conversation")
        server.wait_durable(500 + len(received) - 1)
        server.ask(tokens_of("other", 500), 8)
        answer = server.ask(prompt + received + tokens_of("turn", 10), 16)
        self.assert_served(server, "ram", 500 + len(received) - 1)
        plain = self.start_plain(DENSE)
        plain.ask(prompt, len(received) + 1)
        self.assert_same_answer(answer, plain.ask(prompt + received + tokens_of("turn", 10), 16))

    def test_many_short_streams_that_break(self):
        server = self.start(DENSE)
        prompts = [tokens_of(f"chat {i}", 300) for i in range(12)]
        for prompt in prompts:
            connection = server.begin_stream(prompt, 500)
            connection.sock.close()
            connection.close()
        answers = [server.ask(prompt, 8) for prompt in prompts[:4]]
        plain = self.start_plain(DENSE)
        for prompt, answer in zip(prompts, answers):
            self.assertEqual(answer.tokens, plain.ask(prompt, 8).tokens)
        self.assertTrue(server.running())

    def test_more_requests_than_slots(self):
        """Waiting ones ask too; every answer is its own."""
        server = self.start(DENSE)
        prompts = [tokens_of(f"chat {i}", 400) for i in range(6)]
        first = [server.ask(p, 16) for p in prompts]
        server.wait_parked()
        longer = [p + a.tokens + tokens_of("turn", 10) for p, a in zip(prompts, first)]
        answers = at_once([lambda p=p: server.ask(p, 16) for p in longer])
        plain = self.start_plain(DENSE)
        for prompt, answer in zip(longer, answers):
            self.assertEqual(answer.cache_n, 415)
            self.assertEqual(answer.tokens[0], plain.ask(prompt, 16).tokens[0])
        self.assertEqual(len(server.lookups()), 12)

    def test_cache_prompt_false(self):
        """Neither looked up nor parked, and counted as such."""
        server = self.start(DENSE)
        prompt = tokens_of("chat", 300)
        server.ask(prompt, 8, cache_prompt=False)
        self.assertEqual(server.last_lookup()["miss_tokens"], {"disabled": 300})
        server.wait_parked()
        self.assertEqual(server.conversations(), [])
        server.ask(prompt, 8)
        server.wait_parked()
        answer = server.ask(prompt, 8, cache_prompt=False)
        self.assertEqual(answer.cache_n, 0)
        self.assertEqual(server.last_lookup()["miss_tokens"], {"disabled": 300})

    def test_chat_endpoint_tells_the_same(self):
        """usage.prompt_tokens_details.cached_tokens is what was really reused."""
        server = self.start(DENSE, "--chat-template", "chatml")
        messages = [{"role": "user", "content": "the people would like to go " * 40}]

        def chat():
            return server.json("POST", "/v1/chat/completions",
                               {"messages": messages, "max_tokens": 16, "temperature": 0})
        first = chat()
        self.assertEqual(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        server.wait_parked()
        server.kill()
        server = self.start(DENSE, "--chat-template", "chatml")
        again = chat()
        cached = again["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertEqual(cached, again["usage"]["prompt_tokens"] - 1)
        self.assertEqual(server.last_lookup()["hit_tokens"], {"disk": cached})
        self.assertEqual(again["choices"][0]["message"], first["choices"][0]["message"])


if __name__ == "__main__":
    unittest.main()
