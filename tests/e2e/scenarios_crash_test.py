"""Scenario 3: kill -9 at random moments while large parks are being written."""

import json
import os
import random
import subprocess
import threading
import time
import unittest

import long_prompt_test as fat
from chat_client import LOGPROBS, ChatTest
from export_test import TOOL
from parkade_process import DEADLINE_S, tokens_of, wait_until

ROUNDS = int(os.environ.get("PARKADE_CRASH_ROUNDS", "12"))
SEED = int(os.environ.get("PARKADE_CRASH_SEED", "0")) or random.SystemRandom().getrandbits(32)
ROW_BYTES = 128 << 10
ANSWER = 4
CHATS_AT_ONCE = 2
WRITERS = 2  # threads of the server that write parks
CHANCE = 4  # fewer tokens than this may be those of the chat that the slot has had before
BUDGET_BYTES = 400 << 20
# The database's own: current, identity, lock, options (two kept), manifest and logs before and
# after a flush, a table or two in each of eight families.
CATALOGUE_FILES = 40
# Segments without payload: the secret, and one for each identity.
SMALL_SEGMENTS = 4


class Writer(threading.Thread):
    """A client with one new chat after the other, until the server is gone."""

    def __init__(self, server, name, random_source):
        super().__init__()
        self.server, self.chat_name, self.random = server, name, random_source
        self.asked = []  # prompts, of which the last one's answer never came
        self.answered = {}  # by place in `asked`

    def run(self):
        while True:
            place = len(self.asked)
            self.asked.append(tokens_of(f"{self.chat_name} {place}", self.random.randint(90, 330)))
            try:
                self.answered[place] = self.server.ask(self.asked[place], ANSWER,
                                                       n_probs=LOGPROBS)
            # swallow: the server was killed in the middle, as it is meant to be.
            except (OSError, ValueError, AssertionError):
                return


