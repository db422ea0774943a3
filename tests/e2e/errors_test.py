"""What the routes of the cache say when they refuse: our words, in llama-server's shape."""

import json
import unittest

from parkade_process import ServerTest, model

NOBODY = "0123456789abcdef0123456789abcdef"
UPSTREAM = {"message": "File Not Found", "type": "not_found_error", "code": 404}


class ErrorsTest(ServerTest):
    def assert_error(self, server, method, path, body, expected):
        status, text = server.request(method, path, body)
        self.assertEqual(status, expected["code"], text)
        self.assertEqual(json.loads(text), {"error": expected})

    def check(self, server, prefix=""):
        unknown = {"message": f"no conversation {NOBODY}", "type": "not_found_error", "code": 404}
        one = f"{prefix}/conversations/{NOBODY}"
        self.assert_error(server, "GET", one, None, unknown)
        self.assert_error(server, "POST", f"{one}/pin", {"pinned": True}, unknown)
        status, text = server.request("DELETE", one)
        self.assertEqual(status, 404)
        error = json.loads(text)["error"]
        self.assertEqual(error["code"], 404)
        self.assertEqual(error["type"], "not_found_error")
        self.assertNotEqual(error["message"], UPSTREAM["message"])
        self.assert_error(server, "POST", f"{prefix}/conversations/budgets", {"disk_gib": 1},
                          {"message": "there is no disk tier", "type": "not_found_error",
                           "code": 404})
        # Paths that nobody has are llama-server's.
        for path in ("/nothing", "/conversations/a/b/c"):
            self.assert_error(server, "GET", prefix + path, None, UPSTREAM)
        self.assert_error(server, "GET", f"{one}/pin", None,
                          {"message": "this path takes POST", "type": "invalid_request_error",
                           "code": 405})

    def test_404_says_what_is_not_there(self):
        self.check(self.start(model("dense"), disk=False))

    def test_404_below_a_prefix(self):
        server = self.launch(model("dense"), "-c", "1024", "-t", "1", "--api-prefix", "/api",
                             "--conversation-cache-mib", "64")
        server.wait_for_line("model loaded")
        server.wait_for_line("the weights are known")
        server.port = int(server.wait_for_line("listening on http://")
                          .partition("listening on http://127.0.0.1:")[2].split()[0])
        self.check(server, "/api")
        server.kill()  # the checks at a test's end know no prefix


if __name__ == "__main__":
    unittest.main()
