"""A layer split: stages from the real devices, all or nothing, from any split to any split."""

import http.client
import os
import unittest

from parkade_process import GEMMA, model, tokens_of, wait_until
from rpc_devices import SplitTest

PROMPT_TOKENS = 700
STORY = " ".join(f"Item {i} weighs {i * 7 % 101} grams and is coloured "
                 f"{('red', 'blue', 'green')[i % 3]}." for i in range(46))


class StagesTest(SplitTest):
    def talk(self, model_path, before, after, *arguments, prompt=None):
        """Parks under one split, kills, goes on under another. Returns the server that went on.

        The answer must be that of a server that was never interrupted and never split again.
        """
        plain = self.start_plain(model_path, *before, *arguments)
        prompt = plain.tokenize(STORY) if prompt is None else prompt
        first = plain.ask(prompt)
        longer = prompt + first.tokens + prompt[5:40]
        reference = plain.ask(longer)
        plain.kill()
        server = self.start(model_path, *before, *arguments)
        self.assert_same_answer(server.ask(prompt), first)
        held = len(prompt) + len(first.tokens) - 1
        server.wait_durable(held)
        self.assert_one_line_names_the_stages(server, self.stage_map(server))
        self.parked_map = self.stage_map(server)
        server.kill()
        server = self.start(model_path, *after, *arguments)
        answer = server.ask(longer)
        self.assert_served(server, "disk", held, len(longer))
        self.assertEqual(answer.cache_n, held)
        self.assert_same_answer(answer, reference)
        server.wait_durable(len(longer) + len(answer.tokens) - 1)
        return server

    def assert_one_line_names_the_stages(self, server, stages):
        lines = [line for line in server.log().splitlines() if "conversations are kept" in line]
        self.assertEqual(len(lines), 1, lines)
        for device, layers in stages:
            self.assertIn(f"{len(layers)} layers on {device}", lines[0])

    def assert_stages(self, stages, sizes):
        """The stages have this many layers each, all layers once and in order."""
        self.assertEqual([len(layers) for _, layers in stages], sizes, stages)
        every = [layer for _, layers in stages for layer in layers]
        self.assertEqual(every, list(range(sum(sizes))))
        self.assertEqual(len({device for device, _ in stages}), len(sizes), stages)

    # ---- restart under the same split ----

    def test_two_even_stages(self):
        split = self.split(1, 1)
        server = self.talk(model("dense"), split, split, prompt=tokens_of("chat", PROMPT_TOKENS))
        self.assert_stages(self.parked_map, [3, 1])
        self.assertEqual(self.stage_map(server), self.parked_map)
        restored = [server.metrics().get_one("parkade_stage_restored_bytes_total", stage=str(stage))
                    for stage in (0, 1)]
        self.assertGreater(min(restored), 0)
        # Rows of a layer are as large as those of any other.
        self.assertEqual(restored[0], 3 * restored[1])

    def test_three_stages(self):
        split = self.split(2, 2, 3)
        server = self.talk(model("window"), split, split, "--swa-full",
                           prompt=tokens_of("chat", PROMPT_TOKENS))
        self.assert_stages(self.parked_map, [2, 2, 2])
        self.assertEqual(set(server.last_lookup()["stage_tiers"]), {"disk"})
        self.assertEqual(len(server.last_lookup()["stage_tiers"]), 3)

    def test_layers_left_on_the_processor(self):
        split = self.split(1, layers_on_devices=3)
        self.talk(model("dense"), split, split, prompt=tokens_of("chat", PROMPT_TOKENS))
        self.assert_stages(self.parked_map, [2, 2])
        self.assertEqual(self.parked_map[0][0], "CPU")
        self.assertTrue(self.parked_map[1][0].startswith("RPC"), self.parked_map)

    def test_recurrent_state(self):
        split = self.split(1, 1)
        self.talk(model("recurrent"), split, split, prompt=tokens_of("chat", PROMPT_TOKENS))
        self.assertEqual(len(self.parked_map), 2)

    def test_hybrid(self):
        split = self.split(1, 1)
        self.talk(model("hybrid"), split, split, prompt=tokens_of("chat", PROMPT_TOKENS))
        self.assertEqual(len(self.parked_map), 2)

    def test_gemma(self):
        split = self.split(1, 1)
        self.talk(GEMMA, split, split, "--swa-full")
        self.assert_stages(self.parked_map, [10, 8])

    # ---- another split ----

    def test_one_to_two(self):
        server = self.talk(model("dense"), [], self.split(1, 1),
                           prompt=tokens_of("chat", PROMPT_TOKENS))
        self.assert_stages(self.parked_map, [4])
        # What is parked now lies in two stages; what was parked before is not written again.
        self.assert_stages(self.stage_map(server), [3, 1])
        self.assertLess(server.metrics().get_one("parkade_written_bytes_total", tier="disk"),
                        (64 + 64 + 40) * 2048 * 1.2)

    def test_two_to_one(self):
        self.talk(model("dense"), self.split(1, 1), [], prompt=tokens_of("chat", PROMPT_TOKENS))
        self.assert_stages(self.parked_map, [3, 1])

    def test_two_to_three_uneven(self):
        server = self.talk(model("window"), self.split(2, 1), self.split(1, 2, 4), "--swa-full",
                           prompt=tokens_of("chat", PROMPT_TOKENS))
        self.assert_stages(self.parked_map, [5, 1])
        self.assertEqual(len(self.stage_map(server)), 3)

    def test_hybrid_moves_to_other_devices(self):
        self.talk(model("hybrid"), [], self.split(1, 2), prompt=tokens_of("chat", PROMPT_TOKENS))
        self.assertEqual(len(self.parked_map), 1)

    def test_recurrent_moves_to_one_device(self):
        self.talk(model("recurrent"), self.split(1, 1), [],
                  prompt=tokens_of("chat", PROMPT_TOKENS))
        self.assertEqual(len(self.parked_map), 2)

    # ---- several slots ----

    def several_slots(self, *arguments):
        split = self.split(1, 1)
        prompts = [tokens_of(f"chat {i}", PROMPT_TOKENS) for i in range(4)]
        plain = self.start_plain(model("dense"), *split, *arguments)
        expected = [plain.ask(prompt).tokens for prompt in prompts]
        plain.kill()
        server = self.start(model("dense"), *split, *arguments)
        for prompt, tokens in zip(prompts, expected):
            self.assertEqual(server.ask(prompt).tokens, tokens)
        server.wait_parked()
        server.kill()
        server = self.start(model("dense"), *split, *arguments)
        for prompt, tokens in zip(prompts, expected):
            answer = server.ask(prompt)
            self.assertEqual(answer.cache_n, PROMPT_TOKENS - 1)
            self.assert_served(server, "disk", PROMPT_TOKENS - 1)
            self.assertEqual(answer.tokens, tokens)

    def test_more_chats_than_slots(self):
        self.several_slots()

    def test_more_chats_than_slots_in_one_pool(self):
        self.several_slots("-kvu")


