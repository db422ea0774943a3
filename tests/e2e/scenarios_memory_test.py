"""Scenario 14, and the cache's memory under steady traffic: its budget is what resident memory
grows by, plus a constant."""

import os
import random
import unittest

import long_prompt_test as fat
from parkade_process import ServerTest, tokens_of, wait_until

MIB = 1 << 20
RAM_MIB = 256
# What grows besides the budget, whatever the traffic: what malloc keeps in the arenas of some 20
# threads, RocksDB's tables and filters, requests and answers as JSON, the ring of 1,000 lookups.
CONSTANT_BYTES = 32 * MIB
CREEP_BYTES = 8 * MIB
REQUESTS = int(os.environ.get("PARKADE_MEMORY_REQUESTS", "200"))


class MemoryTest(ServerTest):
    def start_for(self, name, row_bytes, tokens, cache, **options):
        if cache:
            options = {"ram_mib": RAM_MIB, **options}
            arguments = ("--conversation-cache-min-tokens", "16", *cache)
        else:
            options = {"ram_mib": 0, "disk": False, **options}
            arguments = ()
        return self.start(fat.fat_model(name, row_bytes), "-ctk", "f32", "-ctv", "f32",
                          *arguments, context=tokens, **options)

    @staticmethod
    def anonymous_bytes(server):
        with open(f"/proc/{server.process.pid}/smaps_rollup", encoding="ascii") as file:
            for line in file:
                if line.startswith("Anonymous:"):
                    return int(line.split()[1]) << 10
        raise AssertionError("no line about anonymous memory")

    # ---- 14: one state of 400 MiB, then 50 of 20 MiB

    LARGE, SMALL, CHATS = 400, 20, 50

    def talk_14(self, server, cached):
        """Returns the most anonymous memory, asked after every answer, and the first answer."""
        large = server.ask(tokens_of("large", self.LARGE), 1)
        most = self.anonymous_bytes(server)
        if cached:
            # What a smaller capture buffer could not take goes on while the slot is free.
            server.wait_durable(self.LARGE)
        for i in range(self.CHATS):
            server.ask(tokens_of(f"small {i}", self.SMALL), 1)
            most = max(most, self.anonymous_bytes(server))
        return most, large

    def test_scenario_14(self):
        row_bytes = fat.ROW_BYTES
        plain = self.start_for("fat", row_bytes, 512, (), slots=1)
        without, reference = self.talk_14(plain, False)
        plain.kill()
        server = self.start_for("fat", row_bytes, 512, ("-lv", "3"), slots=1)
        most, large = self.talk_14(server, True)
        self.assert_same_answer(large, reference)
        server.wait_parked()
        states = sorted(c["bytes"] for c in server.conversations())
        self.assertEqual(states, [self.SMALL * row_bytes] * self.CHATS + [self.LARGE * row_bytes])
        tiers = server.tiers()
        self.assertLessEqual(tiers["ram"]["used_bytes"], RAM_MIB * MIB)
        self.assertEqual(tiers["disk"]["conversations"], self.CHATS + 1)
        # It comes back from disk, through buffers that are much smaller.
        again = server.ask(tokens_of("large", self.LARGE), 1)
        self.assert_same_answer(again, reference)
        self.assert_served(server, "disk", self.LARGE - 1, self.LARGE)
        most = max(most, self.anonymous_bytes(server))
        growth = most - without
        print(f"anonymous memory: {without / MIB:.1f} MiB without a cache, {most / MIB:.1f} with "
              f"one of {RAM_MIB} MiB: {growth / MIB:.1f} more")
        self.assertGreater(growth, RAM_MIB * MIB // 2, "measured something else")
        self.assertLessEqual(growth, RAM_MIB * MIB + CONSTANT_BYTES)

    # ---- steady traffic

    ROW_BYTES = 128 << 10
    CHATS_GOING = 14

    def traffic(self, server, count, source):
        """`count` requests: chats that go on or are edited, new ones, side requests; yields after
        each."""
        chats = [tokens_of(f"chat {i}", 60) for i in range(self.CHATS_GOING)]
        for number in range(count):
            what = source.random()
            place = source.randrange(len(chats))
            if what < 0.15:
                server.ask(tokens_of(f"side {number}", 30), 4)
            elif what < 0.3:
                # Left before its end.
                chat = chats[place]
                chats[place] = chat[:len(chat) // 2] + tokens_of(f"edit {number}", 20)
                server.ask(chats[place], 4)
            else:
                if len(chats[place]) > 220:
                    chats[place] = tokens_of(f"new {number}", 60)
                answer = server.ask(chats[place], 4)
                chats[place] = chats[place] + answer.tokens + tokens_of(f"turn {number}", 20)
            yield

    def test_steady_traffic(self):
        """Parks, restores from RAM and disk, evictions in both: an hour's worth, and no creep."""
        plain = self.start_for("wide", self.ROW_BYTES, 1024, (), slots=2)
        without = 0
        for _ in self.traffic(plain, 20, random.Random(1)):
            without = max(without, self.anonymous_bytes(plain))
        plain.kill()
        server = self.start_for("wide", self.ROW_BYTES, 1024,
                                ("--conversation-cache-disk-gib", "0.6"), slots=2)
        most = 0
        rested = []  # what is held when nothing is under way, from the moment both tiers are full
        for _ in self.traffic(server, 3 * REQUESTS, random.Random(14)):
            most = max(most, self.anonymous_bytes(server))
            server.wait_parked()
            self.assertLessEqual(server.tiers()["ram"]["used_bytes"], RAM_MIB * MIB)
            if rested or self.evicted(server, "ram") and self.evicted(server, "disk"):
                rested.append(self.anonymous_bytes(server))
            if len(rested) == REQUESTS:
                break
        metrics = server.metrics()
        for tier in ("ram", "disk"):
            hit = metrics.get_one("parkade_hit_tokens_total", tier=tier)
            evicted = self.evicted(server, tier)
            print(f"{tier}: {hit:.0f} tokens reused, {evicted:.0f} parks evicted")
            self.assertGreater(hit, 1000)
        self.assertEqual(len(rested), REQUESTS)
        quarter = REQUESTS // 4
        quarters = [max(rested[i * quarter:(i + 1) * quarter]) for i in range(4)]
        print(f"{REQUESTS} requests: anonymous memory {without / MIB:.1f} MiB without a cache, at "
              f"most {most / MIB:.1f} with one of {RAM_MIB} MiB ({(most - without) / MIB:.1f} "
              "more); at rest by quarter at most " +
              ", ".join(f"{value / MIB:.1f}" for value in quarters))
        self.assertLessEqual(most, without + RAM_MIB * MIB + CONSTANT_BYTES)
        self.assertLessEqual(quarters[3], quarters[0] + CREEP_BYTES)

    @staticmethod
    def evicted(server, tier):
        return server.metrics().get_one("parkade_evictions_total", tier=tier, reason="budget")


if __name__ == "__main__":
    unittest.main()
