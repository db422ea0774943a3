"""Scenario 20: named sessions that can't be, and the live conversation that they leave alone."""

import os
import unittest

from chat_client import ANSWER_TOKENS, ChatTest
from parkade_process import tokens_of

BAD_NAMES = ("../up", "..", ".", "a/b", "/etc/passwd", "a\\b", "nul\0", "x" * 300, "", "a:b",
             "\x7f")


class SessionsScenariosTest(ChatTest):
    def refused(self, action, name, status, slot=0):
        body = {} if name is None else {"filename": name}
        error = self.server.json("POST", f"/slots/{slot}?action={action}", body, status)["error"]
        self.assertEqual(error["code"], status)
        self.assertTrue(error["type"])
        return error["message"]

    def scenario_20(self, kind):
        self.begin(kind)
        self.refused("save", "empty", 400)
        prompt = tokens_of("system", 100) + self.message("chat", 300)
        first = self.ask(prompt)
        self.server.wait_parked()
        before = self.kept()
        for name in BAD_NAMES:
            for action in ("save", "restore"):
                self.refused(action, name, 400)
        self.assertIn("nobody", self.refused("restore", "nobody", 404))
        self.refused("fly", "name", 400)
        self.refused("save", "name", 400, slot=7)
        self.refused("restore", None, 400)
        status, text = self.server.request("POST", "/slots/zero?action=save", {"filename": "a"})
        self.assertEqual(status, 400, text)
        # A name is no file: a link of that name is neither followed nor written to.
        target = os.path.join(self.folder, "target")
        with open(target, "wb") as file:
            file.write(b"mine")
        name = f"link-{os.getpid()}"
        for folder in (self.disk, os.getcwd()):
            link = os.path.join(folder, name)
            os.symlink(target, link)
            self.addCleanup(os.unlink, link)
        self.assertIn(name, self.refused("restore", name, 404))
        self.assertEqual(self.kept(), before)
        saved = self.server.json("POST", "/slots/0?action=save", {"filename": name})
        self.assertEqual(saved["n_saved"], len(prompt) + ANSWER_TOKENS - 1)
        with open(target, "rb") as file:
            self.assertEqual(file.read(), b"mine")
        # Still in the slot, and it goes on as if nothing had happened.
        longer = prompt + first.tokens + self.message("turn", 30)
        self.assert_reused(self.ask(longer), len(prompt) + ANSWER_TOKENS - 1, "slot")

    def test_scenario_20_dense(self):
        self.scenario_20("dense")

    def test_scenario_20_window(self):
        self.scenario_20("window")

    def test_scenario_20_recurrent(self):
        self.scenario_20("recurrent")

    def test_scenario_20_hybrid(self):
        self.scenario_20("hybrid")


if __name__ == "__main__":
    unittest.main()
