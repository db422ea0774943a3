"""Servers that share a Redis: what tests of the remote tier have in common."""

import unittest

import redis_process
from parkade_process import ServerTest, wait_until


@unittest.skipUnless(redis_process.PROGRAM, redis_process.WHY_NOT)
class RemoteCase(ServerTest):
    redis_arguments = ()

    def setUp(self):
        super().setUp()
        self.redis = redis_process.Redis(*self.redis_arguments)
        self.addCleanup(self.redis.close)

    def start_remote(self, model_path, *arguments, address=None, **options):
        options.setdefault("disk", False)
        return self.start(model_path, "--conversation-cache-remote",
                          address or self.redis.address, *arguments, **options)

    @staticmethod
    def is_published(server, tokens):
        """All of the newest conversation, which has so many tokens, stands in Redis."""
        all_of_them = server.conversations()
        last_used = max((c["last_used"] for c in all_of_them), default=0)
        # What it stands on was used with it.
        newest = [c for c in all_of_them if c["last_used"] == last_used]
        return any(c["tokens"] >= tokens for c in newest) and all(
            "remote" in park["tiers"]
            for c in newest for park in server.conversation(c["id"])["parks"])

    def wait_published(self, server, tokens):
        wait_until(lambda: self.is_published(server, tokens), f"{tokens} tokens in the remote tier")
        server.wait_parked()

    @staticmethod
    def state(server):
        return server.tiers()["remote"]["state"]

    def wait_state(self, server, state):
        wait_until(lambda: self.state(server).split(":")[0] == state, f"state {state}")
        return self.state(server)

    @staticmethod
    def tier_count(server, name, **labels):
        return server.metrics().get_one(name, tier="remote", **labels)
