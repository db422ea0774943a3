"""Boundaries: every way in which a client leaves what it said before finds the deepest kept state,
at most one message below; states are kept once, and in a bounded share of a tier."""

import unittest

from parkade_process import ServerTest, model, tokens_of

# What stands before the messages of each side.
MARKS = {"user": " you your", "assistant": " with this"}
DELIMITERS = [{"role": role, "delimiter": mark} for role, mark in MARKS.items()]
STATEFUL = ("recurrent", "hybrid", "hybrid_window")
ANSWER = 16


class Chat:
    """A conversation as its client holds it: messages, each with its mark."""

    def __init__(self, marks, system):
        self.marks = marks
        self.messages = [("system", system)]

    def copy(self, keep=None):
        chat = Chat(self.marks, [])
        chat.messages = list(self.messages if keep is None else self.messages[:keep])
        return chat

    def say(self, role, tokens):
        self.messages.append((role, tokens))
        return self

    def prompt(self):
        """With the head of the answer that is asked for."""
        return self.tokens() + self.marks["assistant"]

    def tokens(self, count=None):
        found = []
        for role, tokens in self.messages[:count]:
            found += self.marks.get(role, []) + tokens
        return found


class BoundaryTest(ServerTest):
    def begin(self, kind, *arguments):
        self.kind = kind
        self.arguments = arguments
        self.plain = self.start_plain(model(kind), slots=1)
        self.server = self.start(model(kind), *arguments, slots=1)
        self.marks = {role: self.plain.tokenize(mark)[1:] for role, mark in MARKS.items()}

    def restart(self):
        self.server.kill()
        self.server = self.start(model(self.kind), *self.arguments, slots=1)

    def words(self, name, count):
        """Tokens that hold no mark."""
        marks = {token for mark in self.marks.values() for token in mark}
        return [token for token in tokens_of(name, 2 * count) if token not in marks][:count]

    def message(self, chat, name, count):
        return chat.say("user", self.words(name, count))

    def ask(self, prompt, n_predict=ANSWER, **fields):
        """The answer must begin as that of a server without a cache that reads all of it."""
        self.plain.json("POST", "/completion", self.plain.body([300], 1))  # leaves no prefix
        reference = self.plain.ask(prompt, n_predict, **fields)
        # What the slot holds is not what is tested.
        self.server.ask(self.words("something else", 90), 1)
        self.server.wait_parked()
        answer = self.server.ask(prompt, n_predict, **fields)
        lookup = self.server.last_lookup()
        self.server.wait_parked()
        self.assertEqual(answer.tokens[:4], reference.tokens[:4])
        if answer.cache_n:
            self.assertEqual(lookup["boundary"]["position"], answer.cache_n, lookup)
        return answer, lookup

    def turn(self, chat, n_predict=ANSWER):
        """The client's next request; the answer is added as it came. Returns it and its look-up."""
        answer, lookup = self.ask(chat.prompt(), n_predict, message_delimiters=DELIMITERS)
        chat.say("assistant", answer.tokens)
        return answer, lookup

    def all_checkpoints(self):
        """(conversation, position) of every stored state."""
        found = []
        for conversation in self.server.conversations():
            detail = self.server.conversation(conversation["id"])
            found += [(conversation["id"], at) for park in detail["parks"]
                      for at in park["checkpoints"]]
        return found


