"""A remote tier as people meet it: what is refused at the start, what the tool, the page and the
metrics show, and a router's servers."""

import json
import math
import os
import re
import subprocess
import unittest

from parkade_process import DEADLINE_S, PROGRAM, model, tokens_of, wait_until
from remote_case import RemoteCase
from router_test import Router

DENSE = model("dense")
TOOL = os.path.join(os.path.dirname(PROGRAM), "parkade")
SECRET = "s3cret-passw0rd"
PROMPT = 900
ANSWER = 16


class RemoteRefusedTest(RemoteCase):
    """Exit 2, one line that says what to do, and no password in it."""

    def refused(self, expected, *arguments, loads=True):
        server = self.launch(DENSE, "-c", "1024", "-t", "1", *arguments)
        self.assertEqual(server.process.wait(DEADLINE_S), 2, server.log())
        lines = [line for line in server.log().splitlines() if line.startswith("error: ")]
        self.assertEqual(len(lines), 1, server.log())
        self.assertIn(expected, lines[0])
        self.assertIn("--conversation-cache-remote", lines[0])
        self.assertNotIn(SECRET, server.log())
        if not loads:
            self.assertEqual(len(server.log().splitlines()), 1, server.log())

    def refused_address(self, expected, address, **options):
        self.refused(expected, "--conversation-cache-remote", address, **options)

    def test_addresses(self):
        for expected, address in (
                ("does not begin with redis://", f"http://:{SECRET}@host:1"),
                ("does not begin with redis://", f"host:{SECRET}"),
                ("port from 1 to 65535", f"redis://:{SECRET}@host:99999"),
                ("no name or address", f"redis://:{SECRET}@"),
                ("no name or address", f"redis://:{SECRET}@a:1,,b:2"),
                ("user without", f"redis://{SECRET}@host:1"),
                ("hexadecimal digits", f"redis://:{SECRET}%zz@host:1"),
                ("prefix", f"redis://:{SECRET}@host:1/a*b"),
                ("no path after", "redis://@file:@host:1")):
            with self.subTest(address=address):
                self.refused_address(expected, address)
        self.refused_address("no blanks", f"redis://:{SECRET} @host", loads=False)

    def test_password_files(self):
        path = os.path.join(self.folder, "password")
        address = f"redis://:@file:{path}@127.0.0.1:{self.redis.port}"
        self.refused_address("can't be read", address)
        with open(path, "w", encoding="utf-8") as file:
            file.write(SECRET + "\n")
        os.chmod(path, 0o640)
        self.refused_address("open to others; chmod 600", address)
        os.chmod(path, 0o600)
        self.redis.ask("CONFIG", "SET", "requirepass", SECRET)
        self.redis.password = SECRET
        server = self.start_remote(DENSE, address=address)
        server.ask(tokens_of("chat", PROMPT), ANSWER)
        self.wait_published(server, PROMPT + ANSWER - 1)
        for name in ("cmdline", "environ"):
            with open(f"/proc/{server.process.pid}/{name}", "rb") as file:
                self.assertNotIn(SECRET.encode(), file.read())
        for text in (server.log(), server.request("GET", "/props")[1], server.request(
                "GET", "/conversations")[1], server.request("GET", "/metrics")[1]):
            self.assertNotIn(SECRET, text)
        with open(path, "w", encoding="utf-8"):
            pass
        self.refused_address("is empty", address)

    def test_without_a_tier_of_this_machine(self):
        self.refused("needs a RAM or a disk tier", "--conversation-cache-remote",
                     f"redis://:{SECRET}@host", "--conversation-cache-mib", "0", loads=False)


