"""Clients that break off at every stage, by the thousand: afterwards everything is back at zero."""

import json
import os
import random
import socket
import threading
import unittest

from parkade_process import DEADLINE_S, ServerTest, model, tokens_of, wait_until

REQUESTS = int(os.environ.get("PARKADE_CANCELLED_REQUESTS", "480"))
SEED = int(os.environ.get("PARKADE_CANCELLED_SEED", "0")) or random.SystemRandom().getrandbits(32)
CLIENTS = 16
PHASES = 4
SLOTS = 3
CHATS = 12
CHAT = 1200
ANSWER = 8
RAM_MIB = 128
# From the second quarter to the last; in the first one the capture and read buffers (40 MiB of this
# budget) are touched for the first time. Arenas of some 70 threads, the ring of lookups.
CREEP_BYTES = 16 << 20


class Client:
    """One that leaves. Every stage is a method; what the server says meanwhile is not looked at."""

    def __init__(self, server, chats, source, number):
        self.server, self.random, self.number = server, source, number
        self.chats = chats

    def leave(self):
        stage = self.random.choice(STAGES)
        self.socket = socket.create_connection(("127.0.0.1", self.server.port), DEADLINE_S)
        try:
            stage(self)
        # swallow: the server may close first.
        except OSError:
            pass
        if self.random.random() < 0.5:
            # At once, with what was not read thrown away.
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.socket.close()
        return stage.__name__

    def send(self, prompt, n_predict=ANSWER, **fields):
        body = json.dumps(self.server.body(prompt, n_predict, **fields)).encode()
        head = (f"POST /completion HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
                "Content-Type: application/json\r\n\r\n").encode()
        return head, body

    def new_prompt(self, tokens):
        return tokens_of(f"new {SEED} {self.number}", tokens)

    def known_prompt(self):
        return self.random.choice(self.chats) + tokens_of(f"turn {self.number}", 30)

    def wait_shortly(self, most_s=0.15):
        """For an answer that nearly never comes in time, as a client's own deadline would."""
        self.socket.settimeout(self.random.uniform(0.001, most_s))
        try:
            self.socket.recv(1)
        except TimeoutError:
            pass  # swallow: that is what it is for

    def read_events(self, count):
        self.socket.settimeout(DEADLINE_S)
        seen = b""
        while seen.count(b"data: ") < count:
            got = self.socket.recv(4096)
            if not got:
                return
            seen += got

    def connects(self):
        pass

    def amid_headers(self):
        head, _ = self.send(self.new_prompt(300))
        self.socket.sendall(head[:self.random.randrange(1, len(head))])

    def amid_body(self):
        head, body = self.send(self.new_prompt(300))
        self.socket.sendall(head + body[:self.random.randrange(len(body))])

    def queued(self):
        self.socket.sendall(b"".join(self.send(self.new_prompt(200))))

    def queued_stream(self):
        self.socket.sendall(b"".join(self.send(self.new_prompt(200), stream=True)))
        self.wait_shortly()

    def prefill(self):
        self.socket.sendall(b"".join(self.send(self.new_prompt(700), stream=True,
                                               return_progress=True)))
        self.read_events(self.random.randint(1, 3))

    def restore(self):
        self.socket.sendall(b"".join(self.send(self.known_prompt(), stream=True,
                                               return_progress=True)))
        self.wait_shortly(0.03)

    def restore_without_stream(self):
        self.socket.sendall(b"".join(self.send(self.known_prompt())))
        self.wait_shortly()

    def amid_stream(self):
        prompt = self.known_prompt() if self.random.random() < 0.5 else self.new_prompt(150)
        self.socket.sendall(b"".join(self.send(prompt, 400, stream=True)))
        self.read_events(self.random.randint(2, 12))


STAGES = [Client.connects, Client.amid_headers, Client.amid_body, Client.queued,
          Client.queued_stream, Client.prefill, Client.restore, Client.restore_without_stream,
          Client.amid_stream]


