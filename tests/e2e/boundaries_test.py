"""State is kept where clients come back to: an edited message, another one after the same system
prompt, a compacted history."""

import unittest

from parkade_process import ServerTest, model, tokens_of

USER = " you your"  # stands before every message of the user
DELIMITERS = [{"role": "user", "delimiter": USER}]


class BoundariesTest(ServerTest):
    def begin(self, kind):
        self.plain = self.start_plain(model(kind), slots=1)
        self.server = self.start(model(kind), slots=1)
        self.mark = self.plain.tokenize(USER)[1:]
        self.assertGreaterEqual(len(self.mark), 1)

    def message(self, name, count):
        # The mark must not stand anywhere else.
        tokens = [token for token in tokens_of(name, count) if token not in self.mark]
        return self.mark + tokens

    def ask(self, prompt):
        """The answer must be that of a server without a cache that reads all of the prompt."""
        self.plain.json("POST", "/completion", self.plain.body([300], 1))  # leaves no prefix
        reference = self.plain.ask(prompt, 16, message_delimiters=DELIMITERS)
        answer = self.server.ask(prompt, 16, message_delimiters=DELIMITERS)
        self.server.wait_parked()
        self.assertEqual(answer.tokens[:4], reference.tokens[:4])
        return answer

    def edit_the_last_message(self, kind):
        self.begin(kind)
        history = tokens_of("system", 100) + self.message("first", 900) + tokens_of("answer", 700)
        first = history + self.message("question", 300)
        self.assertEqual(self.ask(first).cache_n, 0)
        for edit in range(3):
            edited = history + self.message(f"edit {edit}", 250 + edit)
            answer = self.ask(edited)
            common = len(history) + len(self.mark)
            self.assertLessEqual(answer.cache_n, common)
            # Read again: the message, and nothing of what was before it.
            self.assertGreaterEqual(answer.cache_n, len(history), self.server.last_lookup())

    def test_an_edited_message_recurrent(self):
        self.edit_the_last_message("recurrent")

    def test_an_edited_message_hybrid(self):
        self.edit_the_last_message("hybrid")

    def test_an_edited_message_window(self):
        self.edit_the_last_message("window")

    def test_the_same_system_prompt_recurrent(self):
        """A side request: the system prompt is not read again."""
        self.begin("recurrent")
        system = tokens_of("system", 800)
        self.ask(system + self.message("one", 400))
        answer = self.ask(system + self.message("two", 300))
        self.assertGreaterEqual(answer.cache_n, len(system))
        self.server.kill()
        self.server = self.start(model("recurrent"), slots=1)
        answer = self.ask(system + self.message("three", 200))
        self.assertGreaterEqual(answer.cache_n, len(system))
        self.assert_served(self.server, "disk", len(system))


if __name__ == "__main__":
    unittest.main()
