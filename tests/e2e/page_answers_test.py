"""The page on answers that a real server gives seldom: thousands of conversations, every reason.

The server here is a stand-in that serves the page's file with the answers a test gives it.
"""

import http.server
import json
import os
import random
import threading
import time
import unittest
import urllib.parse

from browser import BrowserTest
from parkade_process import ROOT

PAGE = os.path.join(ROOT, "src/server/conversations_ui.html")
MANY = 3000


def conversation(number, **fields):
    return {"id": f"{number * 7919 % 2**32:032x}", "name": None, "pinned": False, "tokens": 100,
            "durable_tokens": 100, "stages": 1, "bytes": 4096, "tiers": ["ram"], "created": 1.0,
            "last_used": time.time() - number, "hits": 0, "forked_from": None,
            "evict_rank": number, **fields}


def lookup(**fields):
    return {"time": time.time(), "prompt_tokens": 5000, "matched_tokens": 0, "usable_tokens": 0,
            "reused_tokens": 0, "conversation": None, "outcome": "miss", "boundary": None,
            "stage_tiers": [], "seconds": 0.001, "lookup_seconds": 0.001, "restore_seconds": 0,
            "restored_bytes": 0, "hit_tokens": {}, "miss_tokens": {}, "reason": None,
            "first_difference": None, "identity_field": None, "changed": None,
            "failed_tier": None, "detail": None, **fields}


