"""Scenario 13: a client disconnects at half of a long prefill, then asks again."""

import json
import os
import re
import signal
import time
import unittest

from chat_client import ANSWER_TOKENS, ChatTest
from parkade_process import tokens_of, wait_until


class CancelScenariosTest(ChatTest):
    def prefill(self, kind, tokens, batch):
        # The log has a line for every batch.
        self.begin(kind, "-b", str(batch), "-ub", str(batch), cache=("-lv", "5"), context=8192)
        self.prompt = tokens_of("system", 100) + self.message("long", tokens - 100)
        self.half = len(self.prompt) // 2

    def leave_stream(self):
        connection = self.server.begin_stream(self.prompt, ANSWER_TOKENS, return_progress=True)
        response = connection.getresponse()
        self.read_progress(response, self.half)
        response.close()
        connection.close()

    def leave_request(self):
        connection = self.server.connection()
        connection.request("POST", "/completion",
                           json.dumps(self.server.body(self.prompt, ANSWER_TOKENS)),
                           {"Content-Type": "application/json"})

        def half_read():
            slot = self.server.json("GET", "/slots")[0]
            return slot.get("n_prompt_tokens_processed", 0) >= self.half
        wait_until(half_read, "half of the prompt")
        # llama-server looks once a second whether such a client is still there: the process stands
        # still for as long, or it would have read the prompt by then.
        os.kill(self.server.process.pid, signal.SIGSTOP)
        connection.close()
        looked = time.monotonic() + 1.1
        wait_until(lambda: time.monotonic() > looked, "its look at the client")
        os.kill(self.server.process.pid, signal.SIGCONT)

    def assert_stopped(self, batch):
        """Within one batch of the cancel; returns how much was read."""
        log = self.server.wait_for_line("stop processing: n_tokens = ")
        after = log[log.index("cancel task, id_task"):]
        end = re.search(r"stop processing: n_tokens = (\d+)", after)
        self.assertLessEqual(after[:end.start()].count("decode: n_batch (effective)"), 1)
        read = int(end[1])
        self.assertGreaterEqual(read, self.half - batch)
        self.assertLess(read, len(self.prompt))
        self.server.wait_durable(read)
        return read

    def scenario_13(self, kind, tokens=4000, batch=64):
        self.prefill(kind, tokens, batch)
        self.leave_stream()
        read = self.assert_stopped(batch)
        self.restart()
        self.assert_reused(self.ask(self.prompt), read, "disk")

    def scenario_13_without_stream(self, kind, tokens=4000, batch=64):
        self.prefill(kind, tokens, batch)
        self.leave_request()
        read = self.assert_stopped(batch)
        # Another chat has the slot in the meantime.
        self.forget_slot()
        self.assert_reused(self.ask(self.prompt), read, "ram")

    def test_scenario_13_dense(self):
        self.scenario_13("dense")

    def test_scenario_13_window(self):
        self.scenario_13("window")

    def test_scenario_13_recurrent(self):
        self.scenario_13("recurrent")

    def test_scenario_13_hybrid(self):
        self.scenario_13("hybrid")

    def test_scenario_13_without_stream_dense(self):
        self.scenario_13_without_stream("dense")

    def test_scenario_13_without_stream_window(self):
        self.scenario_13_without_stream("window")

    def test_scenario_13_without_stream_recurrent(self):
        self.scenario_13_without_stream("recurrent")

    def test_scenario_13_without_stream_hybrid(self):
        self.scenario_13_without_stream("hybrid")


if __name__ == "__main__":
    unittest.main()
