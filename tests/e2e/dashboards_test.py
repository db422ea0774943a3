"""Every panel and every alert, asked of a real Prometheus that watched real servers."""

import math
import os
import sys
import unittest

from parkade_process import ROOT, ServerTest, model, tokens_of, wait_until
from prometheus_process import RATE_S, SCRAPE_S, Panels, Prometheus, now
from watched_chats import Story

sys.path.append(os.path.join(ROOT, "tests", "dashboards"))
import draw_panels  # noqa: E402  (after the path)

# increase() is an estimate: it extends what it saw to the ends of its window.
NEAR = 0.03
FILES = ("tier_hit_rates.json", "capacity.json", "performance.json")


def panel_is_heat(title):
    return title.endswith(": every one")


class DashboardsTest(Story):
    def test_panels_and_alerts(self):
        self.watch("main", "small")
        self.begin = now()
        self.tell()
        self.wait_rules()
        self.end = wait_until(self.all_up, "a scrape of both boxes")
        self.all = {}
        for file in FILES:
            panels = Panels(file)
            for panel in panels.panels:
                with self.subTest(file=file, panel=panel["title"]):
                    self.check_has_data(panels, panel)
        self.check_account()
        self.check_hit_rates()
        self.check_over_time()
        self.check_capacity()
        self.check_performance()
        self.check_one_instance()
        self.check_quiet()
        self.check_drawing()
        self.check_alerts()

    def all_up(self):
        """The time now, if the newest scrape of each box came."""
        at = now()
        return at if self.prometheus.instant("min(up)", at)[0][1] == 1 else None

    def near(self, got, expected, within=NEAR, what=""):
        self.assertTrue(abs(got - expected) <= within * max(abs(expected), 1e-9),
                        f"{what}: {got} is not within {within:.0%} of {expected}")

    def last(self, title):
        """{legend: value} of a panel that shows one value each."""
        return {name: values[-1][1] for name, values in self.all[title].items()}

    def total(self, title):
        """{legend: value} of a panel of rates, with one window over the whole story."""
        range_s = math.ceil(self.end - self.begin)
        found = {}
        for file in FILES:
            panels = Panels(file)
            for panel in panels.panels:
                if panel["title"] == title:
                    found = panels.ask(self.prometheus, panel, self.end, self.end, rate_s=range_s)
        seconds = 1 if panel_is_heat(title) else range_s
        return {name: values[-1][1] * seconds for name, values in found.items()}

    def account(self, what):
        """A sum over both boxes."""
        accounts = self.accounts.values()
        first, *others = [getattr(account, what) for account in accounts]
        return sum(others, first)

    def ended(self, metric, **labels):
        """What a counter was at the end of every life, added up."""
        ended = self.account("ended")
        return sum(value for (name, found), value in ended.items()
                   if name == metric and set(labels.items()) <= found)

    def check_has_data(self, panels, panel):
        """It parses, has data, every value is a number and every legend names its series."""
        found = panels.ask(self.prometheus, panel, self.begin, self.end)
        self.assertTrue(found, "no data")
        for name, values in found.items():
            self.assertTrue(values)
            for _, value in values:
                self.assertTrue(math.isfinite(value), f"{name}: {value}")
        self.all[panel["title"]] = found

    def check_account(self):
        """What the servers say of themselves agrees with their answers, before all else."""
        timed = self.account("timed")
        self.assertEqual(timed["cache_n"], self.account("reused_tokens"))
        self.assertEqual(timed["cache_n"] + timed["prompt_n"], self.account("prompt_tokens"))
        self.assertEqual({tier for tier, n in self.account("hits").items() if n},
                         {"slot", "ram", "disk"})
        reached = {reason for reason, n in self.account("misses").items() if n}
        self.assertLessEqual({"new", "cold", "diverged", "identity", "evicted", "corrupt",
                              "checkpoint", "disabled"}, reached)
        self.assertEqual(self.ended("parkade_lookup_tokens_total"), self.account("prompt_tokens"))

    def check_hit_rates(self):
        hits, misses = self.account("hits"), self.account("misses")
        reused, prompt = self.account("reused_tokens"), self.account("prompt_tokens")
        self.near(self.last("Token hit ratio")["hit ratio"], reused / prompt, 0.005, "hit ratio")
        tokens = self.last("Prompt tokens")
        self.near(tokens["reused"], reused, what="reused")
        self.near(tokens["computed"], prompt - reused, what="computed")
        by_reason = self.last("Computed tokens by reason")
        self.assertEqual(set(by_reason), {reason for reason, n in misses.items() if n})
        for reason, value in by_reason.items():
            self.near(value, misses[reason], what=reason)
        # The longest bar comes first.
        self.assertEqual(list(by_reason), sorted(by_reason, key=by_reason.get, reverse=True))
        self.near(self.last("Time saved")["saved"], self.ended("parkade_saved_seconds_total"))
        mean = self.last("Mean time to first token by lowest tier used")
        self.assertEqual(set(mean), {"none"} | {tier for tier, n in hits.items() if n})
        for tier, seconds in mean.items():
            name = "parkade_time_to_first_token_seconds"
            self.near(seconds, self.ended(name + "_sum", tier=tier) /
                      self.ended(name + "_count", tier=tier), what=tier)

    def check_over_time(self):
        """Panels of rates."""
        hits, misses = self.account("hits"), self.account("misses")
        tokens = self.total("Prompt tokens reused and computed")
        self.assertEqual(set(tokens), {"slot", "ram", "disk", "remote", "computed"})
        for tier in ("slot", "ram", "disk"):
            self.near(tokens[tier], hits[tier], NEAR, tier)
        self.assertEqual(tokens["remote"], 0)
        self.near(tokens["computed"], misses.total(), NEAR, "computed")
        over_time = self.total("Computed tokens by reason over time")
        for reason, count in misses.items():
            self.near(over_time[reason], count, NEAR, reason)
        for outcome, per_minute in self.total("Look-ups by outcome").items():
            self.near(per_minute / 60, self.account("outcomes")[outcome], NEAR, outcome)
        # Stacked shares never exceed the whole.
        at = {}
        for values in self.all["Token hit ratio by tier"].values():
            for time, value in values:
                at[time] = at.get(time, 0) + value
        self.assertGreater(max(at.values()), 0.9)
        self.assertLessEqual(max(at.values()), 1.02)

    def check_capacity(self):
        tiers = {name: door.server.tiers() for name, door in self.doors.items()}
        held = {"ram": sum(of["ram"]["conversations"] for of in tiers.values()),
                "disk": tiers["main"]["disk"]["conversations"]}
        self.assertEqual(self.last("Conversations"), held)
        # With the floor above all that there is, the disk's budget in force is 0: no quotient.
        self.assertEqual(set(self.last("Budget used")),
                         {f"ram {self.instance(name)}" for name in self.doors})
        for name, of in tiers.items():
            share = of["ram"]["used_bytes"] / of["ram"]["budget_bytes"]
            self.near(self.last("Budget used")[f"ram {self.instance(name)}"], share, 0.001, name)
        self.assertEqual(self.last("Disk tier")["budget in force"], 0)
        evicted = self.account("misses")["evicted"] / self.account("prompt_tokens")
        self.near(self.last("Asked for again after its eviction")["evicted"], evicted, NEAR)
        self.assertGreater(max(value for _, value in
                               self.all["Pinned share of the budget"]["disk"]), 0)
        removed = self.total("Evictions by tier and reason")
        for name, per_minute in removed.items():
            tier, reason = name.split()
            self.near(per_minute / 60, self.ended("parkade_evictions_total", tier=tier,
                                                  reason=reason), NEAR, name)
        for reason in ("ram budget", "disk min_free", "disk corrupt"):
            self.assertGreater(removed[reason], 0, reason)
        skipped = self.total("Parks not taken, by reason")
        self.assertGreater(skipped["too_short"], 0)
        self.assertGreater(skipped["no_space"], 0)

    def check_performance(self):
        up = self.last("Tiers up")
        self.assertEqual(up[f"disk {self.instance('main')}"], 0)
        self.assertEqual(up[f"ram {self.instance('main')}"], 1)
        damaged = self.last("Damaged extents")
        self.near(damaged["disk"], self.ended("parkade_corrupt_total", tier="disk"))
        self.assertGreater(damaged["disk"], 0)
        failed = self.last("Failed operations")
        self.assertIn("disk read", failed)
        for name, count in failed.items():
            tier, kind = name.split()
            self.near(count, self.ended("parkade_tier_errors_total", tier=tier, kind=kind))
        for title, metric in (("Restore", "parkade_restore_seconds"),
                              ("Park", "parkade_park_seconds"),
                              ("Spill", "parkade_spill_seconds"),
                              ("Look-up", "parkade_lookup_seconds"),
                              ("Time to first token",
                               "parkade_time_to_first_token_seconds")):
            seen = self.total(f"{title}: every one")["+Inf"]
            self.near(seen, self.ended(metric + "_count"), NEAR, title)
        self.near(self.total("Restored by stage")["stage 0"],
                  self.ended("parkade_stage_restored_bytes_total", stage="0"), NEAR)
        self.near(self.total("Written by tier")["disk"],
                  self.ended("parkade_written_bytes_total", tier="disk"), NEAR)

    def check_one_instance(self):
        """The variable picks servers: each alone, and nothing of one that does not exist."""
        panels = Panels("tier_hit_rates.json")
        panel = next(p for p in panels.panels if p["title"] == "Prompt tokens")
        for name, account in self.accounts.items():
            found = panels.ask(self.prometheus, panel, self.begin, self.end,
                               instance=self.instance(name))
            self.near(found["reused"][0][1], account.reused_tokens, NEAR, name)
        self.assertEqual(panels.ask(self.prometheus, panel, self.begin, self.end, instance="no"),
                         {})
        labels = [labels for labels, _ in self.prometheus.instant(
            f"last_over_time(parkade_build_info[{math.ceil(self.end - self.begin)}s])", self.end)]
        self.assertEqual({found["model"] for found in labels if "model" in found},
                         {"dense.gguf", "recurrent.gguf"})

    def check_quiet(self):
        """Before anybody asked, and after: no data or 0, never NaN."""
        for at in (self.first_scrape(), now() + 3600):
            for file in FILES:
                panels = Panels(file)
                for panel in panels.panels:
                    found = panels.ask(self.prometheus, panel, at - 1, at)
                    for name, values in found.items():
                        for _, value in values:
                            self.assertTrue(math.isfinite(value), (panel["title"], name, value))

    def check_drawing(self):
        """The program that draws the README's picture."""
        path = os.path.join(self.folder, "panels.png")
        panels = Panels("tier_hit_rates.json")
        draw_panels.Picture(panels, self.prometheus, self.begin, self.end, SCRAPE_S,
                            RATE_S).draw(path)
        with open(path, "rb") as file:
            picture = file.read()
        self.assertEqual(picture[:8], b"\x89PNG\r\n\x1a\n")
        self.assertLess(len(picture), 300 << 10)

    def first_scrape(self):
        ((_, values),) = self.prometheus.over_time(
            "sum(parkade_lookup_tokens_total)", self.begin, self.end, SCRAPE_S)
        return next(at for at, value in values if value == 0)

    # ---- alerts ----

    def rules(self):
        groups = self.prometheus.api("rules")["groups"]
        return {rule["name"]: rule for group in groups for rule in group["rules"]}

    def wait_rules(self):
        """Until what stands at the end of the story has been evaluated."""
        wait_until(lambda: self.rules()["ParkadeTierDown"]["state"] == "pending",
                   "the tier that is down to be seen")

    def check_alerts(self):
        rules = self.rules()
        for name, rule in rules.items():
            self.assertEqual(rule["health"], "ok", (name, rule.get("lastError")))
        states = {name: rule["state"] for name, rule in rules.items()}
        # A server of the story may have ended just now.
        self.assertIn(states.pop("ParkadeServerDown"), ("inactive", "pending"))
        # Damage fires at once; the others wait, or have seen too little.
        self.assertEqual(states, {
            "ParkadeTierDown": "pending", "ParkadeCorrupt": "firing", "ParkadeLowSpace": "pending",
            "ParkadeHitRatioFell": "inactive", "ParkadeQueueDrops": "inactive",
            "ParkadeBudgetTooSmall": "inactive"})
        (alert,) = rules["ParkadeCorrupt"]["alerts"]
        self.assertEqual(alert["annotations"]["summary"],
                         f"disk of {self.instance('main')} held damaged data")
        (alert,) = rules["ParkadeTierDown"]["alerts"]
        self.assertEqual(alert["labels"]["tier"], "disk")


