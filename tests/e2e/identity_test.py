"""State is reused only under equal conditions; the first difference is named."""

import os
import shutil
import unittest

from parkade_process import ServerTest, model, tokens_of

PROMPT_TOKENS = 300


class OtherIdentityTest(ServerTest):
    PROMPT_TOKENS = PROMPT_TOKENS
    FIELDS = {}  # of every request

    def compare(self, answer, reference, _model_path, _flags, _environment):
        self.assert_same_answer(answer, reference)

    def other_then_first(self, field, other, other_environment=None, first=(),
                         first_environment=None, model_path=model("dense"), other_model=None,
                         again=1):
        """Filled under one identity, asked under another, then under the first again."""
        prompt = tokens_of("chat", self.PROMPT_TOKENS)
        server = self.start(model_path, *first, environment=first_environment)
        answer = server.ask(prompt, 16, **self.FIELDS)
        server.wait_durable(self.PROMPT_TOKENS)
        server.kill()

        server = self.start(other_model or model_path, *other, environment=other_environment)
        theirs = server.ask(prompt, 16, **self.FIELDS)
        self.assertEqual(theirs.cache_n, 0)
        lookup = server.last_lookup()
        self.assertEqual(lookup["outcome"], "miss")
        self.assertEqual(lookup["miss_tokens"], {"new": 1, "identity": self.PROMPT_TOKENS - 1})
        self.assertEqual(lookup["identity_field"], field)
        self.assertEqual(lookup["reason"], "identity")
        self.assertIn(f"other {field}", server.log())
        server.wait_parked()
        # Both are kept, side by side.
        self.assertEqual(len(server.conversations()), 2)
        server.kill()
        plain = self.start_plain(other_model or model_path, *other,
                                 environment=other_environment)
        self.assert_same_answer(theirs, plain.ask(prompt, 16, **self.FIELDS))
        plain.kill()

        server = self.start(model_path, *first, environment=first_environment)
        back = server.ask(prompt, 16, **self.FIELDS)
        self.assert_served(server, "disk", self.PROMPT_TOKENS - again, self.PROMPT_TOKENS)
        self.compare(back, answer, model_path, first, first_environment)


class IdentityTest(OtherIdentityTest):
    def test_kv_type(self):
        self.other_then_first("kv_type_k", ["-ctk", "q8_0"])

    def test_kv_type_of_values(self):
        self.other_then_first("kv_type_v", ["-ctv", "q8_0"])

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