class StageFaultTest(SplitTest):
    """What happens to one stage happens to the conversation: a shorter hit or a miss."""

    # What is read again is read in other batches than the reference's, so sums round differently
    # and after many tokens two of these random models' words may change places.
    ANSWER_TOKENS = 24

    def fill(self, chats=1):
        """Parks a chat over two stages; returns its next prompt and what is right for it."""
        split = self.split(1, 1)
        prompt = tokens_of("chat", PROMPT_TOKENS)
        plain = self.start_plain(model("dense"), *split)
        first = plain.ask(prompt)
        longer = prompt + first.tokens + tokens_of("turn", 20)
        reference = plain.ask(longer, self.ANSWER_TOKENS)
        plain.kill()
        server = self.start(model("dense"), *split)
        server.ask(prompt)
        server.wait_durable(PROMPT_TOKENS + 63)
        server.kill()
        return split, longer, reference

    def check_next_requests(self, server, longer, reference):
        """Engine, slots and other conversations are as they were: nothing of the failure stays."""
        self.assert_same_answer(server.ask(longer, self.ANSWER_TOKENS), reference)
        other = tokens_of("another chat", 300)
        self.assertEqual(server.ask(other).cache_n, 0)
        self.assert_same_answer(server.ask(longer, self.ANSWER_TOKENS), reference)

    def test_damage_in_one_stage_limits_all(self):
        split, longer, reference = self.fill()
        for stage in (0, 1):
            self.assertGreaterEqual(len(self.extents(stage)), 3)
        # The second extent of the second stage: rows 256 to 511.
        self.damage(self.extents(1)[1])
        server = self.start(model("dense"), *split)
        answer = server.ask(longer, self.ANSWER_TOKENS)
        self.assert_same_answer(answer, reference)
        lookup = server.last_lookup()
        self.assertEqual(answer.cache_n, 256, lookup)
        self.assertGreater(lookup["miss_tokens"].get("corrupt", 0), 0, lookup)
        metrics = server.metrics()
        self.assertEqual(metrics.get_one("parkade_stage_limited_total", stage="1"), 1)
        self.assertEqual(metrics.get_one("parkade_stage_limited_total", stage="0"), 0)
        self.assertIn("an extent of stage 1 (RPC1) did not come", server.log())
        self.check_next_requests(server, longer, reference)

    def test_damage_in_the_first_extent_of_a_stage_is_a_miss(self):
        split, longer, reference = self.fill()
        self.damage(self.extents(0)[0])
        server = self.start(model("dense"), *split)
        answer = server.ask(longer, self.ANSWER_TOKENS)
        self.assertEqual(answer.cache_n, 0)
        self.assert_same_answer(answer, reference)
        self.assertEqual(server.metrics().get_one("parkade_stage_limited_total", stage="0"), 1)
        self.check_next_requests(server, longer, reference)

    def test_a_segment_that_is_gone(self):
        split, longer, reference = self.fill()
        paths = sorted({path for path, *_ in self.extents(1)})
        os.unlink(paths[-1])
        server = self.start(model("dense"), *split)
        answer = server.ask(longer, self.ANSWER_TOKENS)
        self.assertLess(answer.cache_n, PROMPT_TOKENS + 63)
        self.assert_same_answer(answer, reference)
        self.check_next_requests(server, longer, reference)

    # ---- a device that goes away ----

    def start_again(self, split, device):
        """llama.cpp ends the process when a device goes; a service manager starts both again."""
        wait_until(lambda: not self.servers[-1].running(), "the server to end with its device")
        device.start()
        return self.start(model("dense"), *split)

    def test_a_device_dies_while_a_park_is_written(self):
        split, longer, reference = self.fill()
        server = self.start(model("dense"), *split)
        answer = server.ask(longer, self.ANSWER_TOKENS)
        self.assert_same_answer(answer, reference)
        # The release has captured; the writer is at work or done. The next batch meets the loss.
        self.devices[1].kill()
        with self.assertRaises((OSError, http.client.HTTPException)):
            server.ask(tokens_of("another chat", 300))
        server = self.start_again(split, self.devices[1])
        again = server.ask(longer, self.ANSWER_TOKENS)
        self.assertGreaterEqual(again.cache_n, PROMPT_TOKENS + 63)
        self.assert_same_answer(again, reference)

    def test_a_device_dies_in_a_decode(self):
        split, longer, reference = self.fill()
        server = self.start(model("dense"), *split)
        connection = server.begin_stream(longer, 4000)
        response = connection.getresponse()
        response.readline()  # the first token is there
        self.devices[0].kill()
        with self.assertRaises((OSError, http.client.HTTPException)):
            while response.readline():
                pass
            raise http.client.IncompleteRead(b"")  # ended without an error: the process is gone
        connection.close()
        server = self.start_again(split, self.devices[0])
        again = server.ask(longer, self.ANSWER_TOKENS)
        self.assertGreaterEqual(again.cache_n, PROMPT_TOKENS + 63)
        self.assert_served(server, "disk", PROMPT_TOKENS + 63)
        self.assert_same_answer(again, reference)


if __name__ == "__main__":
    unittest.main()