class ScrapeTest(ServerTest):
    """The scrape configuration of config/, as it stands and with the key."""

    def scrape(self, edit, *arguments):
        server = self.start(model("dense"), *arguments, disk=False)
        with open(os.path.join(ROOT, "config", "prometheus.yml"), encoding="utf-8") as file:
            config = edit(file.read())
        config = config.replace("alerts.yml", os.path.join(ROOT, "config", "alerts.yml"))
        config = config.replace("localhost:8080", f"127.0.0.1:{server.port}")
        config = config.replace("15s", "500ms")
        prometheus = Prometheus(self.folder, config)
        self.addCleanup(prometheus.stop)
        return server, prometheus

    def test_without_a_key(self):
        server, prometheus = self.scrape(lambda config: config)
        server.ask(tokens_of("chat", 300), 4)
        wait_until(lambda: prometheus.value("parkade_lookup_tokens_total") == 300, "the tokens")

    def test_with_a_key(self):
        path = os.path.join(self.folder, "parkade.key")
        with open(path, "w", encoding="utf-8") as file:
            file.write("a-secret\n")

        def edit(config):
            config = config.replace("#authorization:", "authorization:")
            return config.replace("#  credentials_file: parkade.key",
                                  f"  credentials_file: {path}")
        server, prometheus = self.scrape(edit, "--api-key-file", path)
        wait_until(lambda: prometheus.value("parkade_tier_up") == 1, "a scrape with the key")
        os.truncate(path, 0)
        wait_until(lambda: prometheus.value("up") == 0, "a refused scrape")
        server.kill()  # it would not tell its counters without the key


if __name__ == "__main__":
    unittest.main()
