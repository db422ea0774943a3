"""Scenario 4: bytes flipped, files cut off, swapped and deleted, at many offsets.

One counted corrupt miss, never asked for again, and nothing else is touched: not the engine, not
other slots, not other conversations.
"""

import os
import random
import shutil
import subprocess
import unittest

from chat_client import KINDS, LOGPROBS, ChatTest
from export_test import TOOL
from parkade_process import DEADLINE_S, model, tokens_of

SEED = int(os.environ.get("PARKADE_DAMAGE_SEED", "0")) or random.SystemRandom().getrandbits(32)
ROUNDS = int(os.environ.get("PARKADE_DAMAGE_ROUNDS", "3"))  # of each kind of damage
CHATS = 5
PROMPT = 520  # three extents
ANSWER = 8
HELD = PROMPT + ANSWER - 1
SLOTS = 4


class DamageScenariosTest(ChatTest):
    def fill(self, kind):
        """A directory with a few chats, one after the other; how they go on is known."""
        self.kind = KINDS[kind]
        self.path = model(self.kind.model)
        self.random = random.Random(SEED)
        print(f"{kind}: seed {SEED} (PARKADE_DAMAGE_SEED)")
        self.plain = self.start_plain(self.path, slots=1)
        server = self.start(self.path, slots=1)
        self.longer, self.expected, self.vital = [], [], []
        for i in range(CHATS):
            prompt = tokens_of(f"chat {i}", PROMPT)
            first = server.ask(prompt, ANSWER)
            self.longer.append(prompt + first.tokens + tokens_of(f"turn {i}", 20))
            self.plain.ask(prompt, ANSWER)
            self.expected.append(self.plain.ask(self.longer[-1], ANSWER, n_probs=LOGPROBS))
            server.wait_parked()
            # Where the chat's newest rows and state are: every byte of it is needed to go on.
            self.vital.append(max(self.segments()))
        server.terminate()
        self.template = os.path.join(self.folder, "template")
        os.rename(self.disk, self.template)

    def segments(self):
        """Files by number, each with its folder: later ones have higher numbers."""
        found = []
        for base, _, names in os.walk(os.path.join(self.disk, "segments")):
            found += [(name, os.path.basename(base)) for name in names]
        return sorted(found)

    # ---- four kinds of damage; each returns the chats that it hits

    def flip(self, segments):
        """A bit of a payload byte, anywhere."""
        path = segments[0]
        _, begin, stored, _ = self.random.choice(
            [extent for extent in self.extents(0) if extent[0] == path])
        at = begin + self.random.randrange(stored)
        with open(path, "r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1 << self.random.randrange(8)]))
        return [0]

    def cut(self, segments):
        os.truncate(segments[0], self.random.randrange(os.path.getsize(segments[0])))
        return [0]

    def swap(self, segments):
        other = self.random.randrange(1, CHATS - 3)
        os.rename(segments[0], segments[0] + ".kept")
        os.rename(segments[other], segments[0])
        os.rename(segments[0] + ".kept", segments[other])
        return [0, other]

    def delete(self, segments):
        os.unlink(segments[0])
        return [0]

    # ---- what follows

    def corrupt(self, server):
        return server.metrics().get_one("parkade_corrupt_total", tier="disk")

    def assert_goes_on(self, server, chat, slot):
        """Its next turn is what a clean process says."""
        answer = server.ask(self.longer[chat], ANSWER, n_probs=LOGPROBS, id_slot=slot)
        if answer.cache_n == HELD:
            self.assert_answers_like(answer, self.expected[chat])
        else:
            # Read in other batches, where sums round differently.
            self.assert_near(answer, self.expected[chat])
        return server.last_lookup()

    def assert_missed(self, server, chat, known_at_start):
        before = self.corrupt(server)
        lookup = self.assert_goes_on(server, chat, chat % SLOTS)
        self.assertLess(lookup["reused_tokens"], HELD, lookup)
        if known_at_start:
            self.assertEqual(self.corrupt(server), before)
            self.assertIsNone(lookup["failed_tier"], lookup)
        else:
            self.assertEqual(self.corrupt(server), before + 1)
            self.assertEqual((lookup["reason"], lookup["failed_tier"]), ("corrupt", "disk"), lookup)
            self.assertGreater(lookup["miss_tokens"]["corrupt"], 0, lookup)

    def case(self, damage, running):
        """`running`: it happens under a server that has opened the directory."""
        shutil.copytree(self.template, self.disk)
        options = {"slots": SLOTS, "context": SLOTS * 2048}
        if running:
            server = self.start(self.path, **options)
        segments = [os.path.join(self.disk, "segments", folder, name)
                    for name, folder in self.vital]
        sizes = [os.path.getsize(path) for path in segments]
        hit = damage(segments)
        # What has another size than its rows say is found without reading it.
        shows = damage in (self.cut, self.delete) or len({sizes[i] for i in hit}) > 1
        if not running:
            server = self.start(self.path, **options)
            self.assertEqual(self.corrupt(server), len(hit) if shows else 0)
        for chat in hit:
            self.assert_missed(server, chat, shows and not running)
        counted = self.corrupt(server)
        self.assertEqual(counted, len(hit))
        self.assertEqual(server.metrics().get_one("parkade_tier_up", tier="disk"), 1)
        # The next requests, in the slot of the failure and in others, come from disk, whole.
        for slot, chat in zip((0, 1, 2, 3), [i for i in range(CHATS) if i not in hit]):
            self.assert_goes_on(server, chat, slot)
            self.assert_served(server, "disk", HELD)
        # It was read again, so it is whole again; nobody asks for what was damaged.
        server.wait_parked()
        for chat in hit:
            lookup = self.assert_goes_on(server, chat, 3)
            self.assertGreaterEqual(lookup["reused_tokens"], HELD)
        self.assertEqual(self.corrupt(server), counted)
        server.kill()
        done = subprocess.run([TOOL, "verify", "--disk", self.disk], capture_output=True,
                              text=True, timeout=DEADLINE_S, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        server = self.start(self.path, **options)
        for chat in hit:
            self.assert_goes_on(server, chat, 1)
            self.assert_served(server, "disk", HELD)
        self.assertEqual(self.corrupt(server), 0)
        server.kill()
        shutil.rmtree(self.disk)

    def scenario_04(self, kind, rounds=1):
        self.fill(kind)
        for damage in (self.flip, self.cut, self.swap, self.delete):
            for _ in range(rounds):
                for running in (False, True):
                    with self.subTest(damage=damage.__name__, running=running):
                        self.case(damage, running)

    def test_scenario_04_dense(self):
        self.scenario_04("dense", ROUNDS)

    def test_scenario_04_window(self):
        self.scenario_04("window")

    def test_scenario_04_recurrent(self):
        self.scenario_04("recurrent")

    def test_scenario_04_hybrid(self):
        self.scenario_04("hybrid")


if __name__ == "__main__":
    unittest.main()