class CancelledRequestsTest(ServerTest):
    def prepare(self):
        """Chats that the disk holds, and how each goes on."""
        plain = self.start_plain(model("dense"), slots=1)
        server = self.start(model("dense"), slots=1)
        self.chats, self.expected = [], []
        for i in range(CHATS):
            prompt = tokens_of(f"chat {i}", CHAT)
            answer = server.ask(prompt, ANSWER)
            self.chats.append(prompt + answer.tokens)
            plain.ask(prompt, ANSWER)
            self.expected.append(plain.ask(self.chats[-1] + tokens_of("end", 30), ANSWER))
        server.wait_parked()
        server.terminate()
        plain.kill()

    def break_off(self, server, first, count):
        """`count` requests by clients side by side; returns how many left at which stage."""
        numbers = iter(range(first, first + count))
        lock = threading.Lock()
        stages = {}

        def work():
            while True:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                stage = Client(server, self.chats, random.Random(SEED + number), number).leave()
                with lock:
                    stages[stage] = stages.get(stage, 0) + 1
        threads = [threading.Thread(target=work) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sum(stages.values()), count)
        return stages

    def open_files(self, server):
        """What the process has open, by kind."""
        folder = f"/proc/{server.process.pid}/fd"
        kinds = {}
        for name in os.listdir(folder):
            try:
                target = os.readlink(os.path.join(folder, name))
            except FileNotFoundError:
                continue  # swallow: closed while this looked
            kind = "segments" if "/segments/" in target else target.split(":")[0].split("/")[0]
            kinds[kind] = kinds.get(kind, 0) + 1
        return kinds

    def status(self, server, name):
        with open(f"/proc/{server.process.pid}/status", encoding="ascii") as file:
            return int(dict(line.split(":", 1) for line in file)[name].split()[0])

    def wait_at_rest(self, server):
        """Until nothing is under way; returns the gauges that must be zero then."""
        def gauges():
            metrics = server.metrics()
            return {name: metrics.sum_of(name) for name in (
                "llamacpp:requests_processing", "llamacpp:requests_deferred",
                "parkade_spill_queue_bytes", "parkade_pinned_bytes")}
        wait_until(lambda: not any(gauges().values()), "gauges at zero")
        # The server's own side of connections that clients have left.
        wait_until(lambda: self.open_files(server).get("socket", 0) <= self.sockets + 1,
                   "closed connections")

    def assert_nothing_is_held(self, server):
        """A leaked pin or handle would keep its conversation, and its file, for ever."""
        server.json("POST", "/conversations/budgets", {"ram_mib": 0})
        wait_until(lambda: server.tiers()["ram"]["conversations"] == 0, "an empty RAM tier")
        for i, slot in zip((0, 5, 11), (2, 0, 1)):
            answer = server.ask(self.chats[i] + tokens_of("end", 30), ANSWER, id_slot=slot)
            self.assertGreaterEqual(answer.cache_n, len(self.chats[i]) - 1)
            self.assert_served(server, "disk", len(self.chats[i]) - 1)
            self.assert_same_answer(answer, self.expected[i])
        server.wait_parked()
        kept = int(server.tiers()["disk"]["conversations"])
        for conversation in self.all_conversations(server, kept):
            server.json("DELETE", f"/conversations/{conversation}")
        self.assertEqual(server.conversations(), [])
        self.assertEqual(server.tiers()["disk"]["conversations"], 0)
        # Segments without payload stay: the secret's, the identity's and those of deletions.
        wait_until(lambda: not self.extents(0), "removed files")
        self.assertEqual(self.open_files(server).get("segments", 0), 0)
        return kept

    @staticmethod
    def all_conversations(server, count):
        ids = []
        while len(ids) < count:
            after = f"&after={ids[-1]}" if ids else ""
            page = server.json("GET", f"/conversations?limit=1000{after}")["conversations"]
            ids += [conversation["id"] for conversation in page]
            if not page:
                break
        return ids

    def test_every_stage(self):
        print(f"seed {SEED} (PARKADE_CANCELLED_SEED), {REQUESTS} requests "
              "(PARKADE_CANCELLED_REQUESTS)")
        self.prepare()
        server = self.start(model("dense"), "-b", "128", "-ub", "128", "--threads-http", "48",
                            "--conversation-cache-disk-gib", "0.5", slots=SLOTS,
                            context=SLOTS * 2048, ram_mib=RAM_MIB)
        self.sockets = self.open_files(server).get("socket", 0)
        stages, held = {}, []
        for phase in range(PHASES):
            count = REQUESTS // PHASES
            for stage, times in self.break_off(server, phase * count, count).items():
                stages[stage] = stages.get(stage, 0) + times
            self.assertTrue(server.running())
            self.wait_at_rest(server)
            # Without what RAM holds by its own account, which grows until its budget is reached.
            held.append(((self.status(server, "RssAnon") << 10) -
                         server.tiers()["ram"]["used_bytes"],
                         self.status(server, "Threads"), self.open_files(server)))
        server.check_identity()
        print(stages)
        for anonymous, threads, files in held:
            print(f"{anonymous / (1 << 20):.1f} MiB besides what the RAM tier holds, {threads} "
                  f"threads, {files}")
        self.assertEqual(set(stages), {stage.__name__ for stage in STAGES})
        self.assertLessEqual(held[-1][0], held[1][0] + CREEP_BYTES)
        # llama-server adds threads for connections that come at the same time.
        self.assertLessEqual(held[-1][1], held[0][1] + CLIENTS)
        for kind, count in held[-1][2].items():
            if kind != "segments":  # a bounded number is kept open
                self.assertLessEqual(count, held[0][2].get(kind, 0) + 1, kind)
        metrics = server.metrics()
        self.assertGreater(metrics.get_one("parkade_hit_tokens_total", tier="disk"), 0)
        self.assertEqual(metrics.sum_of("parkade_corrupt_total"), 0)
        self.assertEqual(metrics.sum_of("parkade_tier_errors_total"), 0)
        cancelled = server.log().count("cancel task, id_task")
        kept = self.assert_nothing_is_held(server)
        print(f"{cancelled} tasks cancelled, {metrics.sum_of('parkade_lookups_total'):.0f} looked "
              f"up; {kept} conversations forgotten")
        self.assertGreater(cancelled, REQUESTS // 5)


if __name__ == "__main__":
    unittest.main()