class CrashScenariosTest(ChatTest):
    def start_wide(self, **options):
        return self.start(fat.fat_model("wide", ROW_BYTES), "-ctk", "f32", "-ctv", "f32",
                          context=CHATS_AT_ONCE * 384, slots=CHATS_AT_ONCE, **options)

    def start_cached(self):
        server = self.start(
            fat.fat_model("wide", ROW_BYTES), "-ctk", "f32", "-ctv", "f32",
            "--conversation-cache-disk-gib", str(BUDGET_BYTES / (1 << 30)),
            context=CHATS_AT_ONCE * 384, slots=CHATS_AT_ONCE, ram_mib=256)
        return server

    def files(self, folder):
        found = []
        for base, _, names in os.walk(os.path.join(self.disk, folder)):
            for name in names:
                try:
                    found.append((name, os.lstat(os.path.join(base, name)).st_blocks * 512))
                except FileNotFoundError:
                    pass  # swallow: evicted or compacted while this looked
        return found

    def assert_within_budget(self):
        held = sum(size for _, size in self.files(""))
        self.assertLessEqual(held, BUDGET_BYTES)

    def write_until_killed(self, server, round_number):
        """Returns the clients, and what was last reported to be durable: tokens by id."""
        clients = [Writer(server, f"round {round_number} client {i}",
                          random.Random(self.random.random())) for i in range(CHATS_AT_ONCE)]
        known = {c["id"] for c in server.conversations()}
        for client in clients:
            client.start()
        durable = {}

        def look():
            for c in server.conversations():
                if c["id"] not in known and c["durable_tokens"]:
                    durable[c["id"]] = c["durable_tokens"]
            self.assert_within_budget()
            return len(durable)
        # Some die while their first chat is read, some after a few of them.
        wanted = self.random.randint(0, 3)
        wait_until(lambda: look() >= wanted, f"{wanted} durable chats")
        end = time.monotonic() + self.random.uniform(0, 0.5)
        while time.monotonic() < end:
            look()
        server.kill()
        for client in clients:
            client.join(DEADLINE_S)
            self.assertFalse(client.is_alive())
        return clients, durable

    def assert_undamaged(self):
        """As the kill left it. A file that was renamed into place just before its rows may be
        there: the next start takes it back."""
        done = subprocess.run([TOOL, "verify", "--disk", self.disk, "--json"],
                              capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        found = json.loads(done.stdout)
        self.assertEqual((found["damaged_segments"], found["damaged_rows"]), (0, 0), found)
        self.assertFalse(found["catalogue_rebuilt"], found)
        self.assertLessEqual(found["orphan_files"], WRITERS, found)
        self.assertEqual(len(found["findings"]), found["orphan_files"], found)
        return found["orphan_files"]

    def assert_sound(self):
        done = subprocess.run([TOOL, "verify", "--disk", self.disk], capture_output=True,
                              text=True, timeout=DEADLINE_S, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)

    def assert_every_file_has_an_owner(self, server):
        parks = sum(len(server.conversation(c["id"])["parks"]) for c in server.conversations())
        segments = self.files("segments")
        self.assertLessEqual(len(segments), parks + SMALL_SEGMENTS)
        self.assertEqual(self.files("temporary"), [])
        self.assertLessEqual(len(self.files("catalogue")), CATALOGUE_FILES)
        self.assertEqual(sorted(os.listdir(self.disk)),
                         ["LOCK", "VERSION", "catalogue", "segments", "temporary"])
        self.assert_within_budget()

    def check_chats(self, server, plain, clients, durable):
        """What was reported is reused, the rest is a clean miss; every answer is right."""
        kept = {c["id"]: c["durable_tokens"] for c in server.conversations()}
        for conversation, tokens in durable.items():
            self.assertGreaterEqual(kept.get(conversation, 0), tokens, "reported, and lost")
        seen = {}
        for client in clients:
            for place, prompt in enumerate(client.asked):
                if place in client.answered:
                    self.assertLess(client.answered[place].cache_n, CHANCE)
                answer = server.ask(prompt, ANSWER, n_probs=LOGPROBS)
                lookup = server.last_lookup()
                reference = plain.ask(prompt, ANSWER, n_probs=LOGPROBS)
                # Read in other batches, and beside another chat: sums round differently.
                self.assert_near(answer, reference)
                if place in client.answered:
                    self.assert_near(client.answered[place], reference)
                conversation = lookup["conversation"]
                if conversation is None:
                    self.assertLess(lookup["reused_tokens"], CHANCE, lookup)
                    self.assertLessEqual(set(lookup["hit_tokens"]), {"slot"}, lookup)
                    continue
                expected = min(kept[conversation], len(prompt) - 1)
                self.assert_served(server, "disk", expected, len(prompt))
                seen[conversation] = expected
        self.assertLessEqual(set(durable), set(seen), "reported, and not found again")
        self.assertEqual(server.metrics().sum_of("parkade_corrupt_total"), 0)
        return len(seen)

    def test_scenario_03(self):
        print(f"seed {SEED} (PARKADE_CRASH_SEED), {ROUNDS} rounds (PARKADE_CRASH_ROUNDS)")
        self.random = random.Random(SEED)
        plain = self.start_wide(disk=False, ram_mib=0)
        server = self.start_cached()
        asked = reported = found = evicted = files_taken_back = 0
        for round_number in range(ROUNDS):
            clients, durable = self.write_until_killed(server, round_number)
            files_taken_back += self.assert_undamaged()
            server = self.start_cached()
            self.assert_every_file_has_an_owner(server)
            found += self.check_chats(server, plain, clients, durable)
            server.wait_parked()
            evicted += server.metrics().get_one("parkade_evictions_total", tier="disk",
                                                reason="budget")
            self.assert_within_budget()
            asked += sum(len(client.asked) for client in clients)
            reported += len(durable)
            if round_number % 4 == 3:
                server.terminate()
                self.assert_sound()
                server = self.start_cached()
        self.assert_every_file_has_an_owner(server)
        server.terminate()
        self.assert_sound()
        print(f"{ROUNDS} kills: {asked} chats begun, {reported} reported durable, {found} found "
              f"again, {evicted:.0f} parks evicted, {files_taken_back} files without rows yet")
        self.assertGreater(reported, 0)
        self.assertGreaterEqual(found, reported)


if __name__ == "__main__":
    unittest.main()
