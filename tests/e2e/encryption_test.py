"""--conversation-cache-key-file: a chat goes on from an encrypted directory, and nobody reads it
there without the key."""

import os
import subprocess
import unittest

from export_test import TOOL
from parkade_process import DEADLINE_S, ServerTest, listing, model, tokens_of

PROMPT_TOKENS = 700


class EncryptionTest(ServerTest):
    def key(self, name, byte):
        path = os.path.join(self.folder, name)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
            file.write(f"{byte:02x}" * 32 + "\n")
        return path

    def parkade(self, *arguments):
        return subprocess.run([TOOL, *arguments], capture_output=True, text=True,
                              timeout=DEADLINE_S, check=False)

    def files_that_show(self, wanted):
        found = []
        for base, _, names in os.walk(self.disk):
            for name in names:
                with open(os.path.join(base, name), "rb") as file:
                    if wanted in file.read():
                        found.append(name)
        return found

    def fill(self, prompt, *arguments):
        """Parks a chat under a name and ends the server. Returns its answer."""
        server = self.start(model("dense"), *arguments)
        answer = server.ask(prompt, id_slot=0)
        server.wait_durable(len(prompt) + len(answer.tokens) - 1)
        saved = server.json("POST", "/slots/0?action=save", {"filename": "nobody reads this"})
        self.assertTrue(saved["durable"])
        server.terminate()
        return answer

    def test_a_chat_goes_on_and_shows_nothing(self):
        key = ("--conversation-cache-key-file", self.key("key", 7))
        prompt = tokens_of("secret", PROMPT_TOKENS)
        # Tokens and state: tests/unit/disk_sealed_test.cc.
        shown = b"nobody reads this"
        self.fill(prompt)
        self.assertTrue(self.files_that_show(shown), "this test looks for the wrong thing")
        plain, self.disk = self.disk, os.path.join(self.folder, "encrypted")
        self.assertTrue(os.path.isdir(plain))
        first = self.fill(prompt, *key)
        self.assertEqual(self.files_that_show(shown), [])

        reference = self.start_plain(model("dense"))
        longer = prompt + first.tokens + tokens_of("turn", 30)
        self.assert_same_answer(reference.ask(prompt), first)
        expected = reference.ask(longer)
        reference.kill()
        server = self.start(model("dense"), *key)
        self.assert_same_answer(server.ask(longer), expected)
        self.assert_served(server, "disk", PROMPT_TOKENS + len(first.tokens) - 1, len(longer))
        server.kill()
        self.assertEqual(self.files_that_show(shown), [])

    def test_another_key_or_none_is_refused_in_one_line(self):
        key, other = self.key("key", 7), self.key("other", 8)
        self.fill(tokens_of("chat", 200), "--conversation-cache-key-file", key)
        before = listing(self.disk)
        for arguments, reason in (((), "give its key file"),
                                  (("--conversation-cache-key-file", other), "holds another one")):
            server = self.launch(model("dense"), "-c", "1024", "--conversation-cache-disk",
                                 self.disk, *arguments)
            self.assertEqual(server.process.wait(DEADLINE_S), 2)
            errors = [line for line in server.log().splitlines() if line.startswith("error:")]
            self.assertEqual(len(errors), 1, server.log())
            self.assertIn(self.disk + " is encrypted with the key ", errors[0])
            self.assertIn(reason, errors[0])
            self.assertEqual(listing(self.disk), before)
        os.chmod(other, 0o644)
        server = self.launch(model("dense"), "-c", "1024", "--conversation-cache-disk", self.disk,
                             "--conversation-cache-key-file", other)
        self.assertEqual(server.process.wait(DEADLINE_S), 2)
        self.assertIn(f"error: key file {other} is open to others; chmod 600", server.log())

    def test_the_tool_takes_the_key(self):
        key = self.key("key", 7)
        self.fill(tokens_of("chat", 200), "--conversation-cache-key-file", key)
        refused = self.parkade("ls", "--disk", self.disk)
        self.assertEqual(refused.returncode, 1, refused.stdout)
        self.assertIn("give its key file", refused.stderr)
        on_disk = ("--disk", self.disk, "--key-file", key)
        listed = self.parkade("ls", *on_disk)
        self.assertEqual(listed.returncode, 0, listed.stderr)
        self.assertIn("nobody reads this", listed.stdout)
        verified = self.parkade("verify", *on_disk)
        self.assertEqual(verified.returncode, 0, verified.stdout + verified.stderr)
        file = os.path.join(self.folder, "chat.parkade")
        exported = self.parkade("export", "nobody reads this", file, *on_disk)
        self.assertEqual(exported.returncode, 0, exported.stderr)
        with open(file, "rb") as container:
            self.assertNotIn(b"nobody reads this", container.read())
        there = os.path.join(self.folder, "there")
        plain = self.parkade("import", file, "--disk", there)
        self.assertEqual(plain.returncode, 1)
        self.assertIn(file + " is encrypted; give its key file", plain.stderr)
        imported = self.parkade("import", file, "--disk", there, "--key-file", key)
        self.assertEqual(imported.returncode, 0, imported.stderr)
        # Out of it again, and to another key.
        moved, other = os.path.join(self.folder, "moved"), self.key("other", 8)
        for arguments in (("--disk", os.path.join(self.folder, "plain")),
                          ("--disk", moved, "--key-file", other)):
            imported = self.parkade("import", file, *arguments, "--file-key", key)
            self.assertEqual(imported.returncode, 0, imported.stderr)
        self.assertIn("nobody reads this", self.parkade("ls", "--disk", moved, "--key-file",
                                                        other).stdout)
        self.disk = there
        server = self.start(model("dense"), "--conversation-cache-key-file", key)
        restored = server.json("POST", "/slots/0?action=restore",
                               {"filename": "nobody reads this"})
        self.assertGreater(restored["n_restored"], 200)


if __name__ == "__main__":
    unittest.main()
