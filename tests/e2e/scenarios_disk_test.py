"""Scenarios about a directory: two servers on one, how much a long chat writes, a slow disk."""

import subprocess
import unittest

from chat_client import DELIMITERS, KINDS, LOGPROBS, USER, ChatTest
from parkade_process import DEADLINE_S, PROGRAM, ServerTest, model, tokens_of

CHAT = 600
ANSWER = 16
EXIT_REFUSED = 2


class SharedDirectoryTest(ServerTest):
    """Scenario 18: a second server on the directory of the first."""

    def assert_refused(self, first):
        """The second one ends at once with one line that says which, who and what to do."""
        done = subprocess.run(
            [PROGRAM, "-m", model("dense"), "--host", "127.0.0.1", "--port", "0",
             "--conversation-cache-disk", self.disk],
            capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        self.assertEqual(done.returncode, EXIT_REFUSED, done.stderr)
        errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        self.assertEqual(errors, [
            f"error: {self.disk} is in use by another process (pid {first.process.pid}); end it, "
            "or give another directory"])
        self.assertNotIn("listening on", done.stdout + done.stderr)

    def test_scenario_18(self):
        chats = [tokens_of(f"chat {i}", CHAT) for i in range(3)]
        first = self.start(model("dense"))
        expected = [first.ask(chat, ANSWER) for chat in chats]
        first.wait_parked()
        for stop in ("kill", "terminate"):
            self.assert_refused(first)
            # The first one goes on, from RAM (or, started anew, from disk) and into the same files.
            again = first.ask(chats[0], ANSWER)
            self.assert_served(first, "ram" if stop == "kill" else "disk", CHAT - 1, CHAT)
            self.assert_same_answer(again, expected[0])
            new = tokens_of(f"after {stop}", CHAT)
            first.ask(new, ANSWER)
            first.wait_parked()
            first.wait_durable(CHAT + ANSWER - 1)
            getattr(first, stop)()
            # Nothing is left to wait for or to take away by hand.
            second = self.start(model("dense"))
            for chat, reference in zip(chats[1:], expected[1:]):
                self.assert_same_answer(second.ask(chat, ANSWER), reference)
                self.assert_served(second, "disk", CHAT - 1, CHAT)
            second.ask(new, ANSWER)
            self.assert_served(second, "disk", CHAT - 1, CHAT)
            self.assertEqual(second.metrics().get_one("parkade_corrupt_total", tier="disk"), 0)
            second.wait_parked()
            second.kill()
            first = self.start(model("dense"))


class WrittenBytesTest(ChatTest):
    """Scenario 19: 20 turns of 200 tokens on a chat of 10,000 write what is new."""

    TOKENS = 10000
    TURNS = 20
    TURN = 200 - ANSWER
    # Of a park, besides payload: its segment's head (rows of the catalogue, among them 8 bytes a
    # token and a page hash for every 64), a header of 64 bytes an extent, padding.
    PARK_BYTES = 16 << 10
    # What the kernel counts as written besides: pages of RocksDB's log and of the segment's folder,
    # whole pages at a file's end, the test's own log.
    TURN_BLOCKS_BYTES = 96 << 10

    def write_bytes(self):
        """Bytes that the process has caused to be sent to storage."""
        with open(f"/proc/{self.server.process.pid}/io", encoding="ascii") as file:
            return int(dict(line.split(": ") for line in file)["write_bytes"])

    def stored(self):
        return sum(c["bytes"] for c in self.server.conversations())

    def counted(self):
        self.server.wait_parked()
        metrics = self.server.metrics()
        return (metrics.get_one("parkade_written_bytes_total", tier="disk"), self.write_bytes(),
                self.stored())

    def scenario_19(self, kind, states=0):
        """`states`: how many a turn keeps."""
        self.kind = KINDS[kind]
        self.arguments = self.kind.arguments
        self.options = {"slots": 1, "context": self.TOKENS + (self.TURNS + 2) * 256}
        self.server = self.start(model(self.kind.model), *self.arguments, **self.options)
        self.mark = self.server.tokenize(USER)[1:]
        fields = {"message_delimiters": DELIMITERS, "n_probs": LOGPROBS}
        prompt = tokens_of("system", self.TOKENS // 10)
        prompt += self.message("question", self.TOKENS - ANSWER - len(prompt))
        answer = self.server.ask(prompt, ANSWER, **fields)
        rows = len(prompt) + ANSWER - 1
        self.server.wait_durable(rows)
        first = begin = self.counted()
        for turn in range(self.TURNS):
            prompt = prompt + answer.tokens + self.message(f"turn {turn}", self.TURN)
            answer = self.server.ask(prompt, ANSWER, **fields)
            self.assert_served(self.server, "slot", rows)
            new_rows, rows = len(prompt) + ANSWER - 1 - rows, len(prompt) + ANSWER - 1
            end = self.counted()
            new_bytes = (new_rows * (self.kind.row_bytes + self.kind.window_bytes) +
                         states * self.kind.state_bytes)
            written = end[0] - begin[0]
            self.assertLessEqual(written, 1.02 * new_bytes + self.PARK_BYTES, turn)
            self.assertGreaterEqual(written, new_rows * self.kind.row_bytes)
            begin = end
        written, sent, stored = (last - before for last, before in zip(end, first))
        self.assertLessEqual(sent, 1.1 * written + self.TURNS * self.TURN_BLOCKS_BYTES)
        print(f"{kind}: {self.TURNS} turns: {stored} bytes of rows and state, {written:.0f} "
              f"written ({written / stored:.3f}), {sent} sent to storage ({sent / stored:.3f}); "
              f"before them {self.TOKENS * self.kind.row_bytes} of rows")
        # And it is all there: the same again, from the slot and from the directory.
        expected = self.server.ask(prompt, ANSWER, **fields)
        self.assert_served(self.server, "slot", len(prompt) - self.kind.again)
        self.restart()
        again = self.server.ask(prompt, ANSWER, **fields)
        self.assert_served(self.server, "disk", len(prompt) - self.kind.again)
        self.assert_answers_like(again, expected)

    def test_scenario_19_dense(self):
        self.scenario_19("dense")

    def test_scenario_19_window(self):
        self.scenario_19("window")

    def test_scenario_19_recurrent(self):
        self.scenario_19("recurrent", 3)

    def test_scenario_19_hybrid(self):
        self.scenario_19("hybrid", 3)


if __name__ == "__main__":
    unittest.main()
