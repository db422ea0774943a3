"""LoRA adapters by request, their scales, and control vectors: never shared (scenario 7)."""

import unittest

from parkade_process import ServerTest, model, tokens_of

DENSE = model("dense")
PROMPT_TOKENS = 300
ANSWER_TOKENS = 32


def adapters(one, other):
    return [{"id": 0, "scale": one}, {"id": 1, "scale": other}]


class AdaptersTest(ServerTest):
    LORA = ("--lora", f"{model('dense_lora_a')},{model('dense_lora_b')}")
    SETS = {"a": adapters(1.0, 0.0), "b": adapters(0.0, 1.0), "a weaker": adapters(0.5, 0.0),
            "both": adapters(1.0, 1.0), "none": adapters(0.0, 0.0)}

    def test_scenario_07(self):
        """Adapter A, adapter B, another scale, both, the model itself: each finds its own."""
        prompt = tokens_of("chat", PROMPT_TOKENS)
        server = self.start(DENSE, *self.LORA, slots=1)
        answers = {}
        for name, lora in self.SETS.items():
            answers[name] = server.ask(prompt, ANSWER_TOKENS, lora=lora)
            self.assertEqual(answers[name].cache_n, 0, name)
            if len(answers) > 1:
                lookup = server.last_lookup()
                self.assertEqual((lookup["reason"], lookup["identity_field"]),
                                 ("identity", "adapters"), name)
            server.wait_parked()
        self.assertEqual(len({answer.text for answer in answers.values()}), len(self.SETS))
        held = PROMPT_TOKENS + ANSWER_TOKENS - 1
        for tier in ("ram", "disk"):
            for name, lora in self.SETS.items():
                longer = prompt + answers[name].tokens + tokens_of("turn", 20)
                server.ask(longer, 4, lora=lora)
                lookup = server.last_lookup()
                self.assertGreaterEqual(lookup["reused_tokens"], held, name)
                if name != "none" or tier == "disk":  # the slot holds the last one's
                    self.assert_served(server, tier, held, len(longer))
            server.wait_parked()
            server.kill()
            server = self.start(DENSE, *self.LORA, slots=1)
        plain = self.start_plain(DENSE, *self.LORA, slots=1)
        for name, lora in self.SETS.items():
            self.assert_same_answer(answers[name], plain.ask(prompt, ANSWER_TOKENS, lora=lora))
            longer = prompt + answers[name].tokens + tokens_of("turn", 20)
            again = server.ask(longer, ANSWER_TOKENS, lora=lora)
            self.assertGreaterEqual(again.cache_n, held)
            self.assert_same_answer(again, plain.ask(longer, ANSWER_TOKENS, lora=lora))

    def test_switched_by_post(self):
        """POST /lora-adapters changes what requests without adapters of their own are given."""
        prompt = tokens_of("chat", PROMPT_TOKENS)
        plain = self.start_plain(DENSE, *self.LORA, "--lora-init-without-apply", slots=1)
        server = self.start(DENSE, *self.LORA, "--lora-init-without-apply", slots=1)
        answers = []
        for lora in (self.SETS["none"], self.SETS["a"], self.SETS["b"]):
            server.json("POST", "/lora-adapters", lora)
            answers.append(server.ask(prompt, ANSWER_TOKENS))
            # The slot still holds the former adapters' rows.
            self.assertEqual(answers[-1].cache_n, 0)
            self.assert_same_answer(answers[-1], plain.ask(prompt, ANSWER_TOKENS, lora=lora))
            server.wait_parked()
        # Also where the slot alone could be asked.
        server.json("POST", "/lora-adapters", self.SETS["a"])
        again = server.ask(prompt, ANSWER_TOKENS)
        self.assert_served(server, "ram", PROMPT_TOKENS - 1, PROMPT_TOKENS)
        self.assert_same_answer(again, answers[1])
        server.wait_parked()
        server.kill()
        server = self.start(DENSE, *self.LORA, "--lora-init-without-apply", slots=1)
        for lora, answer in ((self.SETS["b"], answers[2]), (self.SETS["none"], answers[0])):
            server.json("POST", "/lora-adapters", lora)
            again = server.ask(prompt, ANSWER_TOKENS)
            self.assert_served(server, "disk", PROMPT_TOKENS - 1, PROMPT_TOKENS)
            self.assert_same_answer(again, answer)

    def test_control_vectors(self):
        """Another vector, another strength, other layers: each is an identity of its own."""
        one, other = model("dense_vector_a"), model("dense_vector_b")
        sets = [[], ["--control-vector", one], ["--control-vector", other],
                ["--control-vector-scaled", f"{one}:0.5"],
                ["--control-vector", one, "--control-vector-layer-range", "2", "3"]]
        prompt = tokens_of("chat", PROMPT_TOKENS)
        answers = []
        for flags in sets:
            server = self.start(DENSE, *flags)
            answer = server.ask(prompt, ANSWER_TOKENS)
            self.assertEqual(answer.cache_n, 0)
            if answers:
                lookup = server.last_lookup()
                self.assertEqual((lookup["reason"], lookup["identity_field"]),
                                 ("identity", "control_vectors"))
            answers.append(answer)
            server.wait_durable(PROMPT_TOKENS)
            server.wait_parked()
            server.kill()
        self.assertEqual(len({answer.text for answer in answers}), len(sets))
        for flags, answer in zip(sets, answers):
            server = self.start(DENSE, *flags)
            again = server.ask(prompt, ANSWER_TOKENS)
            self.assert_served(server, "disk", PROMPT_TOKENS - 1, PROMPT_TOKENS)
            self.assert_same_answer(again, answer)
            server.kill()
            plain = self.start_plain(DENSE, *flags)
            self.assert_same_answer(answer, plain.ask(prompt, ANSWER_TOKENS))
            plain.kill()


if __name__ == "__main__":
    unittest.main()
