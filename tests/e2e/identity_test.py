"""State is reused only under equal conditions; the first difference is named."""

import os
import shutil
import unittest

from parkade_process import ServerTest, model, tokens_of

PROMPT_TOKENS = 300


class IdentityTest(ServerTest):
    def other_then_first(self, field, other, other_environment=None, first=(),
                         first_environment=None, model_path=model("dense"), other_model=None):
        """Filled under one identity, asked under another, then under the first again."""
        prompt = tokens_of("chat", PROMPT_TOKENS)
        server = self.start(model_path, *first, environment=first_environment)
        answer = server.ask(prompt, 16)
        server.wait_durable(PROMPT_TOKENS)
        server.kill()

        server = self.start(other_model or model_path, *other, environment=other_environment)
        theirs = server.ask(prompt, 16)
        self.assertEqual(theirs.cache_n, 0)
        lookup = server.last_lookup()
        self.assertEqual(lookup["outcome"], "miss")
        self.assertEqual(lookup["miss_tokens"], {"new": 1, "identity": PROMPT_TOKENS - 1})
        self.assertEqual(lookup["identity_field"], field)
        self.assertEqual(lookup["reason"], "identity")
        self.assertIn(f"other {field}", server.log())
        server.wait_parked()
        # Both are kept, side by side.
        self.assertEqual(len(server.conversations()), 2)
        server.kill()
        plain = self.start_plain(other_model or model_path, *other,
                                 environment=other_environment)
        self.assert_same_answer(theirs, plain.ask(prompt, 16))
        plain.kill()

        server = self.start(model_path, *first, environment=first_environment)
        again = server.ask(prompt, 16)
        self.assert_served(server, "disk", PROMPT_TOKENS - 1, PROMPT_TOKENS)
        self.assert_same_answer(again, answer)

    def test_kv_type(self):
        self.other_then_first("kv_type_k", ["-ctk", "q8_0"])

    def test_kv_type_of_values(self):
        self.other_then_first("kv_type_v", ["-ctv", "q8_0"])

    def test_rotation(self):
        """Scenario 21: rows of a quantised cache are rotated or not, and look alike."""
        quantised = ["-ctk", "q8_0", "-ctv", "q8_0"]
        self.other_then_first("kv_rotation", quantised, {"LLAMA_ATTN_ROT_DISABLE": "1"},
                              first=quantised)

    def test_rope_base(self):
        self.other_then_first("rope", ["--rope-freq-base", "20000"])

    def test_rope_scale(self):
        self.other_then_first("rope", ["--rope-scaling", "linear", "--rope-scale", "2"])

    def test_full_window_cache_is_another_window(self):
        prompt = tokens_of("chat", PROMPT_TOKENS)
        server = self.start(model("window"))
        server.ask(prompt, 16)
        server.wait_durable(PROMPT_TOKENS)
        server.kill()
        server = self.start(model("window"), "--swa-full")
        answer = server.ask(prompt, 16)
        lookup = server.last_lookup()
        plain = self.start_plain(model("window"), "--swa-full")
        self.assert_same_answer(answer, plain.ask(prompt, 16))
        # Either it is named as different, or all rows that are needed were there.
        if lookup["reused_tokens"] == 0:
            self.assertEqual(lookup["reason"], "identity")

    def test_other_weights_of_the_same_name(self):
        """Scenario 6: equal shapes, equal name, one tensor differs."""
        mine = os.path.join(self.folder, "a", "model.gguf")
        other = os.path.join(self.folder, "b", "model.gguf")
        for path in (mine, other):
            os.mkdir(os.path.dirname(path))
            shutil.copy(model("dense"), path)
        self.flip(other)
        self.other_then_first("weights", [], model_path=mine, other_model=other)

    def flip(self, path, bits=0x02):
        """Changes one weight, near the end of the file: tensors come last."""
        with open(path, "r+b") as file:
            file.seek(-1001, os.SEEK_END)
            byte = file.read(1)[0]
            file.seek(-1001, os.SEEK_END)
            file.write(bytes([byte ^ bits]))

    def test_weights_overwritten_in_place(self):
        path = os.path.join(self.folder, "model.gguf")
        shutil.copy(model("dense"), path)
        prompt = tokens_of("chat", PROMPT_TOKENS)
        server = self.start(path)
        server.ask(prompt, 16)
        server.wait_durable(PROMPT_TOKENS)
        server.kill()
        self.flip(path)
        server = self.start(path)
        server.ask(prompt, 16)
        self.assertEqual(server.last_lookup()["identity_field"], "weights")

    def test_what_is_not_part_of_it(self):
        """Path, context size, slots, batches and sampling may differ."""
        prompt = tokens_of("chat", PROMPT_TOKENS)
        server = self.start(model("dense"))
        answer = server.ask(prompt, 16)
        server.wait_durable(PROMPT_TOKENS)
        server.kill()
        path = os.path.join(self.folder, "renamed.gguf")
        shutil.copy(model("dense"), path)
        server = self.start(path, "-b", "128", "-ub", "64", "--seed", "7", slots=4,
                            context=20000)
        again = server.ask(prompt, 16)
        self.assert_served(server, "disk", PROMPT_TOKENS - 1, PROMPT_TOKENS)
        self.assert_same_answer(again, answer)


if __name__ == "__main__":
    unittest.main()
