"""GET /conversations/ui in a real browser, on a real server: what it shows is what the API says."""

import base64
import hashlib
import os
import re
import unittest

from browser import BrowserTest
from parkade_process import ROOT, ServerTest, model, tokens_of

DENSE = model("dense")
HOSTILE = """<img src=x onerror="document.title='run'">&amp;"""
PAGE = os.path.join(ROOT, "src/server/conversations_ui.html")


def count(number):
    return f"{number:,.0f}"


def size(number):
    """As the page and the command line tool write it."""
    units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    unit = 0
    while number >= 1023.95 and unit < 5:
        number, unit = number / 1024, unit + 1
    return f"{number:.1f} {units[unit]}" if unit else f"{number} B"


def row_of(conversation):
    """What the page has to show of it, but for its age."""
    pinned = conversation["pinned"]
    rank = conversation["evict_rank"]
    return {"id": conversation["id"], "name": conversation["name"] or "", "pinned": pinned,
            "next": rank == 0 and not pinned, "tokens": count(conversation["tokens"]),
            "durable_tokens": count(conversation["durable_tokens"]),
            "bytes": size(conversation["bytes"]),
            "tiers": "".join({"ram": "RAM"}.get(t, t) for t in conversation["tiers"]),
            "stages": count(conversation["stages"]), "hits": count(conversation["hits"]),
            "evict_rank": "stays" if pinned else count(rank)}


# Of one tier: its bar's share in percent, what a screen reader is told, its state and its facts.
BAR = """
const card = document.querySelector(`[data-tier=${arguments[0]}]`);
const bar = card.querySelector('.bar');
const width = node => node.getBoundingClientRect().width;
const facts = [...card.querySelectorAll('dd')].map(fact => [fact.dataset.fact, fact.textContent]);
return [Math.round(100 * width(bar.firstChild) / width(bar)), bar.getAttribute('aria-valuenow'),
        bar.getAttribute('aria-valuemax'), card.querySelector('.pill').textContent,
        Object.fromEntries(facts.filter(([label]) => label !== 'free there'))];"""


class PageHeadersTest(ServerTest):
    """What needs no browser."""

    def fetch(self, server, path, method="GET"):
        connection = server.connection()
        try:
            connection.request(method, path)
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def test_file_and_policy(self):
        server = self.start(DENSE)
        status, headers, body = self.fetch(server, "/conversations/ui")
        with open(PAGE, "rb") as file:
            self.assertEqual((status, body), (200, file.read()))
        self.assertEqual(headers["Content-Type"], "text/html; charset=utf-8")
        self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
        self.assertEqual(headers["Cache-Control"], "no-store")
        digests = {}
        for tag in ("script", "style"):
            found = re.findall(rf"<{tag}>(.*?)</{tag}>".encode(), body, re.DOTALL)
            self.assertEqual(len(found), 1, tag)
            digest = base64.b64encode(hashlib.sha256(found[0]).digest()).decode()
            digests[tag] = f"'sha256-{digest}'"
        self.assertEqual(headers["Content-Security-Policy"], "; ".join((
            "default-src 'none'", f"script-src {digests['script']}",
            f"style-src {digests['style']}", "img-src data:", "connect-src 'self'",
            "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
            "require-trusted-types-for 'script'", "trusted-types 'none'")))
        # It asks nobody else, and the answers that it shows are stored nowhere.
        self.assertEqual(re.findall(rb"(?:src|href)=.(?!data:|#|x )[^ >]*", body), [])
        for path in ("/conversations", "/conversations/lookups"):
            self.assertEqual(self.fetch(server, path)[1]["Cache-Control"], "no-store")

    def test_only_the_page_needs_no_key(self):
        server = self.start(DENSE, "--api-key", "secret")
        for path in ("/conversations/ui", "/conversations/ui?a=b"):
            self.assertEqual(self.fetch(server, path)[0], 200, path)
        self.assertEqual(self.fetch(server, "/conversations/ui", "HEAD")[0], 200)
        chat = "0123456789abcdef" * 2
        for method, path in (
                ("GET", "/conversations"), ("GET", "/conversations/"),
                ("GET", "/conversations/lookups"), ("GET", f"/conversations/{chat}"),
                ("DELETE", f"/conversations/{chat}"), ("POST", f"/conversations/{chat}/pin"),
                ("POST", "/conversations/budgets"), ("GET", "/conversations/ui/"),
                ("GET", "/conversations/ui/x"), ("GET", "/conversations/uix"),
                ("GET", "/conversations/ui/../lookups"), ("GET", "/x/conversations/ui"),
                ("POST", "/conversations/ui"), ("DELETE", "/conversations/ui"),
                ("POST", "/conversations/ui/pin"), ("GET", "/metrics"), ("GET", "/slots")):
            self.assertEqual(self.fetch(server, path, method)[0], 401, f"{method} {path}")
        server.api_key = "secret"

    def test_prefix(self):
        server = self.start(DENSE, "--api-key", "secret")
        server.api_key = "secret"
        prefixed = self.launch(DENSE, "-c", "512", "--api-key", "secret", "--api-prefix", "/llm")
        prefixed.wait_for_line("listening on http://")
        prefixed.port = int(re.search(r"listening on http://[^ ]*:(\d+)", prefixed.log())[1])
        self.assertEqual(self.fetch(prefixed, "/llm/conversations/ui")[0], 200)
        self.assertEqual(self.fetch(prefixed, "/conversations/ui")[0], 401)
        prefixed.kill()


