"""Router mode: one server a model, each with our options and a folder of its own."""

import os
import re
import shutil
import signal
import stat
import subprocess
import unittest

from parkade_process import (DEADLINE_S, PROGRAM, Server, ServerTest, model, tokens_of,
                             wait_until)

PROMPT_TOKENS = 400
ANSWER_TOKENS = 32
RAM_MIB = 300


class Router(Server):
    """Asks through the router; what a model's server says of itself is asked there."""

    def __init__(self, folder, models, arguments):
        super().__init__(folder, None, ["--models-dir", models, "-c", "4096", "-np", "2", "-t",
                                        "1", "-tb", "1", *arguments])
        self.models = {}

    def ask_model(self, name, prompt, n_predict=ANSWER_TOKENS):
        answer = self.ask(prompt, n_predict, model=name)
        if name not in self.models:
            self.models[name] = ModelServer(self, name)
        return answer

    def children(self):
        """Process ids of the models' servers."""
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{entry}/stat", encoding="utf-8") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == self.process.pid:
                found.append(int(entry))
        return found

    def kill_all(self):
        children = self.children()
        self.process.send_signal(signal.SIGSTOP)  # or it would see its children end
        for child in children:
            os.kill(child, signal.SIGKILL)
        self.kill()
        wait_until(lambda: not any(os.path.exists(f"/proc/{child}") for child in children),
                   "the end of the models' servers")

    def check_identity(self):
        for server in self.models.values():
            server.check_identity()


class ModelServer(Server):
    """The server that the router has started for a model."""

    def __init__(self, router, name):  # pylint: disable=super-init-not-called
        self.router = router
        spawned = re.findall(rf"spawning server instance with name={name} on port (\d+)",
                             router.log())
        self.port = int(spawned[-1])

    def log(self):
        return self.router.log()

    def running(self):
        return self.router.running()


