"""Conversations that begin alike: the common part is stored once, and both go on."""

import unittest

from parkade_process import ServerTest, model, tokens_of, wait_until

ROW_BYTES = 2048  # of one token in the dense model's memory
COMMON_TOKENS = 1000
ANSWER_TOKENS = 64


class ForkTest(ServerTest):
    def two_branches(self, server):
        common = tokens_of("system prompt", COMMON_TOKENS)
        branches = [common + tokens_of("first client", 150), common + tokens_of("second", 90)]
        return branches, [server.ask(branch, ANSWER_TOKENS) for branch in branches]

    def next_turn(self, branch, answer, name):
        return branch + answer.tokens + tokens_of(name, 30)

    def reference(self, arguments=()):
        """Both branches, two turns each, every one in a slot of its own."""
        plain = self.start_plain(model("dense"), *arguments)
        branches, answers = self.two_branches(plain)
        turns = [self.next_turn(b, a, "turn") for b, a in zip(branches, answers)]
        return answers, [plain.ask(turn, id_slot=i) for i, turn in enumerate(turns)]

    def parked(self, server, count):
        def found():
            conversations = server.conversations()
            return len(conversations) == count and conversations
        server.wait_parked()
        return wait_until(found, f"{count} conversations")

    def test_common_part_is_stored_once(self):
        firsts, seconds = self.reference()
        server = self.start(model("dense"))
        branches, answers = self.two_branches(server)
        for answer, reference in zip(answers, firsts):
            self.assert_same_answer(answer, reference)
        self.assertEqual(answers[1].cache_n, COMMON_TOKENS)

        root, fork = sorted(self.parked(server, 2), key=lambda c: c["forked_from"] is not None)
        self.assertEqual(fork["forked_from"], root["id"])
        self.assertIsNone(root["forked_from"])
        self.assertEqual(root["tokens"], len(branches[0]) + ANSWER_TOKENS - 1)
        self.assertEqual(fork["tokens"], len(branches[1]) + ANSWER_TOKENS - 1)
        self.assertEqual(root["bytes"], ROW_BYTES * root["tokens"])
        self.assertEqual(fork["bytes"], ROW_BYTES * (fork["tokens"] - COMMON_TOKENS))
        self.assertEqual(server.conversation(fork["id"])["forked_at"], COMMON_TOKENS)
        for conversation in (root, fork):
            server.wait_durable(conversation["tokens"])

        server.kill()
        server = self.start(model("dense"))
        for i, reference in enumerate(seconds):
            turn = self.next_turn(branches[i], answers[i], "turn")
            again = server.ask(turn)
            held = len(branches[i]) + ANSWER_TOKENS - 1
            lookup = server.last_lookup()
            self.assertEqual(lookup["reused_tokens"], held)
            self.assertEqual(lookup["stage_tiers"], ["disk"])
            # The first one's restore has brought the common part into RAM.
            self.assertEqual(lookup["hit_tokens"], {"disk": held} if i == 0 else
                             {"ram": COMMON_TOKENS, "disk": held - COMMON_TOKENS})
            self.assertEqual(lookup["conversation"], (root, fork)[i]["id"])
            self.assert_same_answer(again, reference)
        # Both appended to what was theirs.
        after = {c["id"]: c for c in self.parked(server, 2)}
        for conversation, turn in zip((root, fork), (30, 30)):
            grown = after[conversation["id"]]
            tokens = conversation["tokens"] + 1 + turn + ANSWER_TOKENS - 1
            self.assertEqual(grown["tokens"], tokens)
            self.assertEqual(grown["bytes"] - conversation["bytes"],
                             ROW_BYTES * (tokens - conversation["tokens"]))

    def test_recurrent_resumes_at_a_checkpoint(self):
        """A state can't be cut: a branch goes on from the last one stored below it."""
        server = self.start(model("recurrent"))
        common = tokens_of("system prompt", COMMON_TOKENS)
        first = server.ask(common, ANSWER_TOKENS)
        long_chat = common + first.tokens + tokens_of("turn", 300)
        server.ask(long_chat, ANSWER_TOKENS)
        server.wait_parked()
        server.kill()
        server = self.start(model("recurrent"))
        # Leaves the chat at the end of its first prompt.
        branch = common + tokens_of("another question", 40)
        answer = server.ask(branch)
        lookup = self.assert_served(server, "disk", COMMON_TOKENS - 4, len(branch))
        checkpoints = server.conversation(lookup["conversation"])["checkpoints"]
        self.assertIn(lookup["reused_tokens"], checkpoints)
        # Between two checkpoints: what lies above the lower one is read again, and said so.
        server.kill()
        server = self.start(model("recurrent"))
        cut = COMMON_TOKENS + 200
        other = long_chat[:cut] + tokens_of("one more", 40)
        answer2 = server.ask(other)
        lookup = server.last_lookup()
        self.assertEqual(lookup["matched_tokens"], cut)
        self.assertIn(lookup["reused_tokens"], checkpoints)
        self.assertGreaterEqual(lookup["reused_tokens"], COMMON_TOKENS)
        self.assertEqual(lookup["miss_tokens"].get("checkpoint"), cut - lookup["reused_tokens"],
                         lookup)
        plain = self.start_plain(model("recurrent"))
        self.assert_same_answer(answer, plain.ask(branch))
        self.assert_same_answer(answer2, plain.ask(other))

    def test_forget_one_of_two(self):
        """The common part stays for the fork, and what is forgotten is matched no more."""
        server = self.start(model("dense"))
        branches, answers = self.two_branches(server)
        root, fork = sorted(self.parked(server, 2), key=lambda c: c["forked_from"] is not None)
        self.assertEqual(server.json("DELETE", f"/conversations/{root['id']}"),
                         {"id": root["id"], "deleted": True, "fork_tokens": COMMON_TOKENS})
        server.json("DELETE", f"/conversations/{root['id']}", status=404)
        self.assertEqual([c["id"] for c in server.conversations()], [fork["id"]])
        server.kill()
        server = self.start(model("dense"))
        self.assertEqual([c["id"] for c in server.conversations()], [fork["id"]])
        server.ask(self.next_turn(branches[0], answers[0], "turn"), 8)
        lookup = server.last_lookup()
        self.assertEqual(lookup["reused_tokens"], COMMON_TOKENS)
        held = len(branches[1]) + ANSWER_TOKENS - 1
        server.ask(self.next_turn(branches[1], answers[1], "turn"), 8)
        self.assert_served(server, "disk", held)


if __name__ == "__main__":
    unittest.main()