class ClientsTest(BoundaryTest):
    SYSTEM = 300

    def assert_back_to(self, lookup, position, kind):
        """A position that was kept: exactly, with recurrent state; a window has more of them."""
        if self.kind == "window":
            self.assertGreaterEqual(lookup["reused_tokens"], position, lookup)
        else:
            self.assertEqual(lookup["reused_tokens"], position, lookup)
            self.assertEqual(lookup["boundary"], {"position": position, "kind": kind}, lookup)

    def every_way(self, kind):
        self.begin(kind)
        system = self.words("system", self.SYSTEM)
        chat = Chat(self.marks, system)
        self.message(chat, "first", 400)
        self.assertEqual(self.turn(chat)[0].cache_n, 0)
        for turn in range(3):
            self.message(chat, f"turn {turn}", 150)
            before = len(chat.tokens(-1))
            answer, _ = self.turn(chat)
            # All but the answer's last token, which nobody computed a row of.
            self.assertGreaterEqual(answer.cache_n, before - ANSWER)
        self.other_chat(system)
        self.edit_and_regenerate(chat)
        self.drop_reasoning(chat)
        self.compact(system)
        self.revert(chat)
        self.restart()
        self.other_chat(system, "after the restart")
        self.revert(chat, "after the restart")

    def other_chat(self, system, name="other"):
        """The same system prompt, or a side request."""
        chat = self.message(Chat(self.marks, system), name, 200)
        self.assert_back_to(self.turn(chat)[1], len(system), "system")

    def edit_and_regenerate(self, chat):
        for edit in range(2):
            edited = chat.copy(-2)
            # The end of the answer before is kept, but for its last token, and near enough.
            end = len(edited.tokens()) - 1
            self.message(edited, f"edit {edit}", 140)
            self.assert_back_to(self.turn(edited)[1], end, "turn")
        again = edited.copy(-1)
        _, lookup = self.turn(again)
        head = len(edited.tokens(-1))
        self.assertGreaterEqual(lookup["reused_tokens"], head, lookup)

    def drop_reasoning(self, chat):
        """The client sends the answer back without what was thought before it."""
        thought = self.message(chat.copy(), "a hard question", 120)
        question = len(thought.tokens())
        answer, _ = self.turn(thought, 120)
        thought.messages[-1] = ("assistant", answer.tokens[30:])
        start = len(thought.tokens())
        for now, (position, kind) in {"and now": (question, "turn"),
                                      "or rather": (start, "user")}.items():
            asked = self.message(thought.copy(), now, 100)
            _, lookup = self.turn(asked)
            # At most the head of the answer more.
            self.assertLessEqual(lookup["reused_tokens"], position + len(self.marks["assistant"]))
            self.assertGreaterEqual(lookup["reused_tokens"], position, lookup)
            if self.kind != "window":
                self.assertEqual(lookup["boundary"]["kind"], kind, lookup)

    def compact(self, system):
        chat = self.message(Chat(self.marks, system), "summary of all that", 250)
        self.assert_back_to(self.turn(chat)[1], len(system), "system")

    def revert(self, chat, name="reverted"):
        for keep in (5, 3):  # system, question, answer, question, answer: the next question is new
            earlier = chat.copy(keep)
            end = len(earlier.tokens()) - 1
            self.message(earlier, f"{name} {keep}", 130)
            self.assert_back_to(self.turn(earlier)[1], end, "turn")

    def test_every_way_recurrent(self):
        self.every_way("recurrent")

    def test_every_way_hybrid(self):
        self.every_way("hybrid")

    def test_every_way_hybrid_window(self):
        self.every_way("hybrid_window")

    def test_every_way_window(self):
        self.every_way("window")

    def test_without_the_servers_own_checkpoints(self):
        """The batches are cut for us, not only where llama-server wants a checkpoint."""
        self.begin("recurrent", "--ctx-checkpoints", "0")
        system = self.words("system", self.SYSTEM)
        for name in ("one", "two"):
            chat = self.message(Chat(self.marks, system), name, 200)
            _, lookup = self.turn(chat)
        self.assert_back_to(lookup, len(system), "system")

    def test_a_dense_model_needs_no_boundary(self):
        self.begin("dense")
        text = self.words("text", 900)
        self.ask(text)
        answer, lookup = self.ask(text[:777] + self.words("other", 50))
        self.assertEqual(answer.cache_n, 777)
        self.assertEqual(lookup["boundary"], {"position": 777, "kind": "row"})
        self.assertEqual(self.all_checkpoints(), [])


