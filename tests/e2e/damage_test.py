"""Damaged data is a counted miss and a right answer, never an error and never a wrong token."""

import os
import unittest

from parkade_process import ServerTest, listing, model, tokens_of

PROMPT_TOKENS = 600
ROW_BYTES = 2048


class DamageTest(ServerTest):
    def segments(self):
        found = [os.path.join(self.disk, path) for path in listing(os.path.join(self.disk))
                 if path.startswith("segments" + os.sep)]
        return sorted(path for path in found if os.path.isfile(path))

    def fill(self, chats=1):
        """Parks chats; returns their prompts, the references' next turns and answers."""
        prompts = [tokens_of(f"chat {i}", PROMPT_TOKENS) for i in range(chats)]
        plain = self.start_plain(model("dense"))
        server = self.start(model("dense"))
        longer, expected = [], []
        for prompt in prompts:
            first = server.ask(prompt)
            self.assert_same_answer(first, plain.ask(prompt))
            longer.append(prompt + first.tokens + tokens_of("turn", 20))
            expected.append(plain.ask(longer[-1]))
        server.wait_parked()
        for conversation in server.conversations():
            server.wait_durable(conversation["tokens"])
        server.kill()
        plain.kill()
        return longer, expected

    def flip(self, path, offset):
        with open(path, "r+b") as file:
            file.seek(offset)
            byte = file.read(1)[0]
            file.seek(offset)
            file.write(bytes([byte ^ 0x40]))

    def assert_corrupt_miss(self, server, lookup):
        self.assertGreater(lookup["miss_tokens"].get("corrupt", 0), 0, lookup)
        self.assertGreaterEqual(server.metrics().get_one("parkade_corrupt_total", tier="disk"), 1)
        self.assertIn("damaged bytes in disk", server.log())

    def test_a_flipped_byte_in_every_payload(self):
        longer, expected = self.fill(3)
        segments = self.segments()
        self.assertGreaterEqual(len(segments), 3)
        for path in segments:
            size = os.path.getsize(path)
            # Payload comes last and is nearly all of it.
            self.flip(path, size * 3 // 4)
        server = self.start(model("dense"))
        for prompt, reference in zip(longer, expected):
            answer = server.ask(prompt)
            self.assert_same_answer(answer, reference)
            lookup = server.last_lookup()
            self.assertLess(lookup["reused_tokens"], PROMPT_TOKENS + 63)
            self.assert_corrupt_miss(server, lookup)
        corrupt = server.metrics().get_one("parkade_corrupt_total", tier="disk")
        # Read again, so whole again; what was damaged is not asked in a loop.
        server.wait_parked()
        server.ask(longer[0])
        self.assertEqual(server.metrics().get_one("parkade_corrupt_total", tier="disk"), corrupt)
        server.kill()
        server = self.start(model("dense"))
        for prompt, reference in zip(longer, expected):
            answer = server.ask(prompt)
            self.assertEqual(answer.cache_n, len(prompt) - 1)
            self.assertEqual(answer.tokens[0], reference.tokens[0])
        self.assertEqual(server.metrics().get_one("parkade_corrupt_total", tier="disk"), 0)

    def test_keeps_what_lies_before_the_damage(self):
        """Rows are checked one extent of 256 tokens at a time."""
        longer, expected = self.fill()
        path = max(self.segments(), key=os.path.getsize)
        # Somewhere in the last extents: rows 256 to 512 of 600 end before.
        self.flip(path, os.path.getsize(path) - 40 * ROW_BYTES)
        server = self.start(model("dense"))
        answer = server.ask(longer[0])
        self.assert_same_answer(answer, expected[0])
        lookup = server.last_lookup()
        self.assertEqual(lookup["reused_tokens"], 512, lookup)
        self.assert_corrupt_miss(server, lookup)

    def test_truncated_and_missing_segments(self):
        longer, expected = self.fill(2)
        segments = [path for path in self.segments() if os.path.getsize(path) > 1 << 20]
        self.assertEqual(len(segments), 2)
        os.truncate(segments[0], os.path.getsize(segments[0]) - 5000)
        os.unlink(segments[-1])
        server = self.start(model("dense"))
        self.assertEqual(server.metrics().get_one("parkade_corrupt_total", tier="disk"), 2)
        self.assertIn("disk tier: 2 parks were found missing or damaged", server.log())
        for prompt, reference in zip(longer, expected):
            self.assert_same_answer(server.ask(prompt), reference)
        reused = [lookup["reused_tokens"] for lookup in server.lookups()]
        self.assertTrue(any(n < PROMPT_TOKENS for n in reused), reused)

    def test_catalogue_lost(self):
        """RocksDB's own files gone: the segments describe themselves."""
        longer, expected = self.fill(2)
        catalogue = os.path.join(self.disk, "catalogue")
        for name in os.listdir(catalogue):
            os.unlink(os.path.join(catalogue, name))
        server = self.start(model("dense"))
        for prompt, reference in zip(longer, expected):
            answer = server.ask(prompt)
            self.assert_served(server, "disk", PROMPT_TOKENS + 63, len(prompt))
            self.assert_same_answer(answer, reference)

    def test_damaged_while_running(self):
        longer, expected = self.fill(2)
        server = self.start(model("dense"), ram_mib=0)
        for path in self.segments():
            self.flip(path, os.path.getsize(path) * 3 // 4)
        for prompt, reference in zip(longer, expected):
            self.assert_same_answer(server.ask(prompt), reference)
            self.assert_corrupt_miss(server, server.last_lookup())

    def test_recurrent_state_is_whole_or_absent(self):
        prompt = tokens_of("chat", PROMPT_TOKENS)
        server = self.start(model("recurrent"))
        first = server.ask(prompt)
        server.wait_parked()
        server.kill()
        for path in self.segments():
            self.flip(path, os.path.getsize(path) * 3 // 4)
        server = self.start(model("recurrent"))
        longer = prompt + first.tokens + tokens_of("turn", 20)
        answer = server.ask(longer)
        self.assert_corrupt_miss(server, server.last_lookup())
        plain = self.start_plain(model("recurrent"))
        plain.ask(prompt)
        reference = plain.ask(longer)
        # Cold against warm rounds alike here: the first token is the same.
        self.assertEqual(answer.tokens[0], reference.tokens[0])


if __name__ == "__main__":
    unittest.main()