class PageTest(BrowserTest):
    def some_chats(self, **options):
        """Three chats and a branch of the first; one more prompt hits."""
        server = self.start(DENSE, **options)
        chat = tokens_of("first", 900)
        chat += server.ask(chat, 8).tokens
        for prompt in (tokens_of("second", 300), chat[:600] + tokens_of("branch", 200),
                       tokens_of("third", 100)):
            server.ask(prompt, 8)
        server.wait_parked()
        server.ask(chat + tokens_of("turn", 20), 4)
        server.wait_parked()
        server.wait_durable(900)
        return server

    def show(self, server):
        self.open(server.port)
        self.wait_state("live")
        self.wait_rows(server)

    def wait_rows(self, server):
        """Until the table says of every conversation what the API says."""
        expected = [row_of(c) for c in sorted(server.conversations(), key=lambda c: c["id"])]
        self.assertGreater(len(expected), 0)

        def rows():
            found = sorted(self.rows(), key=lambda row: row["id"])
            return [{key: row[key] for key in expected[0]} for row in found]
        self.wait_equal(rows, expected, "the rows")

    def assert_bars(self, server):
        """Bars, and the numbers beside them, for every tier."""
        tiers = server.tiers()
        metrics = server.metrics()
        self.assertEqual(set(tiers), {"ram", "disk"})
        for name, tier in tiers.items():
            used, budget = tier["used_bytes"], tier["budget_bytes"]
            self.assertEqual(tier["state"], "up")
            self.assertGreater(used / budget, 0.01, "nothing would be seen")
            facts = {"used": size(used), "budget": size(budget),
                     "pinned": size(int(metrics.get_one("parkade_pinned_bytes", tier=name))),
                     "conversations": count(tier["conversations"])}
            if tier["physical_bytes"]:
                facts["on the medium"] = size(tier["physical_bytes"])
            self.wait_equal(lambda: self.script(BAR, name),
                            [round(100 * used / budget), str(used), str(budget), "ready", facts],
                            f"the bar of {name}")

    def test_shows_what_the_api_says(self):
        server = self.some_chats(ram_mib=512)
        server.json("POST", "/conversations/budgets", {"ram_mib": 200, "disk_gib": 0.1})
        first = max(server.conversations(), key=lambda c: c["tokens"])
        server.json("POST", f"/conversations/{first['id']}/pin", {"pinned": True, "name": "a chat"})
        self.show(server)
        self.assert_bars(server)
        branch = [row for row in self.rows() if row["branch"]]
        self.assertEqual([row["branch"] for row in branch], ["branch of a chat"])
        goes_next = [c["id"] for c in server.conversations() if c["evict_rank"] == 0]
        self.assertEqual([self.element("#next").text], [goes_next[0][:12]])
        # What was saved, and where it came from.
        metrics = server.metrics()
        all_tokens = metrics.sum_of("parkade_lookup_tokens_total")
        hits = {tier: metrics.get_one("parkade_hit_tokens_total", tier=tier)
                for tier in ("ram", "disk", "slot")}
        self.assertGreater(hits["ram"], 800)
        self.assertEqual(self.element("#saved-tokens").text,
                         f"{count(hits['ram'] + hits['disk'])} tokens")
        for tier, words in (("ram", "from RAM"), ("disk", "from disk"), ("slot", "from slot")):
            text = self.script("return document.querySelector(`#saved-legend [data-part=${"
                               "arguments[0]}]`).textContent", tier)
            self.assertTrue(text.startswith(f"{words}: {count(hits[tier])} ("), text)
        width = self.script("""
            const [all, ram] = ['#saved-stack', '#saved-stack .ram'].map(selector =>
                document.querySelector(selector).getBoundingClientRect().width);
            return ram / all;""")
        self.assertAlmostEqual(width, hits["ram"] / all_tokens, delta=0.02)
        # And what comes is seen without anybody's doing.
        server.ask(tokens_of("fourth", 150), 8)
        server.wait_parked()
        self.assertEqual(len(server.conversations()), 5)
        self.wait_rows(server)
        self.assert_quiet()

    def test_sorting_lasts(self):
        server = self.some_chats()
        self.show(server)
        chats = {c["id"]: c for c in server.conversations()}

        def by(key, reverse):
            return sorted(chats, key=lambda chat: chats[chat][key], reverse=reverse)
        self.assertEqual(self.ids(), by("last_used", True))
        self.sort_by("tokens")
        self.assertEqual(self.ids(), by("tokens", True))
        self.sort_by("tokens")
        self.assertEqual(self.ids(), by("tokens", False))
        self.assertEqual(self.element("[data-key=tokens]").get_attribute("aria-sort"), "ascending")
        self.assertIsNone(self.element("[data-key=last_used]").get_attribute("aria-sort"))
        self.sort_by("evict_rank")
        self.assertEqual(self.ids(), by("evict_rank", False))
        # By keyboard, and then the list changes: order, focus and the nodes themselves stay.
        self.sort_by("bytes")
        last = self.ids()[-1]
        self.script("""
            const row = document.querySelector(`tr[data-id='${arguments[0]}']`);
            row.querySelector('.pin').focus();
            row.here = true;""", last)
        server.ask(tokens_of("the largest", 1500), 8)
        server.wait_parked()
        self.wait_rows(server)
        chats = {c["id"]: c for c in server.conversations()}
        self.assertEqual(self.ids(), by("bytes", True))
        self.assertEqual(self.script("""
            const row = document.activeElement.closest('tr');
            return [row.dataset.id, row.here, document.activeElement.className];"""),
                         [last, True, "pin"])
        # Filter by what somebody typed.
        self.element("#filter").send_keys(last[:10])
        self.wait_equal(self.ids, [last], "the one row")
        self.assert_quiet()

    def test_pin_and_forget(self):
        server = self.some_chats()
        self.show(server)
        chat, other = [c["id"] for c in server.conversations() if c["forked_from"] is None][:2]
        self.press(chat, "pin")
        self.wait(lambda: server.conversation(chat)["pinned"], "the pin")
        self.wait_rows(server)
        self.assertEqual(self.shown("#said"), f"{chat[:12]} is pinned: it is not evicted.")
        self.press(chat, "pin")
        self.wait(lambda: not server.conversation(chat)["pinned"], "no pin")
        self.wait_rows(server)
        # Forget asks, and takes no for an answer.
        self.press(other, "forget")
        self.wait(lambda: self.shown("#forget-title"), "the question")
        self.assertIn(other[:12], self.shown("#forget-title"))
        self.assertIn(f"{count(server.conversation(other)['tokens'])} tokens",
                      self.shown("#forget-words"))
        self.assertEqual(self.script("return document.activeElement.id"), "forget-no")
        self.element("#forget-no").click()
        self.wait(lambda: self.shown("#forget-title") is None, "no question")
        self.assertEqual(len(server.conversations()), 4)
        self.press(other, "forget")
        self.element("#forget-yes").click()
        self.wait(lambda: other not in self.ids(), "one row fewer")
        server.json("GET", f"/conversations/{other}", status=404)
        self.assertEqual(len(server.conversations()), 3)
        self.wait_rows(server)
        # Focus has gone on to a neighbour, not to the top of the page.
        self.assertEqual(self.script("return document.activeElement.classList.contains('forget')"),
                         True)
        self.assert_quiet()

    def test_a_hostile_name_is_text(self):
        server = self.some_chats()
        chat = server.conversations()[0]["id"]
        server.json("POST", f"/conversations/{chat}/pin", {"pinned": False, "name": HOSTILE})
        self.show(server)
        self.assertEqual([row["name"] for row in self.rows() if row["id"] == chat], [HOSTILE])
        self.press(chat, "forget")
        self.wait(lambda: self.shown("#forget-title"), "the question")
        self.assertEqual(self.shown("#forget-title"), f"Forget \u201c{HOSTILE}\u201d?")
        self.element("#forget-no").click()
        self.assertEqual(self.script("return document.querySelectorAll('img, iframe').length"), 0)
        self.assert_quiet()
        # The browser itself would refuse text as markup, or any other script.
        self.assertIn("TrustedHTML", self.script("""
            try { document.body.innerHTML = '<b>'; } catch (error) { return error.message; }"""))
        self.assertEqual(self.driver.title, "Parkade")

    def test_says_why(self):
        server = self.start(DENSE, context=16384)
        head = "the way he said it " * 20
        body = "the people made water and the oil " * 300
        for stamp in ("12:34:51", "12:34:57"):
            server.ask(f"{head}It is {stamp} now.\n{body}", 1)
            server.wait_parked()
        lookup = server.last_lookup()
        self.assertEqual((lookup["reason"], lookup["changed"]), ("diverged", "time"))
        at = count(lookup["first_difference"])
        self.show(server)
        read = sum(lookup["miss_tokens"].values())
        words = self.element("#last-words").text
        self.assertTrue(words.endswith(
            f", {count(read)} read: the prompt differs from what is kept at token {at} (a clock "
            "time that changes in every request)."), words)
        facts = self.facts()
        self.assertEqual(facts["reason"], "diverged")
        self.assertEqual(facts["differs at"], f"token {at}")
        self.assertEqual(facts["what changes"], "a clock time that changes in every request")
        self.assertIn(f"{count(lookup['boundary']['position'])}, ", facts["went on from"])
        self.element("summary").click()
        self.assertIn("nothing that is kept begins like this prompt",
                      self.shown("#earlier li p"))
        server.ask(tokens_of("other", 500), 1, cache_prompt=False)
        self.wait_equal(lambda: self.element("#last-words").text,
                        "All 500 tokens read: the request asked for no cache, or the weights were "
                        "not known yet.", "the last prompt")
        self.assert_quiet()

    def test_server_ends_and_comes_back(self):
        server = self.some_chats()
        self.show(server)
        before = self.rows()
        server.kill()
        self.wait_state("no answer")
        self.assertRegex(self.shown("#note"), r"^The server has not answered since .* This page "
                                              r"goes on by itself when it does\.$")
        self.assertEqual(self.ids(), [row["id"] for row in before])
        self.press(before[0]["id"], "pin")
        self.wait_equal(lambda: self.shown("#said"),
                        f"{before[0]['id'][:12]} is not pinned: the server does not answer",
                        "what became of it")
        server = self.start(DENSE, "--port", str(server.port))
        self.wait_state("live")
        self.assertIsNone(self.shown("#note"))
        self.wait_rows(server)
        self.wait_equal(lambda: self.element("#saved-tokens").text, "0 tokens", "new counters")
        self.assert_quiet("net::ERR_", "503 (Service Unavailable)")

    def test_key(self):
        server = self.start(DENSE, "--api-key", "secret")
        server.api_key = "secret"
        server.ask(tokens_of("chat", 200), 8)
        server.wait_parked()
        self.open(server.port)
        self.wait_state("needs a key")
        self.assertEqual(self.rows(), [])
        self.assertIsNone(self.shown("#data"))
        self.assertEqual(self.script("return document.activeElement.id"), "key")
        self.element("#key").send_keys("wrong\n")
        self.wait(lambda: "does not accept this key" in self.shown("#key-why"), "a refusal")
        self.element("#key").send_keys("secret\n")
        self.wait_state("live")
        self.wait_rows(server)
        self.assertIsNone(self.shown("#key"))
        chat = self.ids()[0]
        self.press(chat, "pin")
        self.wait(lambda: server.conversation(chat)["pinned"], "the pin")
        # For this tab only, and nowhere in the address.
        self.driver.refresh()
        self.wait_state("live")
        self.wait_rows(server)
        self.assertNotIn("secret", self.driver.current_url)
        self.assertEqual(self.script("return Object.keys(localStorage).length"), 0)
        self.assertEqual(self.driver.get_cookies(), [])
        self.driver.switch_to.new_window("tab")
        self.open(server.port)
        self.wait_state("needs a key")
        self.assert_quiet("401 (Unauthorized)")


if __name__ == "__main__":
    unittest.main()
