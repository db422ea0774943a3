"""A prompt whose state is larger than all the memory that the cache may hold."""

import os
import sys
import unittest

import parkade_process as parkade
from parkade_process import ROOT, ServerTest, tokens_of

CAPTURE_BUFFER_BYTES = 96 << 20  # of a cache without a RAM tier
TOKENS = 500
ROW_BYTES = 1 << 20  # 2 layers of 1024 heads of 64 numbers of 4 bytes, twice


def fat_model(name="fat", row_bytes=ROW_BYTES):
    """A model with few tokens' worth of work and very wide rows; made once for a name."""
    sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
    import make_models as models  # needs numpy and gguf, which only this test uses
    path = parkade.model(name)
    if os.path.exists(path):
        return path
    os.makedirs(parkade.MODELS, exist_ok=True)
    partial = f"{path}.{os.getpid()}"
    fat = models.Model(partial, "llama", name, layers=2)
    heads = row_bytes // (fat.layers * models.HEAD * 4 * 2)
    fat.writer.add_feed_forward_length(256)
    fat.writer.add_head_count(heads)
    fat.writer.add_head_count_kv(heads)
    fat.writer.add_key_length(models.HEAD)
    fat.writer.add_value_length(models.HEAD)
    fat.writer.add_rope_dimension_count(models.HEAD)
    fat.embeddings()
    for layer in range(fat.layers):
        fat.vector(f"blk.{layer}.attn_norm.weight", models.EMBD, 1.0)
        fat.attention(layer, heads, heads)
        fat.feed_forward(layer, 256)
    fat.finish()
    os.replace(partial, path)
    return path


class LongPromptTest(ServerTest):
    ARGUMENTS = ("-ctk", "f32", "-ctv", "f32", "-b", "16", "-ub", "16")

    def start_fat(self, **options):
        return self.start(fat_model(), *self.ARGUMENTS, context=TOKENS + 128, slots=1,
                          ram_mib=0, **options)

    def test_state_of_five_capture_buffers(self):
        prompt = tokens_of("long", TOKENS)
        self.assertGreater(TOKENS * ROW_BYTES, 5 * CAPTURE_BUFFER_BYTES)
        server = self.start_fat()
        self.assertIn(f"{ROW_BYTES} bytes a token", server.log())
        first = server.ask(prompt, 8)
        # What did not fit at the end goes on when the slots are idle.
        server.wait_durable(TOKENS + 7)
        skipped = server.metrics().get_one("parkade_skipped_parks_total", reason="queue_full")
        self.assertEqual(skipped, 0)
        stored = sum(c["bytes"] for c in server.conversations())
        self.assertEqual(stored, (TOKENS + 7) * ROW_BYTES)
        server.kill()
        server = self.start_fat()
        again = server.ask(prompt + first.tokens + tokens_of("turn", 10), 8)
        self.assert_served(server, "disk", TOKENS + 7)
        server.kill()
        plain = self.start_fat(disk=False)
        self.assert_same_answer(plain.ask(prompt, 8), first)
        reference = plain.ask(prompt + first.tokens + tokens_of("turn", 10), 8)
        self.assert_same_answer(again, reference)

    def test_killed_in_the_middle_of_the_prompt(self):
        prompt = tokens_of("long", 450)
        server = self.start_fat()
        connection = server.begin_stream(prompt, 8)
        durable = server.wait_durable(128)["durable_tokens"]
        self.assertNotIn("stop processing", server.log())
        server.kill()
        connection.close()
        self.assertLess(durable, 450)
        server = self.start_fat()
        kept = server.conversations()[0]["durable_tokens"]
        self.assertGreaterEqual(kept, durable)
        answer = server.ask(prompt, 8)
        self.assert_served(server, "disk", kept, 450)
        server.kill()
        plain = self.start_fat(disk=False)
        self.assert_same_answer(answer, plain.ask(prompt, 8))


if __name__ == "__main__":
    unittest.main()
