"""More chats than slots, side requests between long turns, others in a restore."""

import re
import unittest

import long_prompt_test as fat
from chat_client import ANSWER_TOKENS, DELIMITERS, ChatTest, distinct_rows
from parkade_process import ServerTest, tokens_of, wait_until


class ManyChatsTest(ChatTest):
    # ---- round robin

    def round_robin(self, kind, slots):
        """8 chats of 4,000 tokens, RAM for 3 of them: computed is what is new, and nothing else."""
        chats, rounds, answer_tokens = 8, 10, 8
        self.begin(kind, cache=("--conversation-cache-slots", "3"), slots=slots, context=6144)
        # All but the first chat's text is compared elsewhere; reading them twice takes long.
        prompts = [tokens_of(f"system {i}", 500) + self.message(f"chat {i}", 3500)
                   for i in range(chats)]
        known = [0] * chats
        new = computed = 0
        for turn in range(rounds):
            for i in range(chats):
                if i == 0:
                    answer = self.ask(prompts[i], answer_tokens)
                else:
                    answer = self.server.ask(prompts[i], answer_tokens,
                                             message_delimiters=DELIMITERS)
                if turn:
                    self.assert_reused(answer, known[i], "ram", "disk", "slot")
                new += len(prompts[i]) - known[i]
                computed += answer.prompt_n
                known[i] = len(prompts[i]) + answer_tokens - 1
                prompts[i] = prompts[i] + answer.tokens + self.message(f"{i} {turn}", 40)
        self.assertGreater(new, chats * 3900)
        self.assertLessEqual(computed, 1.02 * new)
        self.server.wait_parked()
        wait_until(lambda: self.chats_in_ram() <= 3, "room for 3 chats")
        self.assertGreater(self.server.metrics().get_one("parkade_hit_tokens_total", tier="disk"),
                           sum(known) // 2)

    def chats_in_ram(self):
        """The limit counts chats, not their branches."""
        found = {c["id"]: c for c in self.server.conversations()}

        def root(conversation):
            while conversation["forked_from"] in found:
                conversation = found[conversation["forked_from"]]
            return conversation["id"]

        return len({root(c) for c in found.values() if "ram" in c["tiers"]})

    def test_round_robin_dense(self):
        self.round_robin("dense", slots=2)

    def test_round_robin_hybrid(self):
        self.round_robin("hybrid", slots=2)

    # ---- side requests

    def side_requests(self, kind):
        """A title and tags after every turn take the only slot; the chat is not read again."""
        self.begin(kind, chats=3)
        prompt = tokens_of("system", 600) + self.message("turn 0", 1500)
        tasks = {name: tokens_of(name, 150) for name in ("title", "tags")}
        parked = {}
        held = 0
        for turn in range(4):
            answer = self.ask(prompt)
            if turn:
                self.assert_reused(answer, held, "ram")
            held = len(prompt) + ANSWER_TOKENS - 1
            parked["chat"] = prompt + answer.tokens[:-1]
            self.server.wait_parked()
            for i, (name, task) in enumerate(tasks.items(), 1):
                side = task + self.message(f"{name} of turn {turn}", 60)
                said = self.ask(side, 16, chat=i)
                parked[name, turn] = side + said.tokens[:-1]
                if turn:
                    # What the task begins with is known, too.
                    common = len(task) + len(self.mark)
                    self.assert_reused(said, common, "ram", below=len(self.mark))
                self.server.wait_parked()
            prompt = prompt + answer.tokens + self.message(f"turn {turn + 1}", 80)
        self.assert_stored_once(distinct_rows(parked.values()))
        written = self.server.metrics().get_one("parkade_written_bytes_total", tier="disk")
        stored = sum(c["bytes"] for c in self.server.conversations())
        self.assertLess(written, 1.05 * stored + (256 << 10))

    def test_side_requests_dense(self):
        self.side_requests("dense")

    def test_side_requests_window(self):
        self.side_requests("window")

    def test_side_requests_recurrent(self):
        self.side_requests("recurrent")

    def test_side_requests_hybrid(self):
        self.side_requests("hybrid")


class StallTest(ServerTest):
    """Others while one is restored; 500 MiB take many slices."""

    def test_stream_reader_waits_for_one_slice(self):
        prompt, ask = tokens_of("long", fat.TOKENS), {"id_slot": 0}
        server = self.start(fat.fat_model(), *fat.LongPromptTest.ARGUMENTS, context=2 * 1024,
                            slots=2, ram_mib=0)
        server.ask(prompt, 8, **ask)
        server.wait_durable(fat.TOKENS + 7)
        server.ask(tokens_of("too short", 20), 1, **ask)  # takes the slot
        # A stream in the other slot, which goes on for longer than the restore.
        stream = server.begin_stream(tokens_of("stream", 20), 900, id_slot=1)
        response = stream.getresponse()
        self.assertTrue(response.readline())
        before = self.decoded(server)
        server.ask(prompt, 1, **ask)
        between = self.decoded(server) - before
        self.assert_served(server, "disk", fat.TOKENS - 1, fat.TOKENS)
        stream.close()
        wait_until(lambda: server.log().count("stop processing") == 4, "the stream's end")
        server.terminate()
        line = re.search(r"longest slice ([\d.]+) ms; calls: .*restoring (\d+)", server.log())
        self.assertIsNotNone(line, "the server's last line")
        slices = int(line[2])
        print(f"{slices} slices, the longest {line[1]} ms; {between} batches meanwhile")
        # After every slice the others had a batch.
        self.assertGreater(slices, 3)
        self.assertGreaterEqual(between, slices)

    def decoded(self, server):
        """Batches that the server has decoded."""
        return server.metrics().get_one("llamacpp:n_decode_total")


if __name__ == "__main__":
    unittest.main()
