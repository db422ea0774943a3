"""A story for dashboards: servers that start, are killed and start again, and chats that touch
every tier and every miss reason that can be had without faults of the machine.

The story keeps its own account, from the answers' timings and /conversations/lookups, of what the
counters must have counted. tests/dashboards/draw_panels.py draws it, dashboards_test.py checks it.
"""

import math
from collections import Counter

from parkade_process import ServerTest, model, tokens_of, wait_until
from prometheus_process import Door, Prometheus, configuration, now

CHAT_TOKENS = 600
ANSWER_TOKENS = 16

COUNTED = ("parkade_hit_tokens_total", "parkade_miss_tokens_total", "parkade_lookups_total",
           "parkade_lookup_tokens_total")
# A life that is shorter than this is lost between two looks.
LEAST_SCRAPES = 6


class Account:
    """What the servers behind one address have done, over all their lives."""

    def __init__(self):
        self.hits, self.misses, self.outcomes = Counter(), Counter(), Counter()
        self.prompt_tokens = self.reused_tokens = 0
        # Of answers: what llama-server says that it reused and computed.
        self.timed = Counter()
        # Every counter's last value, summed over the lives.
        self.ended = Counter()

    def add_life(self, server):
        for lookup in server.lookups():
            self.hits.update(lookup["hit_tokens"])
            self.misses.update(lookup["miss_tokens"])
            self.outcomes[lookup["outcome"]] += 1
            self.prompt_tokens += lookup["prompt_tokens"]
            self.reused_tokens += lookup["reused_tokens"]
        for (name, labels), value in server.metrics().items():
            if name.startswith("parkade_") and name.endswith(("_total", "_count", "_sum")):
                self.ended[name, labels] += value


class WatchedTest(ServerTest):
    """Servers behind doors, with a Prometheus that scrapes the doors."""

    def setUp(self):
        super().setUp()
        self.doors, self.accounts, self.opened = {}, {}, {}
        self.prometheus = None

    def tearDown(self):
        try:
            super().tearDown()
        finally:
            if self.prometheus is not None:
                self.prometheus.stop()
            for door in self.doors.values():
                door.close()

    def watch(self, *names):
        for name in names:
            self.doors[name] = Door()
            self.accounts[name] = Account()
        addresses = [door.address for door in self.doors.values()]
        self.prometheus = Prometheus(self.folder, configuration(addresses))

    def instance(self, name):
        return self.doors[name].address

    def open_door(self, name, *arguments, **options):
        """Starts a server; returns when Prometheus has seen its counters at 0."""
        server = self.start(*arguments, **options)
        self.doors[name].server = server
        self.opened[name] = now()
        self.wait_scraped(name)
        return server

    def close_door(self, name):
        """Kills the server as soon as Prometheus knows all that it counted."""
        server = self.finish(name)
        server.kill()
        self.doors[name].server = None
        wait_until(lambda: self.prometheus.value("up" + self.of(name)) == 0, "a failed scrape")

    def finish(self, name):
        """Takes a life into the account, when it was long enough and all of it was scraped."""
        server = self.doors[name].server
        server.wait_parked()
        server.check_identity()

        def seen():
            seconds = math.ceil(now() - self.opened[name])
            found = self.prometheus.value(
                f'count_over_time(parkade_lookup_tokens_total{self.of(name)}[{seconds}s])')
            return found and found >= LEAST_SCRAPES
        wait_until(seen, f"{LEAST_SCRAPES} scrapes")
        self.wait_scraped(name)
        self.accounts[name].add_life(server)
        return server

    def wait_scraped(self, name):
        """Until the newest scrape has what the server says now."""
        server = self.doors[name].server

        def same():
            theirs = {(labels.pop("__name__"), frozenset(labels.items()) - where): value
                      for labels, value in self.prometheus.instant(query)}
            ours = {key: value for key, value in server.metrics().items() if key[0] in COUNTED}
            return theirs == ours
        where = frozenset({("instance", self.instance(name)), ("job", "parkade")})
        query = f'{{__name__=~"{"|".join(COUNTED)}", instance="{self.instance(name)}"}}'
        wait_until(same, "Prometheus to have scraped the server")

    def of(self, name):
        return f'{{instance="{self.instance(name)}"}}'

    def say(self, name, prompt, n_predict=ANSWER_TOKENS, **fields):
        """A request whose timings go into the account. Returns the text so far."""
        answer = self.doors[name].server.ask(prompt, n_predict, **fields)
        self.accounts[name].timed.update(cache_n=answer.cache_n, prompt_n=answer.prompt_n)
        return prompt + answer.tokens