class BetweenTest(BoundaryTest):
    LONG = 5000

    def long_prompt(self, kind):
        self.begin(kind)
        text = self.words("a long document", self.LONG)
        self.ask(text)
        self.assertEqual(sorted(at for _, at in self.all_checkpoints() if at > 90 + ANSWER),
                         [512, 1024, 2048, 4096, self.LONG - 4, self.LONG,
                          self.LONG + ANSWER - 1])
        self.restart()
        for at in (4500, 3000, 1500, 700):
            answer, lookup = self.ask(text[:at] + self.words(f"leaves at {at}", 40))
            self.assertGreater(2 * answer.cache_n, at)
            self.assertEqual(lookup["boundary"]["kind"], "between", lookup)
        self.assertEqual(answer.cache_n, 512)

    def test_long_prompt_recurrent(self):
        self.long_prompt("recurrent")

    def test_long_prompt_hybrid(self):
        self.long_prompt("hybrid")

    def test_stored_once(self):
        """Whoever reads a prefix again, and whatever was cut away meanwhile."""
        self.begin("recurrent")
        text = self.words("a document", 2500)
        self.ask(text)
        before = sorted(self.all_checkpoints())
        self.assertEqual(len(before), len(set(before)))
        # Read again from the start: the client does not want the cache to answer.
        self.server.ask(text, ANSWER, cache_prompt=False)
        self.ask(text)
        self.server.wait_parked()
        self.assertEqual(sorted(self.all_checkpoints()), before)
        for name in ("left", "right"):
            self.ask(text[:2200] + self.words(name, 60))
        positions = [at for _, at in self.all_checkpoints()]
        for at in (512, 1024, 2048):
            self.assertEqual(positions.count(at), 1)

    def test_a_quarter_of_a_tier(self):
        self.begin("recurrent")
        self.server.kill()
        self.server = self.start(model("recurrent"), slots=1, disk=False, ram_mib=192)
        self.fill_share("ram")
        # The newest one of a conversation is the conversation.
        again = self.server.ask(self.words("chat 0", 1100) + self.words("more", 10), 4)
        self.assertGreaterEqual(again.cache_n, 1100 - 4)

    def test_a_quarter_of_a_small_disk(self):
        self.begin("recurrent")
        self.server.kill()
        flags = ("--conversation-cache-disk-gib", "0.1")
        self.server = self.start(model("recurrent"), *flags, slots=1, ram_mib=0)
        chats = self.fill_share("disk")
        self.assertEqual(self.evicted("disk", "budget"), 0)
        self.server.terminate()
        self.server = self.start(model("recurrent"), *flags, slots=1, ram_mib=0)
        # Every one of them goes on from its newest state, and later ones keep to the share.
        for chat in (chats[0], chats[len(chats) // 2], chats[-1]):
            prompt = self.words(chat, 1100)
            answer, _ = self.ask(prompt + self.words("more", 100))
            self.assertGreaterEqual(answer.cache_n, 1100 - 4)
        self.assert_share("disk")

    def fill_share(self, tier):
        """Chats until checkpoints are superseded, and a few more; returns their names."""
        chats = []
        more = 6
        while more > 0:
            self.assertLess(len(chats), 200)
            chats.append(f"chat {len(chats)}")
            self.server.ask(self.words(chats[-1], 1100), 4)
            self.server.wait_parked()
            more -= 1 if self.evicted(tier, "superseded") > 0 else 0
        others, share = self.assert_share(tier)
        self.assertGreater(others, share / 2)
        return chats

    def assert_share(self, tier):
        """All states but the newest of each conversation: at most a quarter of the tier."""
        share = self.server.tiers()[tier]["budget_bytes"] / 4
        others = 0
        for conversation in self.server.conversations():
            detail = self.server.conversation(conversation["id"])
            sizes = {at: park["bytes"] for park in detail["parks"] for at in park["checkpoints"]}
            self.assertEqual(detail["checkpoints"], sorted(sizes))
            self.assertEqual(detail["checkpoint_bytes"], sum(sizes.values()))
            others += sum(sizes.values()) - sizes[max(sizes)]
        self.assertLessEqual(others, share)
        return others, share

    def evicted(self, tier, reason):
        return self.server.metrics().get_one("parkade_evictions_total", tier=tier, reason=reason)


class WindowRowsTest(BoundaryTest):
    def test_at_most_once_a_token(self):
        self.begin("window")
        chat = Chat(self.marks, self.words("system", 300))
        for turn in range(12):
            self.message(chat, f"turn {turn}", 90 + 11 * turn)
            if turn % 3 == 1:
                self.turn(chat.copy())  # asked twice
            if turn % 3 == 2:
                edited = chat.copy(-1)
                self.message(edited, f"edit {turn}", 80)
                self.turn(edited)
            self.turn(chat)
        rows = tokens = 0
        for conversation in self.server.conversations():
            detail = self.server.conversation(conversation["id"])
            listed = sum(end - begin for park in detail["parks"]
                         for begin, end in park["window_rows"])
            self.assertEqual(detail["window_rows"], listed)
            self.assertEqual(detail["window_bytes"] > 0, listed > 0)
            self.assertEqual(detail["checkpoint_bytes"], 0)
            rows += listed
            tokens += sum(park["tokens"][1] - park["tokens"][0] for park in detail["parks"])
        self.assertGreater(rows, 0)
        self.assertLessEqual(rows, tokens)


if __name__ == "__main__":
    unittest.main()