class RemoteShownTest(RemoteCase):
    def setUp(self):
        super().setUp()
        self.server = self.start_remote(DENSE)
        self.url = f"http://127.0.0.1:{self.server.port}"

    def tool(self, *words, columns=None):
        environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
        if columns is not None:
            environment["COLUMNS"] = str(columns)
        done = subprocess.run([TOOL, *words, "--url", self.url], capture_output=True, text=True,
                              timeout=DEADLINE_S, check=False, env=environment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        # Nothing of 2^64.
        self.assertNotRegex(done.stdout, r"17179869184|18446744073709551615|16384 PiB|16 EiB|e\+")
        return done.stdout

    def chat(self):
        prompt = tokens_of("chat", PROMPT)
        chat = prompt + self.server.ask(prompt, ANSWER).tokens
        self.wait_published(self.server, len(chat) - 1)
        return chat

    def test_what_is_said_of_the_tier(self):
        """What others put there nobody here counts: neither budget nor use is shown."""
        self.chat()
        tier = self.server.tiers()["remote"]
        self.assertEqual(tier, {"tier": "remote", "used_bytes": None, "budget_bytes": None,
                                "physical_bytes": 0, "free_bytes": 0, "conversations": 1,
                                "state": "up"})
        self.assertEqual(self.server.conversations()[0]["tiers"], ["ram", "remote"])
        changed = self.server.json("POST", "/conversations/budgets", {"ram_mib": 300})
        self.assertEqual(changed["tiers"][1], tier)

    def test_tool(self):
        chat = self.chat()
        self.server.ask(chat + tokens_of("turn", 90), ANSWER)
        self.server.wait_parked()
        wait_until(lambda: "remote" in self.tool("ls").splitlines()[1], "the tier to be listed")
        shown = self.tool("show", self.server.conversations()[0]["id"])
        self.assertIn("ram,remote", shown)
        for command in ("stats", "budgets"):
            line = next(line for line in self.tool(command).splitlines()
                        if line.startswith("remote"))
            self.assertEqual(line.split()[1:3], ["-", "-"], line)
            self.assertIn("up", line)
            self.assertLessEqual(max(map(len, self.tool(command, columns=80).splitlines())), 80)
        stats = json.loads(self.tool("stats", "--json"))
        tier = next(tier for tier in stats["tiers"] if tier["tier"] == "remote")
        self.assertIsNone(tier["budget_bytes"])

    def test_why(self):
        """With the store away and there again."""
        chat = self.chat()
        other = self.start_remote(DENSE)
        self.url = f"http://127.0.0.1:{other.port}"
        other.ask(chat + [300], 1)
        self.assertIn("remote", self.tool("lookups", "--why"))
        self.redis.kill()
        other.ask(tokens_of("more", PROMPT), 1)
        why = self.tool("lookups", "--why")
        self.assertRegex(why, r"remote")
        self.assertEqual(other.last_lookup()["reason"], "remote")
        self.wait_state(other, "down")
        line = next(line for line in self.tool("stats").splitlines() if line.startswith("remote"))
        self.assertIn("down", line)

    def test_metrics(self):
        chat = self.chat()
        stored = sum(self.redis.ask("STRLEN", key) for key in self.redis.keys("x"))
        other = self.start_remote(DENSE)
        other.ask(chat + [300], 1)
        metrics = self.server.metrics()
        theirs = other.metrics()
        for values in (metrics, theirs):
            for (name, labels), value in values.items():
                self.assertTrue(math.isfinite(value), (name, labels))
                if ("tier", "remote") in labels and name.endswith("_bytes"):
                    self.assertLess(value, 1 << 40, (name, labels))
        self.assertEqual(metrics.get_one("parkade_written_bytes_total", tier="remote"), stored)
        self.assertEqual(theirs.get_one("parkade_read_bytes_total", tier="remote"), stored)
        self.assertEqual(theirs.get_one("parkade_hit_tokens_total", tier="remote"), len(chat) - 1)
        self.assertEqual(metrics.get_one("parkade_conversations", tier="remote"), 1)
        self.assertEqual(metrics.get_one("parkade_tier_up", tier="remote"), 1)
        # A panel that divides by the budget, and one that adds them up, see the others alone.
        for name in ("parkade_budget_bytes", "parkade_used_bytes", "parkade_free_bytes"):
            self.assertEqual({dict(labels)["tier"] for metric, labels in metrics if metric == name},
                             {"ram"})


class RemoteRouterTest(RemoteCase):
    def test_flags_reach_the_models_servers(self):
        """Two routers, each with its own disk: a chat goes on at the other one."""
        self.redis.ask("CONFIG", "SET", "requirepass", SECRET)
        self.redis.password = SECRET
        models = os.path.join(self.folder, "models")
        os.mkdir(models)
        os.symlink(DENSE, os.path.join(models, "dense.gguf"))
        address = f"redis://:{SECRET}@127.0.0.1:{self.redis.port}/shared"
        prompt = tokens_of("chat", 400)
        for turn in range(2):
            router = Router(self.folder, models, [
                "--conversation-cache-mib", "300", "--conversation-cache-min-free-mib", "64",
                "--conversation-cache-disk", os.path.join(self.folder, f"disk {turn}"),
                "--conversation-cache-disk-min-free-mib", "64", "--conversation-cache-remote",
                address, "--conversation-cache-remote-ttl-s", "3600"])
            self.servers.append(router)
            router.wait_healthy(False)

            def known(router=router):
                router.ask_model("dense", [1, 2, 3], 1)
                return "disabled" not in router.models["dense"].last_lookup()["miss_tokens"]
            wait_until(known, "the weights")
            answer = router.ask_model("dense", prompt)
            server = router.models["dense"]
            self.assertEqual(set(server.tiers()), {"ram", "disk", "remote"})
            if turn == 1:
                self.assert_served(server, "remote", held)
            held = len(prompt) + len(answer.tokens) - 1
            prompt = prompt + answer.tokens + tokens_of("turn", 90)
            self.wait_published(server, held)
            for child in router.children():
                with open(f"/proc/{child}/cmdline", "rb") as file:
                    self.assertNotIn(SECRET.encode(), file.read())
        for key in self.redis.keys("x"):
            self.assertTrue(key.startswith("shared:"))
            self.assertLessEqual(self.redis.ask("PTTL", key), 3600000)
        for log in (server.log() for server in self.servers):
            self.assertIsNone(re.search(SECRET, log))


if __name__ == "__main__":
    unittest.main()
