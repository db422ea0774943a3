"""Scenario 2: chats with tool calls go on after SIGTERM."""

import unittest

from chat_client import KINDS
from clients_test import TEMPLATE, CurlTalk, WordsTest


class ToolsScenariosTest(WordsTest):
    def start_words(self, kind, start, **options):
        kind = KINDS[kind]
        return start(self.word_model(kind.model), *kind.arguments, "--jinja",
                     "--chat-template-file", TEMPLATE, slots=2, context=16384, **options)

    def scenario_02(self, kind):
        """A has 4 turns, B has 8 with calls; both go on from disk, B first."""
        self.plain = self.start_words(kind, self.start_plain)
        self.server = self.start_words(kind, self.start)
        self.same_text = KINDS[kind].same_text
        # llama-server itself has kept a state this much before the prompt's end in the slot.
        self.below = KINDS[kind].again if KINDS[kind].state_bytes else 0
        # On the uninterrupted server each chat has a slot to itself.
        chats = {name: (CurlTalk(False), CurlTalk(False, id_slot=slot))
                 for slot, name in enumerate("AB")}
        held = {}
        for turn in range(8):
            for name in "AB" if turn < 4 else "B":
                held[name] = self.turn(chats[name], f"what about {turn} of {name}",
                                       call=name == "B" and turn % 2 == 0)
        self.server.wait_parked()
        self.server.terminate()
        self.server = self.start_words(kind, self.start)
        for name in "BA":
            before = held[name]
            held[name] = self.turn(chats[name], f"and now {name}", call=False)
            lookup = self.server.last_lookup()
            self.assertEqual(lookup["reused_tokens"], before, lookup)
            if name == "B":
                self.assertEqual(lookup["hit_tokens"], {"disk": before}, lookup)
            else:
                # What both begin with came with B.
                self.assertLessEqual(set(lookup["hit_tokens"]), {"disk", "ram"}, lookup)
                self.assertGreater(lookup["hit_tokens"]["disk"], 0, lookup)

    def turn(self, chat, question, call):
        """One turn, and one more with a call's result; returns how much is kept of what is next."""
        mine, theirs = chat
        answer = self.ask(chat, question)
        if call:
            mine.keep_call()
            theirs.keep_call()
            before, answer = answer, self.ask(chat, None)
            # The call is not what the model said: up to the prompt's end they are alike.
            lookup = self.server.last_lookup()
            self.assertLessEqual(answer.cached, before.prompt, lookup)
            self.assertGreaterEqual(answer.cached, before.prompt - self.below, lookup)
        mine.keep(answer.text)
        theirs.keep(answer.text)
        return answer.prompt + answer.answer - 1

    def ask(self, chat, question):
        mine, theirs = chat
        reference = theirs.ask(self.plain.port, question)
        answer = mine.ask(self.server.port, question)
        self.assertEqual(answer.prompt, reference.prompt)
        if self.same_text:
            self.assertEqual(answer.text, reference.text)
        self.server.wait_parked()
        return answer

    def test_scenario_02_dense(self):
        self.scenario_02("dense")

    def test_scenario_02_window(self):
        self.scenario_02("window")

    def test_scenario_02_full_window(self):
        self.scenario_02("full_window")

    def test_scenario_02_recurrent(self):
        self.scenario_02("recurrent")

    def test_scenario_02_hybrid(self):
        self.scenario_02("hybrid")


if __name__ == "__main__":
    unittest.main()
