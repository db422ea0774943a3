"""Scenarios 6 and 21: other weights, other types, other rotation or RoPE base."""

import os
import shutil
import unittest

from chat_client import KINDS, LOGPROBS
from identity_test import PROMPT_TOKENS, OtherIdentityTest
from parkade_process import model, tokens_of

QUANTISED = ["-ctk", "q8_0", "-ctv", "q8_0"]


class IdentityScenarios(OtherIdentityTest):
    # ---- 6: two weight files of equal shape and name, which differ in one tensor

    def flip(self, path, bits=0x02):
        """Changes one weight, near the end of the file: tensors come last."""
        with open(path, "r+b") as file:
            file.seek(-1001, os.SEEK_END)
            byte = file.read(1)[0]
            file.seek(-1001, os.SEEK_END)
            file.write(bytes([byte ^ bits]))

    def scenario_06(self, kind):
        kind = KINDS[kind]
        mine = os.path.join(self.folder, "a", "model.gguf")
        other = os.path.join(self.folder, "b", "model.gguf")
        for path in (mine, other):
            os.mkdir(os.path.dirname(path))
            shutil.copy(model(kind.model), path)
        self.flip(other)
        self.other_then_first("weights", kind.arguments, first=kind.arguments, model_path=mine,
                              other_model=other, again=kind.again)

    # ---- 21: quantised rows that are rotated or not, other types, another RoPE base

    def scenario_21(self, kind, field, other, environment=None, first=()):
        kind = KINDS[kind]
        self.other_then_first(field, [*kind.arguments, *other], environment,
                              first=[*kind.arguments, *first], model_path=model(kind.model),
                              again=kind.again)

    def rotation(self, kind):
        """Rows of a quantised cache are rotated or not, and look alike."""
        self.scenario_21(kind, "kv_rotation", QUANTISED, {"LLAMA_ATTN_ROT_DISABLE": "1"},
                         first=QUANTISED)


class IdentityScenariosTest(IdentityScenarios):
    def test_scenario_06_dense(self):
        self.scenario_06("dense")

    def test_scenario_06_full_window(self):
        self.scenario_06("full_window")

    def test_scenario_06_recurrent(self):
        self.scenario_06("recurrent")

    def test_scenario_06_hybrid(self):
        self.scenario_06("hybrid")

    def test_scenario_06_overwritten_in_place(self):
        path = os.path.join(self.folder, "model.gguf")
        shutil.copy(model("dense"), path)
        prompt = tokens_of("chat", PROMPT_TOKENS)
        server = self.start(path)
        first = server.ask(prompt, 16)
        server.wait_durable(PROMPT_TOKENS)
        server.kill()
        self.flip(path)
        server = self.start(path)
        server.ask(prompt, 16)
        lookup = server.last_lookup()
        self.assertEqual((lookup["reused_tokens"], lookup["reason"], lookup["identity_field"]),
                         (0, "identity", "weights"))
        server.wait_parked()
        server.kill()
        # And back: what was kept first is hit.
        self.flip(path)
        server = self.start(path)
        self.assert_same_answer(server.ask(prompt, 16), first)
        self.assert_served(server, "disk", PROMPT_TOKENS - 1, PROMPT_TOKENS)

    def test_scenario_21_rotation_dense(self):
        self.rotation("dense")

    def test_scenario_21_rotation_full_window(self):
        self.rotation("full_window")

    def test_scenario_21_rotation_hybrid(self):
        self.rotation("hybrid")

    def test_scenario_21_type_dense(self):
        self.scenario_21("dense", "kv_type_k", QUANTISED)

    def test_scenario_21_type_full_window(self):
        self.scenario_21("full_window", "kv_type_k", QUANTISED)

    def test_scenario_21_type_hybrid(self):
        self.scenario_21("hybrid", "kv_type_k", QUANTISED)

    def test_scenario_21_rope_base_dense(self):
        self.scenario_21("dense", "rope", ["--rope-freq-base", "20000"])

    def test_scenario_21_rope_base_full_window(self):
        self.scenario_21("full_window", "rope", ["--rope-freq-base", "20000"])

    def test_scenario_21_rope_base_hybrid(self):
        self.scenario_21("hybrid", "rope", ["--rope-freq-base", "20000"])


class SmallWindowScenariosTest(IdentityScenarios):
    """The same with a small window's cache, of which a restore fills other cells than the prompt
    did: sums round differently, as they do when the prompt is read in two requests."""

    PROMPT_TOKENS = 1400  # the cache's cells were used more than once
    FIELDS = {"n_probs": LOGPROBS}
    CUTS = (300, 650, 900, 1150, 1330, 1399)
    LEAST = 1e-3  # of a logprob: where none of the cuts makes a difference

    def furthest(self, answer, reference):
        """The largest difference of a token's logprob, as far as both read the same."""
        furthest = 0.0
        for i, (mine, theirs) in enumerate(zip(answer.logprobs, reference.logprobs)):
            for token in mine.keys() & theirs.keys():
                furthest = max(furthest, abs(mine[token] - theirs[token]))
            if answer.tokens[i] != reference.tokens[i]:
                break
        return furthest

    def compare(self, answer, reference, model_path, flags, environment):
        plain = self.start_plain(model_path, *flags, environment=environment, slots=1)
        prompt = tokens_of("chat", self.PROMPT_TOKENS)
        cold = plain.ask(prompt, 16, **self.FIELDS)
        self.assertEqual(self.furthest(reference, cold), 0)
        tolerance = self.LEAST
        for cut in self.CUTS:
            plain.json("POST", "/completion", plain.body([300], 1))  # leaves no prefix
            plain.ask(prompt[:cut], 1)
            uninterrupted = plain.ask(prompt, 16, **self.FIELDS)
            self.assertGreaterEqual(uninterrupted.cache_n, cut - 1)
            tolerance = max(tolerance, self.furthest(uninterrupted, cold))
        self.assertLessEqual(self.furthest(answer, reference), tolerance)

    def test_scenario_06(self):
        self.scenario_06("window")

    def test_scenario_21_rotation(self):
        self.rotation("window")

    def test_scenario_21_type(self):
        self.scenario_21("window", "kv_type_k", QUANTISED)

    def test_scenario_21_rope_base(self):
        self.scenario_21("window", "rope", ["--rope-freq-base", "20000"])


if __name__ == "__main__":
    unittest.main()
