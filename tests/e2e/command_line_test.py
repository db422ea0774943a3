"""parkade, the tool, at a running server: what it shows and changes, in how many columns."""

import json
import os
import pty
import re
import subprocess
import unittest

from parkade_process import DEADLINE_S, PROGRAM, ServerTest, model, tokens_of

TOOL = os.environ.get("PARKADE_PROGRAM", os.path.join(os.path.dirname(PROGRAM), "parkade"))
DENSE = model("dense")


class CommandLineTest(ServerTest):
    def setUp(self):
        super().setUp()
        self.server = self.start(DENSE, context=16384)
        self.url = f"http://127.0.0.1:{self.server.port}"

    def run_tool(self, *words, columns=None, status=0):
        """Returns stdout, or stderr when it is to fail."""
        environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
        if columns is not None:
            environment["COLUMNS"] = str(columns)
        done = subprocess.run([TOOL, *words, "--url", self.url], capture_output=True, text=True,
                              timeout=DEADLINE_S, check=False, env=environment)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stderr if status else done.stdout

    def chats(self, count):
        for number in range(count):
            self.server.ask(tokens_of(f"chat {number}", 200 + 10 * number), 2)
        self.server.wait_parked()
        listed = self.server.conversations()
        self.assertEqual(len(listed), count)
        return listed

    def test_a_list_that_fits(self):
        listed = self.chats(6)
        full = self.run_tool("ls")
        newest = sorted(listed, key=lambda chat: -chat["last_used"])
        self.assertEqual([line.split()[0] for line in full.splitlines()[1:]],
                         [chat["id"] for chat in newest])
        self.assertGreater(max(map(len, full.splitlines())), 100)
        narrow = self.run_tool("ls", columns=80)
        self.assertLessEqual(max(map(len, narrow.splitlines())), 80)
        shown = [line.split()[0] for line in narrow.splitlines()[1:]]
        self.assertLess(len(shown[0]), 32)
        # What is shown of an id will do.
        for short, chat in zip(shown, newest, strict=True):
            self.assertTrue(chat["id"].startswith(short))
            self.assertEqual(json.loads(self.run_tool("show", short, "--json"))["id"], chat["id"])
        self.assertEqual(self.run_tool("pin", shown[0]), f"{newest[0]['id']} is pinned\n")
        self.assertEqual(self.run_tool("rm", shown[0], shown[1]),
                         f"{newest[0]['id']} is forgotten\n{newest[1]['id']} is forgotten\n")
        self.assertEqual(self.run_tool("show", shown[0], status=1),
                         f"parkade: no conversation's id begins with {shown[0]}\n")
        self.assertEqual(len(self.server.conversations()), 4)

    def test_the_terminal_counts_before_columns(self):
        self.chats(2)
        master, terminal = pty.openpty()
        with os.fdopen(master, "rb", buffering=0) as screen:
            subprocess.run(["stty", "cols", "60"], stdin=terminal, check=True)
            done = subprocess.run([TOOL, "ls", "--url", self.url], stdout=terminal, check=False,
                                  timeout=DEADLINE_S, env={**os.environ, "COLUMNS": "200"})
            os.close(terminal)
            self.assertEqual(done.returncode, 0)
            shown = b""
            try:
                while piece := screen.read(4096):
                    shown += piece
            except OSError:  # the other end is closed
                pass
        lines = shown.decode().replace("\r", "").splitlines()
        self.assertEqual(len(lines), 3)
        self.assertLessEqual(max(map(len, lines)), 60)

    def test_what_goes_next(self):
        listed = self.chats(5)
        by_rank = sorted(listed, key=lambda chat: chat["evict_rank"])
        shown = json.loads(self.run_tool("ls", "--by", "rank", "--limit", "3", "--json"))
        self.assertEqual([chat["id"] for chat in shown["conversations"]],
                         [chat["id"] for chat in by_rank[:3]])
        table = self.run_tool("ls", "--by", "rank")
        at = table.splitlines()[0].index("RANK")
        self.assertEqual([line[at:at + 4].strip() for line in table.splitlines()[1:]],
                         ["0", "1", "2", "3", "4"])

    def test_names_and_budgets(self):
        chat = self.chats(1)[0]["id"]
        self.assertEqual(self.run_tool("pin", chat[:8], "--name", "my work"),
                         f"{chat} is pinned as 'my work'\n")
        self.assertEqual(self.server.conversation(chat)["name"], "my work")
        self.assertIn("my work", self.run_tool("ls"))
        self.assertEqual(self.run_tool("pin", chat[:8], "--name", ""),
                         f"{chat} is pinned and has no name\n")
        self.assertIsNone(self.server.conversation(chat)["name"])
        before = self.server.tiers()
        self.run_tool("budgets", "--disk-gib", "2.5")
        after = self.server.tiers()
        self.assertEqual(after["disk"]["budget_bytes"], 5 << 29)
        self.assertEqual(after["ram"]["budget_bytes"], before["ram"]["budget_bytes"])
        self.assertRegex(self.run_tool("budgets"), r"\ndisk +[\d.]+ \w+ +2\.5 GiB ")
        self.assertRegex(self.run_tool("budgets", "--ram-mib", "3", status=1),
                         r"^parkade: the server answers 400: 'ram_mib': buffers and index take "
                         r"\d+ MiB of it, so \d+ is the least, or 0 for no images in ram\n$")

    def test_why_the_last_prompt_was_read_again(self):
        head = "the way he said it " * 20
        body = " ".join("the people made water and the oil" for _ in range(300))
        self.server.ask(head + "It is 12:34:51 now. " + body, 1)
        answer = self.server.ask(head + "It is 12:34:57 now. " + body, 1)
        lookup = self.server.last_lookup()
        text = " ".join(self.run_tool("lookups", "--why", "--limit", "1").split())
        total = answer.raw["tokens_evaluated"]
        again = lookup["miss_tokens"]["diverged"]
        self.assertIn(f"{lookup['reused_tokens']:,} of {total:,} prompt tokens reused", text)
        self.assertIn(f"{again:,} computed, diverged: the prompt differs from what is kept at "
                      f"token {lookup['first_difference']:,} (a clock time that changes in every "
                      "request). Only what stands before it can be reused", text)
        self.assertEqual(len(self.run_tool("lookups", "--limit", "1").splitlines()), 2)
        self.assertEqual(len(self.run_tool("lookups").splitlines()), 3)

    def test_what_the_cache_saved(self):
        prompt = tokens_of("chat", 600)
        self.server.ask(prompt, 8)
        self.server.ask(tokens_of("other", 300), 8)
        self.server.ask(tokens_of("third", 300), 8)
        self.server.ask(prompt, 8)
        self.assert_served(self.server, "ram", 599)
        metrics = self.server.metrics()
        looked_up = metrics.sum_of("parkade_lookup_tokens_total")
        saved = metrics.get_one("parkade_hit_tokens_total", tier="ram")
        text = self.run_tool("stats")
        said = re.search(r"the cache saved ([\d,]+) of ([\d,]+) prompt tokens \(([\d.]+) %\): "
                         r"([\d,]+) from\s+ram", text)
        self.assertIsNotNone(said, text)
        self.assertEqual([int(said[i].replace(",", "")) for i in (1, 2, 4)],
                         [saved, looked_up, saved])
        self.assertEqual(said[3], f"{100 * saved / looked_up:.1f}")

    def test_pages(self):
        """They need no server."""
        for words, begin in ((("man",), ".TH PARKADE 1"), (("help",), "parkade looks into"),
                             (("completion", "bash"), "# Completion"),
                             (("help", "ls"), "parkade ls")):
            done = subprocess.run([TOOL, *words], capture_output=True, text=True, check=True,
                                  timeout=DEADLINE_S)
            self.assertEqual(done.stdout[:len(begin)], begin)


if __name__ == "__main__":
    unittest.main()
