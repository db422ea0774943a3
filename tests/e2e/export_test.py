"""parkade export and import, and the tool on a directory with no server behind it."""

import json
import os
import subprocess
import unittest

from parkade_process import DEADLINE_S, PROGRAM, ServerTest, model, tokens_of
from rpc_devices import SplitTest

TOOL = os.environ.get("PARKADE_PROGRAM", os.path.join(os.path.dirname(PROGRAM), "parkade"))
PROMPT_TOKENS = 500
ANSWER_TOKENS = 64


class Exports:
    """What the tests of both classes do; mixed into a ServerTest."""

    def parkade(self, *arguments, status=0):
        """Runs the tool; returns its stdout, or, when it is to fail, its stderr."""
        done = subprocess.run([TOOL, *arguments], capture_output=True, text=True,
                              timeout=DEADLINE_S, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        if status == 0:
            self.assertEqual(done.stderr, "")
        return done.stdout if status == 0 else done.stderr

    def on_disk(self, *arguments, disk=None):
        """The same on the test's directory, with --json."""
        return json.loads(self.parkade(*arguments, "--disk", disk or self.disk, "--json"))

    def file(self, name="chat.parkade"):
        return os.path.join(self.folder, name)

    def move(self, what):
        """Exports out of the test's directory and imports into a fresh one, which is then used."""
        exported = self.on_disk("export", what, self.file())
        self.assertEqual(os.stat(self.file()).st_mode & 0o777, 0o600)
        self.assertEqual(os.stat(self.file()).st_size, exported["file_bytes"])
        self.disk = os.path.join(self.folder, "other")
        imported = self.on_disk("import", self.file())
        self.assertEqual(imported["tokens"], exported["tokens"])
        self.assertEqual(imported["id"], exported["id"])
        self.parkade("verify", "--disk", self.disk)
        return exported

    def move_a_chat(self, model_path, before, after, *arguments):
        """A chat goes on in another directory, maybe under another split; nothing is read again."""
        prompt, turn = tokens_of("chat", PROMPT_TOKENS), tokens_of("turn", 30)
        plain = self.start_plain(model_path, *before, *arguments)
        first = plain.ask(prompt)
        longer = prompt + first.tokens + turn
        reference = plain.ask(longer)
        plain.kill()
        server = self.start(model_path, *before, *arguments)
        self.assert_same_answer(server.ask(prompt), first)
        held = PROMPT_TOKENS + ANSWER_TOKENS - 1
        chat = server.wait_durable(held)["id"]
        server.kill()
        exported = self.move(chat)
        self.assertEqual(exported["tokens"], held)
        server = self.start(model_path, *after, *arguments)
        answer = server.ask(longer)
        self.assertEqual(answer.cache_n, held)
        self.assert_served(server, "disk", held)
        self.assert_same_answer(answer, reference)
        return exported


class ExportTest(Exports, ServerTest):
    def test_dense(self):
        exported = self.move_a_chat(model("dense"), [], [])
        self.assertEqual(exported["stages"], 1)

    def test_hybrid(self):
        self.move_a_chat(model("hybrid"), [], [])


class SplitExportTest(Exports, SplitTest):
    def test_two_stages_to_one(self):
        exported = self.move_a_chat(model("dense"), self.split(1, 1), [])
        self.assertEqual(exported["stages"], 2)


if __name__ == "__main__":
    unittest.main()
