"""Why a prompt was read again: one line and a record that names the cause (issue 5, point 6)."""

import re
import unittest

from parkade_process import ServerTest, model, tokens_of

DENSE = model("dense")
LONG_TOKENS = 1500


class WhyTest(ServerTest):
    def text(self, stamp):
        """A prompt whose system part carries a stamp, and a good deal of text after it."""
        body = " ".join("the people made water and the oil" for _ in range(300))
        return f"You are of use. {stamp} Be brief.\n{body}"

    def misses(self, server):
        return re.findall(r"parkade: (miss: .*)", server.log())

    def assert_named(self, stamp, now, name, words):
        server = self.start(DENSE, context=16384)
        head = "the way he said it " * 20
        server.ask(head + self.text(stamp), 1)
        server.wait_parked()
        self.assertEqual(self.misses(server), [])
        answer = server.ask(head + self.text(now), 1)
        lookup = server.last_lookup()
        self.assertEqual((lookup["reason"], lookup["changed"]), ("diverged", name), lookup)
        at = lookup["first_difference"]
        self.assertEqual(at, lookup["reused_tokens"])
        total = answer.raw["tokens_evaluated"]
        again = lookup["miss_tokens"]["diverged"]
        self.assertEqual(again, total - at - 1)
        self.assertEqual(self.misses(server), [
            f"miss: the prompt differs at token {at:,} of {total:,} ({words}); {again:,} tokens "
            "read again"])
        self.assertNotIn("Be brief", server.log())
        # And once more, from the tiers of a new process.
        server.wait_parked()
        server.kill()
        server = self.start(DENSE, context=16384)
        server.ask(head + self.text(now.replace("7", "8")), 1)
        self.assertEqual(server.last_lookup()["changed"], name)
        server.kill()

    def test_clock_time(self):
        self.assert_named("It is 12:34:51 now.", "It is 12:34:57 now.", "time",
                          "a clock time that changes in every request")

    def test_date(self):
        self.assert_named("Current date: 2026-11-26.", "Current date: 2026-11-27.", "date",
                          "a date, which changes every day")

    def test_uuid(self):
        self.assert_named("Session 123e4567-e89b-12d3-a456-426614174000.",
                          "Session 7b2f0c1d-77aa-4d3c-8a56-0123456789ab.", "uuid",
                          "an id that changes in every request")

    def test_billing_header(self):
        self.assert_named("x-anthropic-billing-header: cc_version=2.1; cch=a1b2c;",
                          "x-anthropic-billing-header: cc_version=2.1; cch=07e91;", "random",
                          "a random value that changes in every request")

    def test_tokens_left(self):
        self.assert_named("You have 193412 tokens left.", "You have 187007 tokens left.", "counter",
                          "a counter that changes in every request")

    def test_what_a_person_changes_has_no_name(self):
        server = self.start(DENSE, context=16384)
        server.ask(self.text("Tell of the people."), 1)
        server.ask(self.text("Tell of the water."), 1)
        lookup = server.last_lookup()
        # Fewer tokens than a page before it: nothing that could be told from another chat.
        server.ask("the way he said it " * 20 + self.text("Tell of the people."), 1)
        server.ask("the way he said it " * 20 + self.text("Tell of the water."), 1)
        lookup = server.last_lookup()
        self.assertEqual((lookup["reason"], lookup["changed"]), ("diverged", None))
        self.assertRegex(self.misses(server)[-1],
                         r"^miss: the prompt differs at token \d+ of 2,\d+; [12],\d+ tokens "
                         "computed$")

    def test_texts_only_when_verbose(self):
        head = "the way he said it " * 20
        server = self.start(DENSE, "-lv", "5", context=16384)
        server.ask(head + self.text("It is 12:34:51 now."), 1)
        server.ask(head + self.text("It is 12:34:57 now."), 1)
        self.assertRegex(server.log(), r"the prompt differs: '\.\.\..*It is 12:34:5' went on '1 now"
                         r".*\.\.\.', now '7 now")

    def test_slot_that_is_not_parked(self):
        """The slot's own tokens explain it where no tier has them."""
        head = "the way he said it " * 20
        server = self.start(DENSE, "--conversation-cache-min-tokens", "100000", slots=1,
                            context=16384)
        server.ask(head + self.text("It is 12:34:51 now."), 1)
        server.ask(head + self.text("It is 12:34:57 now."), 1)
        self.assertEqual(server.last_lookup()["changed"], "time")
        self.assertEqual(len(self.misses(server)), 1)

    def test_identity(self):
        chat = tokens_of("chat", LONG_TOKENS)
        server = self.start(DENSE)
        server.ask(chat, 1)
        server.wait_durable(LONG_TOKENS)
        server.kill()
        server = self.start(DENSE, "-ctk", "q8_0")
        server.ask(chat, 1)
        self.assertEqual(self.misses(server), [
            "miss: the same text is kept under another identity: 'kv_type_k' differs; "
            f"{LONG_TOKENS - 1:,} tokens read again"])

    def test_checkpoint(self):
        """A recurrent model's state is kept at some positions only: the nearest one is named."""
        chat = tokens_of("chat", 4050)
        server = self.start(model("recurrent"), context=32768)
        server.ask(chat, 1)
        server.wait_durable(4050)
        server.kill()
        server = self.start(model("recurrent"), context=32768)
        server.ask(chat[:3900] + tokens_of("branch", 20), 1)
        lookup = server.last_lookup()
        again = lookup["miss_tokens"]["checkpoint"]
        self.assertEqual(lookup["matched_tokens"], 3900)
        self.assertEqual(lookup["usable_tokens"], lookup["reused_tokens"])
        self.assertEqual(lookup["reused_tokens"] + again, 3900)
        self.assertRegex(self.misses(server)[0],
                         r"^miss: the match ends at token 3,900 of 3,920, and the nearest state "
                         rf"kept below it is that of token {lookup['usable_tokens']:,}; ")

    def test_damaged_tier(self):
        chat = tokens_of("chat", LONG_TOKENS)
        server = self.start(DENSE)
        server.ask(chat, 1)
        server.wait_durable(LONG_TOKENS)
        server.kill()
        self.damage(self.extents(0)[0])
        server = self.start(DENSE)
        server.ask(chat, 1)
        lookup = server.last_lookup()
        self.assertEqual((lookup["reason"], lookup["failed_tier"]), ("corrupt", "disk"))
        self.assertRegex(self.misses(server)[0],
                         r"^miss: what the disk tier holds can't be used \(.*\), token 1,500 of "
                         r"1,500; 1,\d+ tokens read again$")

    def test_no_line_where_nothing_was_expected(self):
        server = self.start(DENSE, context=16384)
        server.ask(tokens_of("one", LONG_TOKENS), 1)
        server.ask(tokens_of("other", LONG_TOKENS), 1)
        server.ask(tokens_of("one", LONG_TOKENS) + tokens_of("new", LONG_TOKENS), 1)
        server.ask(tokens_of("one", LONG_TOKENS), 1, cache_prompt=False)
        self.assertEqual(self.misses(server), [])


if __name__ == "__main__":
    unittest.main()