class RouterTest(ServerTest):
    def setUp(self):
        super().setUp()
        self.models = os.path.join(self.folder, "models")
        os.mkdir(self.models)

    def add_model(self, kind, name=None):
        shutil.copy(model(kind), os.path.join(self.models, (name or kind) + ".gguf"))

    def start_router(self, *arguments):
        router = Router(self.folder, self.models, [
            "--conversation-cache-mib", str(RAM_MIB), "--conversation-cache-min-free-mib", "64",
            "--conversation-cache-disk", self.disk, "--conversation-cache-disk-min-free-mib",
            "64", *arguments])
        self.servers.append(router)
        router.wait_healthy(False)
        return router

    def options_files(self):
        folder = os.path.join(self.folder, "cache", "parkade")
        return [os.path.join(folder, name) for name in os.listdir(folder)
                if name.startswith("router-")]

    @staticmethod
    def ask_when_known(router, name, prompt):
        """The first answer comes from a server that may not know its weights yet."""
        # Not by a line of its log: of those, a router loses some.
        def known():
            router.ask_model(name, [1, 2, 3], 1)
            return "disabled" not in router.models[name].last_lookup()["miss_tokens"]
        wait_until(known, f"the weights of {name}")
        return router.ask_model(name, prompt), router.models[name]

    def test_two_models_survive_a_crash(self):
        for kind in ("dense", "hybrid"):
            self.add_model(kind)
        router = self.start_router()
        self.assertFalse(os.path.exists(self.disk))  # the router opens no tier
        prompt = tokens_of("chat", PROMPT_TOKENS)
        longer = {}
        for kind in ("dense", "hybrid"):
            answer, server = self.ask_when_known(router, kind, prompt)
            # The same tokens: what the other model has of them is not its own.
            self.assertEqual(answer.cache_n, 0)
            self.assertEqual(server.last_lookup()["outcome"], "miss")
            self.assertEqual(set(server.tiers()), {"ram", "disk"})
            self.assertLessEqual(server.tiers()["ram"]["budget_bytes"], RAM_MIB << 20)
            server.wait_durable(PROMPT_TOKENS + ANSWER_TOKENS - 1)
            server.wait_parked()
            longer[kind] = prompt + answer.tokens + tokens_of("turn", 20)
        self.assertNotEqual(longer["dense"], longer["hybrid"])
        router.kill_all()

        folders = os.listdir(self.disk)
        self.assertEqual(len(folders), 2)
        for folder in folders:
            self.assertRegex(folder, "^[0-9a-f]{32}$")
            self.assertEqual(os.stat(os.path.join(self.disk, folder)).st_mode & 0o777, 0o700)
            self.check_folder(os.path.join(self.disk, folder))

        router = self.start_router()
        for kind in ("hybrid", "dense"):
            answer, server = self.ask_when_known(router, kind, longer[kind])
            held = PROMPT_TOKENS + ANSWER_TOKENS - 1
            self.assert_served(server, "disk", held, len(longer[kind]))
            self.assertEqual(answer.cache_n, server.last_lookup()["reused_tokens"])
            self.assertEqual(len(server.conversations()), 1)
        self.assertEqual(sorted(os.listdir(self.disk)), sorted(folders))

    @staticmethod
    def check_folder(folder):
        program = os.path.join(os.path.dirname(PROGRAM), "parkade")
        run = subprocess.run([program, "verify", "--disk", folder], capture_output=True,
                             text=True, timeout=DEADLINE_S, check=False)
        if run.returncode != 0:
            raise AssertionError(f"{run.returncode}: {run.stdout}{run.stderr}")

    def test_options_are_private_and_go_with_the_router(self):
        self.add_model("dense")
        router = self.start_router()
        files = self.options_files()
        self.assertEqual(len(files), 1)
        self.assertEqual(stat.S_IMODE(os.stat(files[0]).st_mode), 0o600)
        self.assertIn("answers this", router.json("GET", "/conversations", status=501)["error"]
                      ["message"])
        router.ask_model("dense", [1, 2, 3], 1)
        child = router.children()
        self.assertEqual(len(child), 1)
        with open(f"/proc/{child[0]}/environ", encoding="utf-8", errors="replace") as file:
            self.assertIn(f"PARKADE_OPTIONS_FILE={files[0]}", file.read().split("\0"))
        router.terminate(check=False)
        self.assertEqual(router.process.returncode, 0)
        self.assertEqual(self.options_files(), [])

    def test_the_same_weights_under_two_names(self):
        """One of them has the folder; the other one answers all the same."""
        self.add_model("dense", "one")
        self.add_model("dense", "two")
        router = self.start_router()
        prompt = tokens_of("chat", PROMPT_TOKENS)
        first, one = self.ask_when_known(router, "one", prompt)
        second, two = self.ask_when_known(router, "two", prompt)
        self.assert_same_answer(second, first)
        self.assertEqual(set(one.tiers()), {"ram", "disk"})
        self.assertEqual(set(two.tiers()), {"ram"})
        self.assertEqual(len(os.listdir(self.disk)), 1)

    def test_a_model_that_cannot_be_kept_is_served(self):
        """The flags are for all models of the router: an encoder among them is no mistake."""
        self.add_model("dense")
        router = self.start_router("--embeddings", "--pooling", "mean")
        answer = router.json("POST", "/v1/embeddings",
                             {"input": "the people said no", "model": "dense"})
        self.assertEqual(len(answer["data"]), 1)

    def refused(self, expected, *arguments):
        run = subprocess.run([PROGRAM, "--models-dir", self.models, "--host", "127.0.0.1",
                              "--port", "0", *arguments], stdin=subprocess.DEVNULL,
                             capture_output=True, text=True, timeout=DEADLINE_S, check=False,
                             env={**os.environ, "XDG_CACHE_HOME": self.folder})
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertEqual(run.stderr.count("error: "), 1, run.stderr)
        self.assertIn(expected, run.stderr)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "parkade")))

    def test_a_directory_of_one_server_is_refused(self):
        self.start(model("dense")).terminate()
        before = sorted(os.listdir(self.disk))
        self.refused("is not of a router", "--conversation-cache-disk", self.disk)
        self.assertEqual(sorted(os.listdir(self.disk)), before)


if __name__ == "__main__":
    unittest.main()