class Story(WatchedTest):
    """Two boxes: `main` with RAM and disk, `small` with RAM only."""

    def tell(self):
        self.open_door("small", model("recurrent"), disk=False, slots=1)
        self.first_life()
        self.after_a_kill()
        self.with_other_settings()
        self.with_damage()
        self.without_space()
        self.finish("small")
        self.finish("main")

    def chats(self, count, tokens=CHAT_TOKENS):
        return [tokens_of(f"chat {i}", tokens) for i in range(count)]

    def go_on(self, name, chat, turn):
        return self.say(name, chat + tokens_of(f"turn {turn}", 30))

    def first_life(self):
        """slot, ram; cold, new, diverged, disabled; a short chat is not parked."""
        server = self.open_door("main", model("dense"))
        self.held = [self.say("main", chat) for chat in self.chats(4)]
        for turn in range(3):
            self.held = [self.go_on("main", chat, turn) for chat in self.held]
        self.held[0] = self.go_on("main", self.held[0], 3)
        self.held[0] = self.go_on("main", self.held[0], 4)  # still in its slot
        server.wait_parked()
        self.say("main", self.held[1][:400] + tokens_of("an edit", 200))
        self.say("main", self.held[2], cache_prompt=False)
        self.say("main", tokens_of("short", 20), 4)
        server.json("POST", f"/conversations/{server.conversations()[0]['id']}/pin",
                    {"pinned": True})
        self.close_door("main")

    def after_a_kill(self):
        """disk, then ram again."""
        self.open_door("main", model("dense"))
        for turn in range(5, 7):
            self.held = [self.go_on("main", chat, turn) for chat in self.held]
        self.close_door("main")

    def with_other_settings(self):
        """identity; on the small box checkpoint and evicted."""
        self.open_door("main", model("dense"), "-ctk", "q8_0")
        self.say("main", self.held[3])
        document = tokens_of("document", 1800)
        self.say("small", document)
        self.say("small", tokens_of("aside", 100))
        self.say("small", document[:1500] + tokens_of("branch", 20))
        self.evict("small", document)
        self.close_door("main")

    def evict(self, name, chat):
        server = self.doors[name].server
        self.say(name, tokens_of("another", 100))
        server.wait_parked()
        server.json("POST", "/conversations/budgets", {"ram_mib": 0})
        wait_until(lambda: not server.tiers()["ram"]["conversations"], "an empty RAM tier")
        server.json("POST", "/conversations/budgets", {"ram_mib": 512})
        wait_until(lambda: server.tiers()["ram"]["budget_bytes"] > 0, "a RAM tier with room")
        self.say(name, chat)

    def with_damage(self):
        """corrupt: one byte of every chat's first extent."""
        for extent in self.extents(0):
            if extent[3] == 0:
                self.damage(extent)
        self.open_door("main", model("dense"))
        self.held = [self.go_on("main", chat, 7) for chat in self.held]
        self.close_door("main")

    def without_space(self):
        """A floor above what is free: the disk tier only reads. This server stays."""
        self.open_door("main", model("dense"), "--conversation-cache-disk-min-free-mib",
                       str(1 << 30))
        self.held = [self.go_on("main", chat, 8) for chat in self.held]
        server = self.doors["main"].server
        wait_until(lambda: server.metrics().get_one("parkade_evictions_total", tier="disk",
                                                    reason="min_free"), "evictions for space")
