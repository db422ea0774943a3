"""Every edit made to llama-server is live, seen from outside or in the server's last line."""

import http.client
import json
import os
import re
import threading
import unittest

from parkade_process import ROOT, ServerTest, model, tokens_of

DENSE = model("dense")
# Small batches, so that a prompt takes many of them.
SLOWLY = ("-b", "64", "-ub", "64")
LONG_TOKENS = 8000


class HooksTest(ServerTest):
    def calls(self, server):
        """Ends the server; returns how often each hook ran."""
        server.terminate()
        line = re.search(r"stopped: hooks took .*; calls: (.*)", server.log())
        self.assertIsNotNone(line, "the server's last line")
        return {name: int(count) for name, count in
                (part.split(" ") for part in line[1].split(", "))}

    def three_requests(self):
        server = self.start(DENSE)
        for name in ("first", "second", "first"):
            server.ask(tokens_of(name, 200), 8)
        return server

    def events(self, response):
        """What a stream sends."""
        while True:
            line = response.readline()
            if not line:
                return
            if line.startswith(b"data: {"):
                yield json.loads(line[6:])

    def read_until(self, server, processed):
        """Begins a long prompt and waits until `processed` tokens of it are read."""
        prompt = tokens_of("long", LONG_TOKENS)
        connection = server.begin_stream(prompt, 16, return_progress=True)
        response = connection.getresponse()
        for event in self.events(response):
            progress = event.get("prompt_progress")
            self.assertIsNotNone(progress, "the prompt was read before anybody looked")
            if progress["processed"] >= processed:
                return prompt, connection, response
        self.fail("the stream ended")
        return None

    def test_every_hook_has_its_test(self):
        with open(os.path.join(ROOT, "src/engine/llama/anchors.json"), encoding="utf-8") as file:
            hooks = {anchor["hook"] for anchor in json.load(file)}
        hooks = {hook for hook in hooks if not hook.endswith("include")}
        tests = {name[len("test_hook_"):] for name in dir(self) if name.startswith("test_hook_")}
        self.assertEqual(hooks, tests)

    def test_hook_loaded(self):
        server = self.start(DENSE)
        self.assertIn("conversations are kept: llama_kv_cache, stages: 4 layers on CPU, 2048 bytes",
                      server.log())
        server.ask(tokens_of("chat", 200), 8)
        server.wait_parked()
        conversation = server.conversations()[0]
        self.assertEqual(conversation["stages"], 1)
        self.assertEqual(server.conversation(conversation["id"])["stage_map"],
                         [{"device": "CPU", "layers": [0, 1, 2, 3]}])
        self.assertEqual(self.calls(server)["loaded"], 1)

    def test_hook_gate(self):
        """Runs for every completion, also for those that wait for a slot; for nothing else."""
        server = self.start(DENSE, slots=1)
        connections = [server.begin_stream(tokens_of(f"chat {i}", 200), 64) for i in range(3)]
        for connection in connections:
            connection.getresponse().read()
            connection.close()
        server.metrics()
        server.tokenize("the people")
        self.assertGreaterEqual(self.calls(server)["gate"], 3)

    def test_hook_launched(self):
        server = self.three_requests()
        self.assertEqual(server.log().count("parkade: lookup: "), 3)
        self.assertEqual(self.calls(server)["launched"], 3)

    def test_hook_restoring(self):
        server = self.start(DENSE)
        server.ask(tokens_of("chat", 200), 8)
        server.wait_parked()
        self.assertNotIn("restoring", self.calls(server))
        server = self.start(DENSE)
        server.ask(tokens_of("chat", 200), 8)
        self.assert_served(server, "disk", 199)
        self.assertGreater(server.last_lookup()["restored_bytes"], 0)
        self.assertGreaterEqual(self.calls(server)["restoring"], 1)

    def test_hook_reused(self):
        server = self.three_requests()
        metrics = server.metrics()
        self.assertEqual(metrics.get_one("parkade_lookup_tokens_total"), 600)
        self.assertEqual(metrics.sum_of("parkade_hit_tokens_total"), 199)
        self.assertEqual(metrics.sum_of("parkade_lookups_total"), 3)
        self.assertEqual(self.calls(server)["reused"], 3)

    def test_hook_cut(self):
        """A batch ends where state is worth keeping, though it had room for more."""
        server = self.start(model("recurrent"), "-b", "4096", "-ub", "4096", "--ctx-checkpoints",
                            "0", slots=1)
        server.ask(tokens_of("chat", 1500), 8)
        server.wait_parked()
        conversation = server.conversation(server.conversations()[0]["id"])
        self.assertEqual(conversation["checkpoints"], [512, 1024, 1496, 1500, 1507])

    def test_hook_decoded(self):
        """A long prompt is parked while it is read."""
        server = self.start(DENSE, *SLOWLY, context=32768)
        prompt, connection, _ = self.read_until(server, 3500)
        parked = server.wait_durable(2048)
        # Seen before anything was released.
        self.assertNotIn("stop processing", server.log())
        self.assertLess(parked["tokens"], len(prompt))
        connection.close()
        self.assertGreater(self.calls(server)["decoded"], 3500 // 64)

    def test_hook_released(self):
        server = self.three_requests()
        server.wait_parked()
        self.assertEqual(sorted(c["tokens"] for c in server.conversations()), [207, 207])
        self.assertEqual(self.calls(server)["released"], 3)

    def test_hook_idle(self):
        server = self.three_requests()
        self.assertGreaterEqual(self.calls(server)["idle"], 1)

    def test_hook_metrics(self):
        server = self.three_requests()
        status, text = server.request("GET", "/metrics")
        self.assertEqual(status, 200)
        self.assertIn("\nllamacpp:prompt_tokens_total ", "\n" + text)
        self.assertIn("\nparkade_lookup_tokens_total 600", "\n" + text)
        # One exposition: every family is described once.
        described = re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)
        self.assertEqual(len(described), len(set(described)))

    def test_hook_routes(self):
        server = self.three_requests()
        server.wait_parked()
        listed = server.json("GET", "/conversations?limit=1")["conversations"]
        self.assertEqual(len(listed), 1)
        chat = listed[0]["id"]
        rest = server.json("GET", f"/conversations?after={chat}")["conversations"]
        self.assertEqual(len(rest), 1)
        self.assertEqual(server.conversation(chat)["tokens"], 207)
        self.assertEqual(len(server.lookups(2)), 2)
        pinned = server.json("POST", f"/conversations/{chat}/pin",
                             {"pinned": True, "name": "the first"})
        self.assertEqual((pinned["pinned"], pinned["name"]), (True, "the first"))
        tiers = server.json("POST", "/conversations/budgets", {"ram_mib": 300})["tiers"]
        self.assertEqual({tier["tier"] for tier in tiers}, {"ram", "disk"})
        self.assertTrue(server.json("DELETE", f"/conversations/{chat}")["deleted"])
        for method, path, body, status in (
                ("GET", f"/conversations/{chat}", None, 404),
                ("DELETE", "/conversations/xyz", None, 400),
                ("POST", f"/conversations/{rest[0]['id']}/pin", {"pinned": "yes"}, 400),
                ("POST", "/conversations/budgets", {"ram_mib": -1}, 400)):
            error = server.json(method, path, body, status)["error"]
            self.assertEqual(set(error), {"code", "message", "type"})
            self.assertEqual(error["code"], status)

    def test_a_path_that_takes_another_method(self):
        server = self.three_requests()
        chat = server.conversations()[0]["id"]
        for path, allowed in (("/conversations", "GET"), ("/conversations/lookups", "GET"),
                              ("/conversations/ui", "GET"),
                              ("/conversations/budgets", "POST"),
                              (f"/conversations/{chat}", "GET, DELETE"),
                              (f"/conversations/{chat}/pin", "POST")):
            for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
                if method in allowed.split(", "):
                    continue
                connection = server.connection()
                connection.request(method, path, "{}", {"Content-Type": "application/json"})
                response = connection.getresponse()
                body = response.read().decode()
                connection.close()
                self.assertEqual(response.status, 405, f"{method} {path}: {body}")
                self.assertEqual(response.headers["Allow"], allowed, f"{method} {path}")
                self.assertEqual(json.loads(body)["error"],
                                 {"code": 405, "message": f"this path takes {allowed}",
                                  "type": "invalid_request_error"})
        for path in ("/conversations/x/y/z", "/conversationsx", "/nothing"):
            self.assertEqual(server.request("PUT", path, {})[0], 404, path)
        self.assertEqual(len(server.conversations()), 2)

    def test_a_budget_below_the_buffers(self):
        server = self.three_requests()
        before = server.tiers()
        error = server.json("POST", "/conversations/budgets", {"ram_mib": 5, "disk_gib": 1},
                            400)["error"]["message"]
        least = int(re.search(r"so (\d+) is the least, or 0 for no images in ram$", error)[1])
        self.assertEqual({kind: tier["budget_bytes"] for kind, tier in server.tiers().items()},
                         {kind: tier["budget_bytes"] for kind, tier in before.items()})
        server.json("POST", "/conversations/budgets", {"ram_mib": least - 1}, 400)
        server.json("POST", "/conversations/budgets", {"ram_mib": least})
        self.assertGreater(server.tiers()["ram"]["budget_bytes"], 0)
        self.assertLessEqual(server.tiers()["ram"]["budget_bytes"], 1 << 20)
        server.json("POST", "/conversations/budgets", {"ram_mib": 0})
        self.assertEqual(server.tiers()["ram"]["budget_bytes"], 0)

    def test_a_name_is_given_kept_and_taken_away(self):
        server = self.three_requests()
        chat = server.conversations()[0]["id"]
        for body, wanted in (({"pinned": True, "name": "mine"}, (True, "mine")),
                             ({"pinned": False}, (False, "mine")),
                             ({"pinned": True, "name": ""}, (True, None)),
                             ({"pinned": False}, (False, None))):
            pinned = server.json("POST", f"/conversations/{chat}/pin", body)
            self.assertEqual((pinned["pinned"], pinned["name"]), wanted, body)
        server.wait_parked()
        server.kill()
        server = self.start(DENSE)
        self.assertEqual({c["name"] for c in server.conversations()}, {None})
        self.assertEqual(len(server.conversations()), 2)

    def test_routes_are_behind_the_key(self):
        server = self.start(DENSE, "--api-key", "secret")
        for method, path in (("GET", "/conversations"), ("GET", "/conversations/lookups"),
                             ("POST", "/conversations/budgets"), ("GET", "/metrics")):
            status, text = server.request(method, path, {} if method == "POST" else None)
            self.assertEqual(status, 401, f"{path}: {text}")
        server.port = None  # nothing of it can be checked without the key

    def test_hook_stopping(self):
        """SIGTERM with a request in flight (scenario 28): parked and in time."""
        server = self.start(DENSE, context=65536)
        prompt = tokens_of("chat", 500)
        connection = server.begin_stream(prompt, 30000)
        response = connection.getresponse()
        received = []
        for event in self.events(response):
            received += event.get("tokens", [])
            if len(received) > 200:
                break
        self.assertLess(server.terminate(), 10)
        self.assertEqual(server.process.returncode, 0, server.log())
        self.assertIn("stopped: hooks took", server.log())
        self.assertNotIn("slot      release", server.log())
        connection.close()

        server = self.start(DENSE, context=65536)
        chat = server.conversations()[0]
        self.assertGreaterEqual(chat["durable_tokens"], 700)
        answer = server.ask(prompt + received + tokens_of("turn", 10), 64)
        self.assert_served(server, "disk", 500 + len(received) - 1)
        plain = self.start_plain(DENSE)
        plain.ask(prompt, len(received) + 1)
        reference = plain.ask(prompt + received + tokens_of("turn", 10), 64)
        self.assert_same_answer(answer, reference)

    def test_hook_stopped(self):
        """Requests that come in while it stops are answered too, so that it ends in time."""
        server = self.start(DENSE)
        begun = threading.Barrier(7)

        def keep_asking(name):
            connection = server.begin_stream(tokens_of(name, 300), 2000)
            begun.wait()
            try:
                while True:
                    connection.getresponse().read()
                    connection.close()
                    connection = server.begin_stream(tokens_of(name, 300), 2000)
            except (OSError, http.client.HTTPException):
                connection.close()

        clients = [threading.Thread(target=keep_asking, args=(f"client {i}",)) for i in range(6)]
        for client in clients:
            client.start()
        begun.wait()
        self.assertLess(server.terminate(), 10)
        for client in clients:
            client.join()
        self.assertEqual(server.process.returncode, 0, server.log())
        self.assertIn("every request is answered", server.log())

    def test_stopping_in_the_middle_of_a_prompt(self):
        server = self.start(DENSE, *SLOWLY, context=32768)
        prompt, connection, _ = self.read_until(server, 3000)
        self.assertLess(server.terminate(), 10)
        connection.close()
        server = self.start(DENSE, context=32768)
        server.ask(prompt, 16)
        self.assert_served(server, "disk", 3000)


if __name__ == "__main__":
    unittest.main()
