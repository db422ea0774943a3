"""One read serves all who wait for it, also when the one who reads goes away (scenario 24)."""

import re
import threading
import unittest

from chat_client import DELIMITERS, LOGPROBS, ChatTest, at_once
from parkade_process import tokens_of, wait_until

CLIENTS = 4
SHARED = 4000
TAIL = 40
ANSWER = 8
BATCH = 64


class SharedReadTest(ChatTest):
    def begin_clients(self, kind):
        # The log has a line for every batch.
        self.begin(kind, "-b", str(BATCH), "-ub", str(BATCH), cache=("-lv", "5"), chats=CLIENTS,
                   slots=CLIENTS)
        self.shared = [token for token in tokens_of("shared", SHARED + 200)
                       if token not in self.mark][:SHARED]

    def with_tail(self, client):
        return self.shared + self.message(f"client {client}", TAIL)

    def answer(self, server, prompt, **fields):
        return server.ask(prompt, ANSWER, message_delimiters=DELIMITERS, n_probs=LOGPROBS, **fields)

    def assert_answers(self, prompts, answers):
        """As a server says that reads every prompt by itself. In one batch with others sums may
        round differently."""
        for chat, (prompt, answer) in enumerate(zip(prompts, answers)):
            self.assert_near(answer, self.answer(self.plain, prompt, id_slot=chat))
            self.assertEqual(len(answer.tokens), ANSWER)

    # ---- the reader goes away

    def behind_a_reader(self, reader, prompts, leaves_at):
        """Answers of those who come while another client's prompt is read; None: it stays."""
        connection = self.server.begin_stream(reader, ANSWER, return_progress=True,
                                              message_delimiters=DELIMITERS)
        response = connection.getresponse()
        self.read_progress(response, BATCH)
        answers = [None] * len(prompts)

        def ask(index):
            answers[index] = self.answer(self.server, prompts[index])
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(prompts))]
        for thread in threads:
            thread.start()

        def all_there():
            slots = self.server.json("GET", "/slots")
            return sum(slot["is_processing"] for slot in slots) == 1 + len(prompts)
        wait_until(all_there, "all clients to have a slot")
        if leaves_at is not None:
            self.read_progress(response, leaves_at)
        else:
            response.read()
        response.close()
        connection.close()
        for thread in threads:
            thread.join()
        return answers

    def stopped_at(self):
        """What the client that went away had been read."""
        log = self.server.wait_for_line("cancel task, id_task")
        after = log[log.index("cancel task, id_task"):]
        return int(re.search(r"stop processing: n_tokens = (\d+)", after)[1])

    def one_goes_on(self, kind):
        self.begin_clients(kind)
        prompts = [self.with_tail(client) for client in range(CLIENTS)]
        reader = prompts.pop(0)
        answers = self.behind_a_reader(reader, prompts, SHARED // 2)
        read = self.stopped_at()
        self.assertGreaterEqual(read, SHARED // 2 - BATCH)
        self.assertLess(read, SHARED)
        reader, *others = sorted(answers, key=lambda answer: answer.cache_n)
        # One goes on where the reader stopped; the others have all from it but their own tails.
        self.assertEqual(reader.cache_n, read)
        for answer in others:
            self.assertGreaterEqual(answer.cache_n, SHARED)
        computed = read + sum(answer.prompt_n for answer in answers)
        tails = sum(len(prompt) - SHARED for prompt in prompts)
        self.assertLessEqual(computed, 1.1 * SHARED + tails)
        self.assert_answers(prompts, answers)

    def test_reader_leaves_dense(self):
        self.one_goes_on("dense")

    def test_reader_leaves_window(self):
        self.one_goes_on("window")

    def test_reader_leaves_recurrent(self):
        self.one_goes_on("recurrent")

    def test_reader_leaves_hybrid(self):
        self.one_goes_on("hybrid")

    # ---- nobody goes away

    def one_reads(self, kind):
        """The same prompt for all, and no word of where its messages begin."""
        self.begin_clients(kind)
        answers = at_once([lambda: self.server.ask(self.shared, ANSWER, n_probs=LOGPROBS)] *
                          CLIENTS)
        reader, *others = sorted(answers, key=lambda answer: answer.cache_n)
        self.assertEqual(reader.cache_n, 0)
        for answer in others:
            self.assertEqual(answer.prompt_n, self.kind.again)
        self.assert_answers([self.shared] * CLIENTS, answers)

    def test_one_reads_dense(self):
        self.one_reads("dense")

    def test_one_reads_window(self):
        self.one_reads("window")

    def test_one_reads_recurrent(self):
        self.one_reads("recurrent")

    def test_one_reads_hybrid(self):
        self.one_reads("hybrid")

    def test_those_who_waited_share_more(self):
        """Two of them go on alike for longer than the reader: one of the two reads that."""
        self.begin_clients("dense")
        longer = self.shared + tokens_of("longer", 1500)
        prompts = [longer + tokens_of("one", TAIL), longer + tokens_of("other", TAIL)]
        answers = self.behind_a_reader(self.shared + tokens_of("reader", 500), prompts, None)
        first, second = sorted(answers, key=lambda answer: answer.cache_n)
        self.assertGreaterEqual(first.cache_n, SHARED)
        self.assertLess(first.cache_n, SHARED + BATCH)
        self.assertGreaterEqual(second.cache_n, len(longer))
        self.assert_answers(prompts, answers)


if __name__ == "__main__":
    unittest.main()
