"""Every kind of model and memory: killed in the middle of a chat, it goes on as if nothing was."""

import unittest

from parkade_process import ServerTest, model, tokens_of

CHAT_TOKENS = 700
ANSWER_TOKENS = 32


class KindsTest(ServerTest):
    def goes_on(self, kind, *flags, environment=None, at_least=None):
        """Two turns with a crash between them; reused to the last token that memory held."""
        chat = tokens_of("chat", CHAT_TOKENS)
        server = self.start(model(kind), *flags, environment=environment)
        first = server.ask(chat, ANSWER_TOKENS)
        held = CHAT_TOKENS + ANSWER_TOKENS - 1
        server.wait_durable(held)
        server.kill()
        longer = chat + first.tokens + tokens_of("turn", 40)
        server = self.start(model(kind), *flags, environment=environment)
        second = server.ask(longer, ANSWER_TOKENS)
        lookup = self.assert_served(server, "disk", at_least or held, len(longer))
        self.assertEqual(lookup["reused_tokens"], held)
        # Another chat, and back to the first one's beginning.
        other = server.ask(chat[:400] + tokens_of("branch", 60), ANSWER_TOKENS)

        plain = self.start_plain(model(kind), *flags, environment=environment)
        self.assert_same_answer(first, plain.ask(chat, ANSWER_TOKENS))
        self.assert_same_answer(second, plain.ask(longer, ANSWER_TOKENS))
        self.assert_same_answer(other, plain.ask(chat[:400] + tokens_of("branch", 60),
                                                 ANSWER_TOKENS))
        return server

    def test_quantised_rows(self):
        self.goes_on("dense", "-ctk", "q8_0", "-ctv", "q8_0")

    def test_quantised_rows_of_four_bits(self):
        self.goes_on("dense", "-ctk", "q4_0", "-ctv", "q4_0")

    def test_quantised_rows_unlike_for_keys_and_values(self):
        self.goes_on("dense", "-ctk", "q8_0", "-ctv", "q4_0")

    def test_quantised_rows_not_rotated(self):
        for kind in ("q8_0", "q4_0"):
            self.goes_on("dense", "-ctk", kind, "-ctv", kind,
                         environment={"LLAMA_ATTN_ROT_DISABLE": "1"})
            self.disk += "-next"

    def test_quantised_window(self):
        self.goes_on("window", "--swa-full", "-ctk", "q8_0", "-ctv", "q8_0")

    def test_full_window(self):
        self.goes_on("window", "--swa-full")

    def test_quantised_hybrid(self):
        self.goes_on("hybrid", "-ctk", "q8_0", "-ctv", "q8_0")

    def test_quantised_hybrid_of_four_bits(self):
        self.goes_on("hybrid", "-ctk", "q4_0", "-ctv", "q4_0")

    def test_quantised_hybrid_with_window(self):
        self.goes_on("hybrid_window", "--swa-full", "-ctk", "q8_0", "-ctv", "q8_0")

    def test_wide_positions(self):
        """A vision model's text: positions of several numbers (M-RoPE)."""
        server = self.goes_on("mrope")
        self.assertIn("conversations are kept: llama_kv_cache", server.log())

    def test_wide_positions_quantised(self):
        self.goes_on("mrope", "-ctk", "q8_0", "-ctv", "q8_0")


class EmbeddingsTest(ServerTest):
    """Nothing is continued there: served as ever, or refused when the cache was asked for."""

    def start_bare(self, *flags):
        server = self.launch(model("dense"), "-c", "2048", "-t", "1", *flags)
        server.wait_healthy(False)
        return server

    def test_embeddings(self):
        values = []
        for flags in ([], ["--conversation-cache-mib", "0"]):
            server = self.start_bare("--embedding", "--pooling", "mean", *flags)
            answer = server.json("POST", "/v1/embeddings", {"input": ["the people", "water"]})
            values.append([item["embedding"] for item in answer["data"]])
            server.port = None  # nothing of the cache can be checked
        self.assertEqual(values[0], values[1])
        self.assertNotEqual(values[0][0], values[0][1])
        log = self.servers[0].log()
        self.assertEqual(log.count("the conversation cache is off: it is started for embeddings"),
                         1, log)

    def test_rerank(self):
        scores = []
        for flags in ([], ["--conversation-cache-mib", "0"]):
            server = self.start_bare("--rerank", *flags)
            answer = server.json("POST", "/v1/rerank", {
                "query": "the people", "documents": ["water", "the oil"]})
            scores.append(sorted((item["index"], item["relevance_score"])
                                 for item in answer["results"]))
            server.port = None
        self.assertEqual(scores[0], scores[1])
        self.assertNotEqual(scores[0][0][1], scores[0][1][1])
        self.assertIn("the conversation cache is off: ", self.servers[0].log())

    def test_refused_when_asked_for(self):
        for flags in (["--embedding"], ["--embedding", "--pooling", "mean"], ["--rerank"]):
            server = self.launch(model("dense"), "-c", "2048", "-t", "1", *flags,
                                 "--conversation-cache-mib", "64")
            server.process.wait(60)
            self.assertEqual(server.process.returncode, 2)
            lines = [line for line in server.log().splitlines() if line.startswith("error: ")]
            self.assertEqual(len(lines), 1, lines)
            self.assertIn("can't serve this model or mode", lines[0])


if __name__ == "__main__":
    unittest.main()
