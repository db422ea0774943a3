"""What a server can't work with: one clear line, exit 2, nothing touched."""

import os
import pathlib
import socket
import unittest

from parkade_process import DEADLINE_S, ServerTest, listing, model, tokens_of

DENSE = model("dense")


# The VERSION file as a program of that version would write it, with its checksum.
NEWER_VERSION = "parkade-disk 9999 3832eb69bd70f8da\n"


class BadInputTest(ServerTest):
    def refused(self, *arguments, model_path=DENSE):
        """Starts a server that must not serve; returns its one line."""
        server = self.launch(model_path, "-c", "1024", "-t", "1", *arguments)
        self.assertEqual(server.process.wait(DEADLINE_S), 2, server.log())
        lines = [line for line in server.log().splitlines() if line.startswith("error: ")]
        self.assertEqual(len(lines), 1, server.log())
        self.assertNotIn("listening on", server.log())
        self.assertGreater(len(lines[0]), 20)
        return lines[0]

    def assert_refused(self, expected, *arguments, model_path=DENSE):
        self.assertIn(expected, self.refused(*arguments, model_path=model_path))

    def refused_before_the_load(self, expected, *arguments):
        """llama-server has accepted its own flags, and has not touched the model."""
        self.assertIn(expected, self.refused(*arguments))
        self.assertNotIn("loading model", self.servers[-1].log())

    def refused_before_the_model(self, expected, *arguments):
        """The whole output is that line."""
        server = self.launch(DENSE, *arguments)
        self.assertEqual(server.process.wait(DEADLINE_S), 2, server.log())
        self.assertEqual(len(server.log().splitlines()), 1, server.log())
        self.assertTrue(server.log().startswith("error: "), server.log())
        self.assertIn(expected, server.log())

    # ---- flags ----

    def test_values_out_of_range(self):
        for flag, values in {
                "--conversation-cache-mib": ["-1", "x", "1.5", "", "9999999999999"],
                "--conversation-cache-slots": ["-1", "many"],
                "--conversation-cache-min-free-mib": ["-5", "1g"],
                "--conversation-cache-disk-gib": ["0", "-1", "nan", "1e3", "lots"],
                "--conversation-cache-disk-min-free-mib": ["-1", "0x10"],
                "--conversation-cache-min-tokens": ["-1", "64tokens"],
                "--conversation-cache-codec": ["gzip", "LZ4"],
                "--conversation-cache-disk": ["", "~/tiers"],
                "--cache-ram": ["-2", "all"],
        }.items():
            for value in values:
                with self.subTest(flag=flag, value=value):
                    self.refused_before_the_model(flag, f"{flag}={value}",
                                                  *self.with_disk(flag))
                    self.assertFalse(os.path.exists(self.disk))

    def with_disk(self, flag):
        return [] if flag.endswith("-disk") else ["--conversation-cache-disk", self.disk]

    def test_flag_without_value(self):
        self.refused_before_the_model("needs a value", "--conversation-cache-mib")
        self.refused_before_the_model("needs a value", "--conversation-cache-mib", "--metrics")

    def test_unknown_flag(self):
        self.refused_before_the_model("--conversation-cache-mb: unknown flag",
                                      "--conversation-cache-mb", "100")

    def test_a_disk_tiers_size_without_a_disk_tier(self):
        self.refused_before_the_model("--conversation-cache-disk-gib: there is no disk tier",
                                      "--conversation-cache-disk-gib", "4")
        self.refused_before_the_model(
            "there is no disk tier", *self.config("conversation-cache-disk-min-free-mib = 64\n"))

    def assert_nothing_touched(self, status, *arguments, model_path=DENSE):
        """What llama-server itself refuses, or only prints, makes no directory of ours."""
        server = self.launch(model_path, "--conversation-cache-disk", self.disk, *arguments)
        self.assertEqual(server.process.wait(DEADLINE_S), status, server.log())
        self.assertEqual(sorted(os.listdir(self.folder)),
                         sorted(os.path.basename(s.log_path) for s in self.servers))
        return server.log()

    def test_a_wrong_flag_of_llama_server(self):
        self.assertIn("invalid argument: --no-such-flag",
                      self.assert_nothing_touched(1, "--no-such-flag"))
        self.assertIn("--ctx-size", self.assert_nothing_touched(1, "--ctx-size", "many"))

    def test_a_model_that_is_not_there(self):
        self.assert_nothing_touched(1, model_path=os.path.join(self.folder, "none.gguf"))

    def test_a_port_that_is_taken(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            self.assert_nothing_touched(1, "--port", str(taken.getsockname()[1]))

    def test_help_and_version(self):
        text = self.assert_nothing_touched(0, "--help")
        self.assertIn("--conversation-cache-disk PATH", text)
        self.assertIn("--ctx-size", text)
        self.assert_nothing_touched(0, "--version")

    # ---- the configuration file ----

    def config(self, text):
        path = os.path.join(self.folder, "parkade.conf")
        pathlib.Path(path).write_text(text, encoding="utf-8")
        return ["--conversation-cache-config", path]

    def test_unknown_key(self):
        self.refused_before_the_model("conf:2: unknown key 'conversation-cache-mb'", *self.config(
            f"conversation-cache-disk = {self.disk}\nconversation-cache-mb = 100\n"))
        self.assertFalse(os.path.exists(self.disk))

    def test_wrong_value_in_file(self):
        self.refused_before_the_model("conf:1: conversation-cache-codec: 'zip'",
                                      *self.config("conversation-cache-codec = zip\n"))

    def test_missing_file(self):
        self.refused_before_the_model("can't read", "--conversation-cache-config",
                                      os.path.join(self.folder, "none.conf"))

    def test_the_command_line_wins(self):
        config = self.config(f"conversation-cache-mib = 300\nconversation-cache-disk = {self.disk}"
                             "\nconversation-cache-disk-min-free-mib = 64\n")
        server = self.start(DENSE, *config, disk=False, ram_mib=200)
        self.assertEqual(set(server.tiers()), {"ram", "disk"})
        self.assertLess(server.tiers()["ram"]["budget_bytes"], 200 << 20)

    # ---- directories ----

    def test_a_file_is_no_directory(self):
        pathlib.Path(self.disk).write_text("mine", encoding="utf-8")
        before = listing(self.folder)
        self.refused_before_the_load("is not a directory", "--conversation-cache-disk", self.disk)
        self.assertEqual(pathlib.Path(self.disk).read_text(encoding="utf-8"), "mine")
        self.assertEqual(before["disk"], listing(self.folder)["disk"])

    def test_a_file_above(self):
        pathlib.Path(self.disk).write_text("mine", encoding="utf-8")
        self.refused_before_the_load(self.disk, "--conversation-cache-disk", self.disk + "/tier")

    def test_foreign_files(self):
        os.mkdir(self.disk)
        pathlib.Path(self.disk, "holiday.jpg").write_bytes(b"\xff\xd8")
        before = listing(self.disk)
        self.refused_before_the_load("holiday.jpg", "--conversation-cache-disk", self.disk)
        self.assertEqual(listing(self.disk), before)

    def test_a_symbolic_link(self):
        os.mkdir(os.path.join(self.folder, "real"))
        os.symlink(os.path.join(self.folder, "real"), self.disk)
        self.refused_before_the_load("symbolic link", "--conversation-cache-disk", self.disk)
        self.assertEqual(os.listdir(os.path.join(self.folder, "real")), [])

    def test_not_writable(self):
        # A file system that takes no files, whoever asks.
        self.refused_before_the_load("/proc", "--conversation-cache-disk", "/proc/parkade")

    def test_locked(self):
        first = self.start(DENSE)
        first.ask(tokens_of("chat", 200), 8)
        first.wait_durable(207)
        first.wait_parked()

        def rest():
            # The first one's own database may write at any time.
            return {path: found for path, found in listing(self.disk).items()
                    if not path.startswith("catalogue")}
        before = rest()
        self.refused_before_the_load(f"is in use by another process (pid {first.process.pid})",
                                     "--conversation-cache-disk", self.disk)
        self.assertEqual(rest(), before)
        first.ask(tokens_of("other", 200), 8)
        first.ask(tokens_of("third", 200), 8)
        first.ask(tokens_of("chat", 200), 8)
        self.assertEqual(first.last_lookup()["reused_tokens"], 199)

    def test_newer_format(self):
        server = self.start(DENSE)
        server.ask(tokens_of("chat", 200), 8)
        server.terminate()
        version = pathlib.Path(self.disk, "VERSION")
        version.write_text(NEWER_VERSION, encoding="utf-8")
        before = listing(self.disk)
        self.refused_before_the_load("newer version", "--conversation-cache-disk", self.disk)
        self.assertEqual(listing(self.disk), before)

    # ---- models and modes ----

    def test_flash_attention_off(self):
        os.mkdir(self.disk)
        self.assert_refused("flash attention", "-fa", "off", "--conversation-cache-disk",
                            self.disk)
        self.assert_no_conversation()

    def assert_no_conversation(self):
        segments = [path for path in listing(self.disk) if path.endswith(".seg")]
        self.assertEqual(segments, [])

    def test_flash_attention_off_without_our_flags(self):
        server = self.launch(DENSE, "-c", "2048", "-t", "1", "-fa", "off")
        server.wait_healthy(False)
        self.assertEqual(server.log().count("the conversation cache is off"), 1)
        self.assertIn("flash attention", server.log())
        chat = tokens_of("chat", 200)
        first = server.ask(chat, 16)
        server.ask(tokens_of("other", 200), 16)
        self.assert_same_answer(server.ask(chat, 16), first)
        self.assertEqual(server.metrics().sum_of("parkade_lookup_tokens_total"), 0)

    def test_encoder_mode(self):
        self.assert_refused("embeddings", "--embeddings", "--conversation-cache-mib", "64")

    def test_encoder_mode_without_our_flags(self):
        server = self.launch(DENSE, "-c", "2048", "-t", "1", "--embeddings", "--pooling", "mean")
        server.wait_healthy(False)
        self.assertEqual(server.log().count("the conversation cache is off"), 1)
        answer = server.json("POST", "/v1/embeddings", {"input": "the people said no"})
        self.assertEqual(len(answer["data"]), 1)

    def test_damaged_model_is_no_crash(self):
        path = os.path.join(self.folder, "broken.gguf")
        pathlib.Path(path).write_bytes(pathlib.Path(DENSE).read_bytes()[:100000])
        server = self.launch(path, "-c", "1024", "--conversation-cache-disk", self.disk)
        self.assertNotIn(server.process.wait(DEADLINE_S), (0, -6, -11), server.log())


if __name__ == "__main__":
    unittest.main()
