"""The real server with its model on a card: what the card gives comes back to it, from RAM and,
after kill -9, from disk, through page-locked buffers. Exits with 77 where there is no card."""

import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))

import parkade_process as parkade  # noqa: E402
from parkade_process import GEMMA, ServerTest  # noqa: E402

SKIPPED = 77
STORY = " ".join(f"Item {i} weighs {i * 7 % 101} grams and is coloured "
                 f"{('red', 'blue', 'green')[i % 3]}." for i in range(200))


def why_not():
    """Why nothing can be tested; empty: it can."""
    answer = subprocess.run([parkade.PROGRAM, "--list-devices"], capture_output=True, text=True,
                            check=False, timeout=120)
    cards = [line for line in (answer.stdout + answer.stderr).splitlines()
             if line.strip().startswith("CUDA")]
    return "" if cards else "no CUDA device: llama.cpp lists none"


class CardTest(ServerTest):
    def on_card(self, start, **options):
        # --swa-full: rows land in the same cells, so the same sums.
        return start(GEMMA, "-ngl", "99", "--swa-full", slots=1, **options)

    def test_restored_from_ram_and_disk(self):
        plain = self.on_card(self.start_plain)
        prompt = plain.tokenize(STORY)
        turn = plain.tokenize(" Which items are red?")[1:]
        first = plain.ask(prompt)
        longer = prompt + first.tokens + turn
        uninterrupted = plain.ask(longer)
        plain.kill()

        server = self.on_card(self.start)
        self.assert_same_answer(server.ask(prompt), first)
        held = len(prompt) + len(first.tokens) - 1
        server.wait_durable(held)
        server.ask(plain_tokens("another chat takes the slot"))
        self.assert_same_answer(server.ask(longer), uninterrupted)
        self.assert_served(server, "ram", 0.99 * held, len(longer))
        self.assertIn("layers on CUDA", server.log())
        self.assertIn("buffers are in page-locked memory", server.log())
        self.assertNotIn("copied one run at a time", server.log())
        server.kill()

        server = self.on_card(self.start)
        self.assert_same_answer(server.ask(longer), uninterrupted)
        self.assert_served(server, "disk", 0.99 * held, len(longer))


def plain_tokens(name):
    return [2] + parkade.tokens_of(name, 300)


if __name__ == "__main__":
    reason = why_not()
    if reason:
        print(reason)
        sys.exit(SKIPPED)
    unittest.main()
