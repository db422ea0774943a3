"""parkade export and import, and the tool on a directory with no server behind it."""

import json
import os
import subprocess
import unittest

from parkade_process import DEADLINE_S, PROGRAM, ServerTest, listing, model, tokens_of
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

    def test_recurrent(self):
        self.move_a_chat(model("recurrent"), [], [])

    def test_window_full_cache(self):
        self.move_a_chat(model("window"), [], [], "--swa-full")

    def test_window(self):
        """Text may differ by rounding; what is reused may not."""
        prompt = tokens_of("chat", PROMPT_TOKENS)
        server = self.start(model("window"))
        first = server.ask(prompt)
        held = PROMPT_TOKENS + ANSWER_TOKENS - 1
        chat = server.wait_durable(held)["id"]
        server.kill()
        self.move(chat)
        server = self.start(model("window"))
        self.assertEqual(server.ask(prompt + first.tokens + [300, 301]).cache_n, held)
        self.assert_served(server, "disk", held)

    def named_session(self, model_path):
        prompt, turn = tokens_of("chat", PROMPT_TOKENS), tokens_of("turn", 30)
        plain = self.start_plain(model_path, slots=1)
        first = plain.ask(prompt)
        longer = prompt + first.tokens + turn
        reference = plain.ask(longer)
        plain.kill()
        server = self.start(model_path, slots=1)
        server.ask(prompt)
        saved = server.json("POST", "/slots/0?action=save", {"filename": "my chat"})["n_saved"]
        server.ask(prompt + first.tokens + tokens_of("elsewhere", 300))  # stays behind
        server.wait_parked()
        server.kill()
        exported = self.move("my chat")
        self.assertEqual((exported["name"], exported["tokens"]), ("my chat", saved))
        server = self.start(model_path, slots=1)
        session, = server.conversations()
        self.assertEqual((session["name"], session["pinned"], session["tokens"]),
                         ("my chat", True, saved))
        self.assertIsNone(session["forked_from"])
        restored = server.json("POST", "/slots/0?action=restore", {"filename": "my chat"})
        self.assertEqual(restored["n_restored"], saved)
        answer = server.ask(longer)
        self.assertEqual(answer.cache_n, saved)
        self.assert_served(server, "slot", saved)
        self.assert_same_answer(answer, reference)
        # The name stands for the same position as before.
        restored = server.json("POST", "/slots/0?action=restore", {"filename": "my chat"})
        self.assertEqual(restored["n_restored"], saved)

    def test_named_session(self):
        self.named_session(model("dense"))

    def test_named_session_of_a_hybrid(self):
        self.named_session(model("hybrid"))

    def test_fork_alone(self):
        """A fork takes along what lies before it, and nothing of the other branch."""
        common = tokens_of("system prompt", 700)
        branches = [common + tokens_of("first client", 150), common + tokens_of("second", 90)]
        turn = tokens_of("turn", 30)
        plain = self.start_plain(model("dense"))
        answers = [plain.ask(branch) for branch in branches]
        longer = branches[1] + answers[1].tokens + turn
        reference = plain.ask(longer, id_slot=1)
        plain.kill()
        server = self.start(model("dense"))
        for branch, answer in zip(branches, answers):
            self.assert_same_answer(server.ask(branch), answer)
        held = len(branches[1]) + ANSWER_TOKENS - 1
        server.wait_parked()
        fork, = [c for c in server.conversations() if c["forked_from"] is not None]
        self.assertEqual(fork["tokens"], held)
        server.kill()
        exported = self.move(fork["id"])
        self.assertEqual(exported["tokens"], held)
        rows = 2048 * held
        self.assertLess(exported["file_bytes"], rows + 20000)
        server = self.start(model("dense"))
        moved, = server.conversations()
        self.assertEqual((moved["id"], moved["tokens"], moved["forked_from"]),
                         (fork["id"], held, None))
        answer = server.ask(longer)
        self.assertEqual(answer.cache_n, held)
        self.assert_served(server, "disk", held)
        self.assert_same_answer(answer, reference)
        # Of the other branch nothing is known but what both begin with.
        server.kill()
        server = self.start(model("dense"))
        self.assertEqual(server.ask(branches[0], 8).cache_n, len(common))

    # ---- what goes wrong ----

    def park_a_chat(self):
        server = self.start(model("dense"))
        server.ask(tokens_of("chat", PROMPT_TOKENS))
        held = PROMPT_TOKENS + ANSWER_TOKENS - 1
        chat = server.wait_durable(held)["id"]
        return server, chat

    def test_a_server_holds_the_directory(self):
        server, chat = self.park_a_chat()
        for command in (["export", chat, self.file()], ["ls"], ["show", chat], ["stats"],
                        ["rm", chat], ["pin", chat], ["verify"]):
            error = self.parkade(*command, "--disk", self.disk, status=1)
            self.assertEqual(error, f"parkade: {self.disk} is in use by another process "
                                    f"(pid {server.process.pid}); end it, or give another "
                                    "directory\n")
        self.assertFalse(os.path.exists(self.file()))

    def test_damaged_and_cut_off_files(self):
        server, chat = self.park_a_chat()
        server.kill()
        self.on_disk("export", chat, self.file())
        with open(self.file(), "rb") as file:
            sound = file.read()
        other = os.path.join(self.folder, "other")
        middle = len(sound) // 2
        damaged = bytearray(sound)
        damaged[middle] ^= 1
        for content in (bytes(damaged), sound[:middle], sound[:-1], sound + b"x", sound[:40], b""):
            with open(self.file("bad"), "wb") as file:
                file.write(content)
            error = self.parkade("import", self.file("bad"), "--disk", other, status=1)
            self.assertRegex(error, r"^parkade: .*/bad: at byte [0-9]+: .*\n$")
            self.assertFalse(os.path.exists(other))

    def test_there_already_and_no_room(self):
        server, chat = self.park_a_chat()
        server.kill()
        self.on_disk("export", chat, self.file())
        error = self.parkade("export", chat, self.file(), "--disk", self.disk, status=1)
        self.assertEqual(error, f"parkade: {self.file()} is there already; --force replaces it\n")
        self.parkade("export", chat, self.file(), "--disk", self.disk, "--force")
        before = self.on_disk("ls")
        self.assertTrue(self.on_disk("import", self.file())["there_already"])
        self.assertEqual(self.parkade("import", self.file(), "--disk", self.disk),
                         f"{chat} is there already\n")
        self.assertEqual(self.on_disk("ls")["conversations"], before["conversations"])
        other = os.path.join(self.folder, "other")
        error = self.parkade("import", self.file(), "--disk", other, "--disk-min-free-mib",
                             "1000000000", status=1)
        self.assertRegex(error, r"^parkade: .*; nothing was imported\n$")
        self.assertEqual(self.on_disk("ls", disk=other)["conversations"], [])
        self.assertEqual(self.on_disk("import", self.file(), disk=other)["id"], chat)
        self.assertEqual(sorted(os.listdir(self.folder)),
                         ["cache", "chat.parkade", "disk", "other", "server-0.log"])

    # ---- looking into a directory ----

    def test_the_directory_answers_as_the_server_did(self):
        server = self.start(model("hybrid"))
        common = tokens_of("system prompt", 300)
        server.ask(common + tokens_of("one", 100))
        server.ask(common + tokens_of("two", 100))
        server.wait_parked()
        pinned = server.conversations()[0]["id"]
        server.json("POST", f"/conversations/{pinned}/pin", {"pinned": True, "name": "mine"})
        listed = server.conversations()
        shown = {c["id"]: server.conversation(c["id"]) for c in listed}
        server.terminate()  # writes the last uses
        before = listing(os.path.join(self.disk, "segments"))

        def same(ours, theirs):
            """All fields are there, and equal but for the tier that is gone."""
            self.assertEqual(list(ours), list(theirs))
            for key in theirs:
                if key == "parks":
                    for our, their in zip(ours[key], theirs[key], strict=True):
                        same(our, their)
                elif key == "tiers":
                    self.assertEqual(ours[key], ["disk"])
                else:
                    self.assertEqual(ours[key], theirs[key], key)

        ours = self.on_disk("ls", "--by", "id")
        for our, their in zip(ours["conversations"], listed, strict=True):
            same(our, their)
        for chat, their in shown.items():
            same(self.on_disk("show", chat), their)
        tier, = self.on_disk("stats")["tiers"]
        self.assertEqual((tier["tier"], tier["conversations"], tier["budget_bytes"], tier["state"]),
                         ("disk", len(listed), None, "up"))
        self.assertEqual(listing(os.path.join(self.disk, "segments")), before)
        table = self.parkade("ls", "--disk", self.disk)
        self.assertEqual(len(table.splitlines()), len(listed) + 1)
        self.assertIn("mine", table)
        self.assertIn("LAYERS", self.parkade("show", pinned, "--disk", self.disk))
        self.assertIn("no conversation 00000000000000000000000000000001",
                      self.parkade("show", "0" * 31 + "1", "--disk", self.disk, status=1))

    def change(self, *where):
        """pin, unpin and rm, at a server or in a directory."""
        server = self.start(model("dense"))
        server.ask(tokens_of("one", 300))
        server.ask(tokens_of("two", 400))
        server.wait_parked()
        one, two = [c["id"] for c in sorted(server.conversations(), key=lambda c: c["tokens"])]
        place = where
        if not where:
            place = ("--url", f"http://127.0.0.1:{server.port}")
        else:
            server.terminate()
        self.assertEqual(self.parkade("pin", one, *place), f"{one} is pinned\n")
        self.assertEqual(self.parkade("pin", two, *place), f"{two} is pinned\n")
        self.assertEqual(self.parkade("unpin", two, *place), f"{two} is not pinned\n")
        listed = json.loads(self.parkade("ls", *place, "--json"))["conversations"]
        self.assertEqual({c["id"]: c["pinned"] for c in listed}, {one: True, two: False})
        nobody = "0" * 31 + "1"
        error = self.parkade("rm", nobody, two, *place, status=1)
        self.assertRegex(error, f"^parkade: {nobody}: .*no such conversation\n$")
        if where:
            server = self.start(model("dense"))
            self.assertEqual(server.ask(tokens_of("one", 300), 8).cache_n, 299)
            self.assertEqual(server.ask(tokens_of("two", 400), 1).cache_n, 0)
        pinned = [c["id"] for c in server.conversations() if c["pinned"]]
        self.assertEqual(pinned, [one])
        self.assertNotIn(two, [c["id"] for c in server.conversations()])

    def test_change_in_a_directory(self):
        self.change("--disk", self.disk)

    def test_change_at_a_server(self):
        self.change()

    def test_no_such_directory(self):
        missing = os.path.join(self.folder, "missing")
        for command in (["ls"], ["stats"], ["export", "x", self.file()]):
            self.assertEqual(self.parkade(*command, "--disk", missing, status=1),
                             f"parkade: {missing} does not exist\n")
        self.assertEqual(os.listdir(self.folder), [])
        os.mkdir(missing)
        self.assertEqual(self.parkade("ls", "--disk", missing, status=1),
                         f"parkade: {missing} holds no disk tier\n")
        self.assertEqual(os.listdir(missing), [])


class SplitExportTest(Exports, SplitTest):
    def test_two_stages_to_one(self):
        exported = self.move_a_chat(model("dense"), self.split(1, 1), [])
        self.assertEqual(exported["stages"], 2)

    def test_one_to_two_stages(self):
        self.move_a_chat(model("hybrid"), [], self.split(1, 1))


if __name__ == "__main__":
    unittest.main()