class StandIn(http.server.ThreadingHTTPServer):
    """Answers as parkade-server would, below any prefix of one part; counts what is asked."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.conversations = []
        self.lookups = []
        self.tiers = [{"tier": "ram", "used_bytes": 50, "budget_bytes": 100, "physical_bytes": 0,
                       "free_bytes": 0, "conversations": 0, "state": "up"}]
        self.metrics = ""
        self.error = None  # (status, message) that everything but the page gets
        self.asked = []

    def answer(self, method, path, query):
        if self.error is not None and path != "conversations/ui":
            status, message = self.error
            return status, {"error": {"code": status, "message": message, "type": "server_error"}}
        if path == "metrics":
            return 200, self.metrics
        if path == "conversations/lookups":
            return 200, {"lookups": self.lookups[:int(query["limit"])]}
        if path == "conversations" and method == "GET":
            rest = [c for c in sorted(self.conversations, key=lambda c: c["id"])
                    if c["id"] > query.get("after", "")]
            return 200, {"conversations": rest[:int(query["limit"])], "tiers": self.tiers}
        return 404, {"error": {"code": 404, "message": "no such path", "type": "not_found_error"}}

    def count(self, text):
        return sum(text in asked for asked in self.asked)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def reply(self):
        length = int(self.headers.get("Content-Length") or 0)
        self.rfile.read(length)
        url = urllib.parse.urlsplit(self.path)
        self.server.asked.append(f"{self.command} {self.path}")
        path = url.path[url.path.rfind("/conversations" if "/conversations" in url.path else "/") +
                        1:]
        if path == "conversations/ui":
            with open(PAGE, "rb") as file:
                return self.send(200, "text/html; charset=utf-8", file.read())
        query = dict(urllib.parse.parse_qsl(url.query))
        status, body = self.server.answer(self.command, path, query)
        if isinstance(body, str):
            return self.send(status, "text/plain", body.encode())
        return self.send(status, "application/json", json.dumps(body).encode())

    do_GET = do_POST = do_DELETE = reply

    def send(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        """Nothing: what was asked is counted."""


class PageAnswersTest(BrowserTest):
    def setUp(self):
        super().setUp()
        self.server = StandIn()
        thread = threading.Thread(target=self.server.serve_forever)
        thread.start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(thread.join)
        self.addCleanup(self.server.shutdown)

    def show(self, prefix="", state="live"):
        self.open(self.server.server_port, prefix)
        self.wait_state(state)

    def test_thousands(self):
        chats = [conversation(n, bytes=1 + n, tokens=100 + n % 7) for n in range(MANY)]
        random.Random("ranks").shuffle(chats)
        for rank, chat in enumerate(chats):
            chat["evict_rank"] = rank
        self.server.conversations = chats
        self.show()
        newest = [c["id"] for c in sorted(chats, key=lambda c: -c["last_used"])]
        self.assertEqual(self.ids(), newest[:200])
        self.assertEqual(self.element("#listed").text, "3,000 \u00b7 200 shown")
        self.element("#more").click()
        self.wait_equal(self.ids, newest[:400], "200 more")
        # What goes next is named, wherever it is.
        self.assertEqual(self.element("#next").text, chats[0]["id"][:12])
        self.element("#next").click()
        self.assertEqual([row["id"] for row in self.rows() if row["next"]], [chats[0]["id"]])
        self.assertTrue(self.script("""
            const place = document.querySelector('.goes-next').getBoundingClientRect();
            return place.top >= 0 && place.bottom <= innerHeight;"""))
        self.sort_by("evict_rank")
        self.assertEqual(self.ids()[:400], [c["id"] for c in chats[:400]])
        # The whole list is not read again each time the rest is.
        whole = self.server.count("limit=500")
        self.assertEqual(whole, MANY // 500 + 1)
        lookups = self.server.count("/lookups")
        self.wait(lambda: self.server.count("/lookups") >= lookups + 2, "two more times")
        self.assertEqual(self.server.count("limit=500"), whole)
        self.assertGreaterEqual(self.server.count("limit=1"), 1)
        self.assert_quiet()

    def test_every_reason_has_words(self):
        reused = {"reused_tokens": 3000, "hit_tokens": {"disk": 2990, "ram": 10},
                  "matched_tokens": 4000, "usable_tokens": 3000}
        said = []
        for words, fields in (
                ("All 5,000 tokens read: nothing that is kept begins like this prompt.",
                 {"reason": "cold", "miss_tokens": {"cold": 5000}}),
                ("All 5,000 tokens read: the same text is kept under another identity: "
                 "\u201ckv_type_k\u201d differs.",
                 {"reason": "identity", "miss_tokens": {"identity": 5000},
                  "identity_field": "kv_type_k"}),
                ("3,000 of 5,000 tokens reused from RAM 10 and disk 2,990, 2,000 read: the match "
                 "ends at token 4,000, and the nearest state kept below it is that of token "
                 "3,000.",
                 {"reason": "checkpoint", "miss_tokens": {"checkpoint": 1000, "new": 1000},
                  "outcome": "partial", "boundary": {"position": 3000, "kind": "user"}, **reused}),
                ("All 5,000 tokens read: the match ends at token 4,000, and no state is kept below "
                 "it.", {"reason": "checkpoint", "miss_tokens": {"checkpoint": 5000},
                         "matched_tokens": 4000}),
                ("All 5,000 tokens read: what the disk tier holds is damaged.",
                 {"reason": "corrupt", "miss_tokens": {"corrupt": 5000}, "failed_tier": "disk",
                  "detail": "a checksum of stage 1 differs"}),
                ("All 5,000 tokens read: what the cache holds is incomplete.",
                 {"reason": "incomplete", "miss_tokens": {"incomplete": 5000}}),
                ("All 5,000 tokens read: what follows token 4,000 was evicted to make room.",
                 {"reason": "evicted", "miss_tokens": {"evicted": 5000}, "matched_tokens": 4000}),
                ("All 5,000 tokens read: the remote tier did not give it in time.",
                 {"reason": "remote", "miss_tokens": {"remote": 5000}, "failed_tier": "remote"}),
                ("All 5,000 tokens read: what is kept is hardly longer than what the slot held.",
                 {"reason": "too_short", "miss_tokens": {"too_short": 5000}}),
                ("All 5,000 tokens read: what follows token 4,000 can't be cached.",
                 {"reason": "unsupported", "miss_tokens": {"unsupported": 5000},
                  "matched_tokens": 4000}),
                ("Nothing was read again: 4,999 of 5,000 tokens reused from disk, 1 read because "
                 "new.", {"outcome": "full", "reused_tokens": 4999, "hit_tokens": {"disk": 4999},
                          "miss_tokens": {"new": 1}})):
            self.server.lookups.insert(0, lookup(**fields))
            said.append(words)
        self.show()
        self.assertEqual(self.element("#last-words").text, said.pop())
        self.element("summary").click()
        self.assertEqual(self.script("return [...document.querySelectorAll('#earlier p')]"
                                     ".map(words => words.textContent)"), said[::-1])
        # The facts of some of them, as the newest.
        every = list(self.server.lookups)
        for facts in (
                {"reason": "corrupt", "read": "5,000 damaged", "failed tier": "disk",
                 "detail": "a checksum of stage 1 differs"},
                {"reason": "checkpoint", "read": "1,000 after the last state kept, 1,000 new",
                 "went on from": "token 3,000, where a message of the user begins"},
                {"reason": "identity", "read": "5,000 kept under another identity",
                 "identity field": "kv_type_k"}):
            oldest = [each for each in every if each["reason"] == facts["reason"]][-1]
            self.server.lookups = [{**oldest, "time": time.time()}, *every]
            self.wait_equal(lambda: {label: text for label, text in self.facts().items()
                                     if label not in ("when", "took")}, facts, "the facts")
        self.assert_quiet()

    def test_what_the_server_refuses(self):
        self.server.conversations = [conversation(1, evict_rank=0)]
        self.server.tiers[0]["state"] = "read_only: 12 MiB free, floor 64"
        self.show()
        self.assertEqual(self.element("[data-tier=ram] .pill").text,
                         "read only: 12 MiB free, floor 64")
        chat = self.ids()[0]
        self.press(chat, "pin")
        self.wait_equal(lambda: self.shown("#said"),
                        f"{chat[:12]} is not pinned: no such path", "the server's words")
        self.server.error = (501, "the conversation cache is off")
        self.wait_equal(lambda: self.shown("#note"),
                        "There is nothing to show: the conversation cache is off.", "the note")
        self.server.error = (500, "out of luck")
        self.wait_equal(lambda: self.shown("#note"), "The server answers 500: out of luck.",
                        "the note")
        self.server.error = (503, "Loading model")
        self.wait_state("loading")
        self.server.error = None
        self.wait_state("live")
        self.assertIsNone(self.shown("#note"))
        self.assert_quiet("404 (Not Found)", "501 (Not Implemented)", "500 (Internal Server Error)",
                          "503 (Service Unavailable)")

    def test_a_hidden_tab_asks_nothing(self):
        self.show("/first")
        self.script("""
            Object.defineProperty(document, 'hidden', {get: () => true});
            document.dispatchEvent(new Event('visibilitychange'));""")
        self.driver.switch_to.new_window("tab")
        self.show("/second")
        before = self.server.count("/first/conversations/lookups")
        self.wait(lambda: self.server.count("/second/conversations/lookups") >= 3, "some time")
        self.assertLessEqual(self.server.count("/first/conversations/lookups"), before)
        self.assert_quiet()

    def test_on_a_narrow_screen_nothing_is_cut_off(self):
        self.server.conversations = [
            conversation(n, name=("a long name ", "x")[n % 2] * 20, pinned=n < 2,
                         tiers=["ram", "disk", "remote"], forked_from=conversation(2)["id"])
            for n in range(3)]
        self.server.lookups = [lookup(reason="cold", miss_tokens={"cold": 5000})]
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True})
        self.show()
        self.assertEqual(self.script("""
            return [...document.querySelectorAll('main *')].map(node =>
                [node.outerHTML, Math.round(node.getBoundingClientRect().right)])
                .filter(([html, right]) => right > 360 && !html.includes('off-screen'));"""), [])
        self.assertEqual(self.script("return document.documentElement.scrollWidth"), 360)
        # Laid out as cards, still a table for those who can't see it.
        roles = [row["role"]["value"] for row in self.driver.execute_cdp_cmd(
            "Accessibility.getFullAXTree", {})["nodes"] if not row["ignored"]]
        for role, least in (("table", 1), ("row", 4), ("rowheader", 3), ("columnheader", 9),
                            ("cell", 27), ("meter", 1), ("status", 1)):
            self.assertGreaterEqual(roles.count(role), least, role)
        self.assert_quiet()


if __name__ == "__main__":
    unittest.main()
