"""parkade-server as a process under test: start, ask, kill, look at what it says about itself.

Every wait has a deadline. Places come from the environment, with the build's as defaults:
PARKADE_SERVER_PROGRAM, PARKADE_TEST_MODELS_FOLDER (from tests/support/make_models.py) and
PARKADE_MODEL (Gemma 3 270M). Standard library only.
"""

import http.client
import json
import math
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from dataclasses import dataclass, field

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "parkade")
PROGRAM = os.environ.get("PARKADE_SERVER_PROGRAM", f"{ROOT}/build/bin/parkade-server")
MODELS = os.environ.get("PARKADE_TEST_MODELS_FOLDER", f"{ROOT}/build/models")
GEMMA = os.environ.get("PARKADE_MODEL", f"{CACHE}/models/gemma-3-270m-q4_k_m.gguf")

# Measured with random weights: the same prompt in other batches moves a token by up to 0.02.
TIE = 0.1
# Long enough for an overloaded machine; nothing waits this long unless it is broken.
DEADLINE_S = float(os.environ.get("PARKADE_TEST_DEADLINE_S", "120"))
READY_LINE = "the weights are known"
# Ids of ordinary pieces in the generated models' vocabulary.
PIECES = range(260, 540)


def model(kind):
    return os.path.join(MODELS, kind + ".gguf")


def tokens_of(name, count):
    """`count` tokens for the generated models; the same name gives the same ones."""
    return random.Random(name).choices(PIECES, k=count)


def wait_until(condition, what, deadline_s=DEADLINE_S):
    """Polls until `condition()` is true and returns its value."""
    end = time.monotonic() + deadline_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited {deadline_s:.0f} s in vain for {what}")
        time.sleep(0.01)


@dataclass
class Answer:
    tokens: list
    text: str
    cache_n: int
    prompt_n: int
    raw: dict
    # By generated position: {token: logprob} of the likeliest ones.
    logprobs: list = field(default_factory=list)


def answer_of(raw):
    tops = [{top["id"]: top["logprob"] for top in position["top_logprobs"]}
            for position in raw.get("completion_probabilities", [])]
    return Answer(raw["tokens"], raw["content"], raw["timings"]["cache_n"],
                  raw["timings"]["prompt_n"], raw, tops)


class Metrics(dict):
    """name{labels} -> value, of parkade's and llama-server's lines."""

    LINE = re.compile(r"^([a-z_:A-Z0-9]+)(?:\{(.*)\})? ([-+.0-9eE]+|NaN|[+-]Inf)$")

    def __init__(self, text):
        super().__init__()
        for line in text.splitlines():
            match = self.LINE.match(line)
            if match:
                labels = frozenset(re.findall(r'(\w+)="([^"]*)"', match[2] or ""))
                self[match[1], labels] = float(match[3])

    def get_one(self, name, **labels):
        return self.get((name, frozenset(labels.items())), 0.0)

    def sum_of(self, name):
        return sum(value for (metric, _), value in self.items() if metric == name)


class Server:
    api_key = None  # sent with every request() where a test sets it

    def __init__(self, folder, model_path, arguments, environment=None, program=PROGRAM):
        self.log_path = os.path.join(folder, f"server-{len(os.listdir(folder))}.log")
        self.command = [program, *(["-m", model_path] if model_path else []), "--host",
                        "127.0.0.1", "--port", "0", "--no-warmup", *arguments]
        self.environment = {**os.environ, "XDG_CACHE_HOME": os.path.join(folder, "cache"),
                            **(environment or {})}
        self.port = None
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=subprocess.STDOUT, env=self.environment)

    # ---- life ----

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            return log.read()

    def running(self):
        return self.process.poll() is None

    def wait_for_line(self, text, count=1):
        def seen():
            log = self.log()
            if log.count(text) >= count:
                return log
            if not self.running():
                raise AssertionError(f"the server ended (status {self.process.returncode})")
            return None
        return wait_until(seen, f"the line '{text}'")

    def wait_healthy(self, cached):
        log = self.wait_for_line("listening on http://")
        self.port = int(re.search(r"listening on http://[^ ]*:(\d+)", log)[1])
        wait_until(lambda: self.request("GET", "/health")[0] == 200, "/health")
        if cached:
            self.wait_for_line(READY_LINE)

    def kill(self):
        """As a crash or the out-of-memory killer would."""
        self.process.kill()
        self.process.wait(DEADLINE_S)

    def terminate(self, deadline_s=DEADLINE_S, check=True):
        """SIGTERM, as a service manager would. Returns the seconds until the end.

        What it counted until then is checked before, unless it can't be asked (a router)."""
        if check and self.port is not None:
            self.check_identity()
        begin = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(deadline_s)
        return time.monotonic() - begin

    # ---- requests ----

    def connection(self, timeout_s=DEADLINE_S):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)

    def request(self, method, path, body=None):
        connection = self.connection()
        try:
            data = None if body is None else json.dumps(body)
            headers = {"Content-Type": "application/json"}
            if self.api_key is not None:
                headers["Authorization"] = f"Bearer {self.api_key}"
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            return response.status, response.read().decode("utf-8", "replace")
        finally:
            connection.close()

    def json(self, method, path, body=None, status=200):
        got, text = self.request(method, path, body)
        if got != status:
            raise AssertionError(f"{method} {path}: {got} {text}")
        return json.loads(text)

    @staticmethod
    def body(prompt, n_predict=64, **fields):
        return {"prompt": prompt, "n_predict": n_predict, "temperature": 0, "seed": 1,
                "ignore_eos": True, "cache_prompt": True, "return_tokens": True, **fields}

    def ask(self, prompt, n_predict=64, **fields):
        raw = self.json("POST", "/completion", self.body(prompt, n_predict, **fields))
        answer = answer_of(raw)
        prompt_tokens = len(prompt) if isinstance(prompt, list) else raw["tokens_evaluated"]
        if answer.cache_n + answer.prompt_n != prompt_tokens:
            raise AssertionError(f"{answer.cache_n} reused + {answer.prompt_n} computed are not "
                                 f"the prompt's {prompt_tokens} tokens")
        return answer

    def begin_stream(self, prompt, n_predict=64, **fields):
        """Sends a streaming request; returns its connection, which the caller closes."""
        connection = self.connection()
        body = self.body(prompt, n_predict, stream=True, **fields)
        connection.request("POST", "/completion", json.dumps(body),
                           {"Content-Type": "application/json"})
        return connection

    def tokenize(self, text):
        return self.json("POST", "/tokenize", {"content": text, "add_special": True})["tokens"]

    # ---- what it says about itself ----

    def conversations(self):
        return self.json("GET", "/conversations")["conversations"]

    def conversation(self, conversation_id):
        return self.json("GET", f"/conversations/{conversation_id}")

    def tiers(self):
        return {tier["tier"]: tier for tier in self.json("GET", "/conversations")["tiers"]}

    def lookups(self, limit=1000):
        """Newest first."""
        return self.json("GET", f"/conversations/lookups?limit={limit}")["lookups"]

    def last_lookup(self):
        return self.lookups(1)[0]

    def metrics(self):
        status, text = self.request("GET", "/metrics")
        if status != 200:
            raise AssertionError(f"/metrics: {status} {text}")
        return Metrics(text)

    def wait_parked(self):
        """Until nothing captured waits for a tier any more."""
        wait_until(lambda: self.metrics().sum_of("parkade_spill_queue_bytes") == 0,
                   "an empty queue")

    def wait_durable(self, tokens):
        """Until one conversation has this many durable tokens; returns it."""
        def found():
            return [c for c in self.conversations() if c["durable_tokens"] >= tokens]
        return wait_until(found, f"{tokens} durable tokens")[0]

    def check_identity(self):
        """lookup_tokens = sum(hit) + sum(miss), once nothing is in flight."""
        def counted():
            metrics = self.metrics()
            return (metrics.sum_of("parkade_lookup_tokens_total"),
                    metrics.sum_of("parkade_hit_tokens_total") +
                    metrics.sum_of("parkade_miss_tokens_total"))
        wait_until(lambda: len(set(counted())) == 1,
                   f"lookup tokens to equal hits plus misses, {counted()}", 10)


class ServerTest(unittest.TestCase):
    """Servers that a test starts are checked and ended after it; a failure shows their logs."""

    def setUp(self):
        self.servers = []

    def run(self, result=None):
        self.folder = tempfile.mkdtemp(prefix="parkade-e2e-")
        self.disk = os.path.join(self.folder, "disk")
        bad = len(result.failures) + len(result.errors) if result else 0
        try:
            super().run(result)
        finally:
            if result and len(result.failures) + len(result.errors) > bad:
                self.show_logs()
            shutil.rmtree(self.folder)
        return result

    def show_logs(self):
        for name in sorted(os.listdir(self.folder)):
            if name.endswith(".log"):
                path = os.path.join(self.folder, name)
                with open(path, encoding="utf-8", errors="replace") as log:
                    lines = log.read().splitlines()
                print(f"--- {self.id()} {name}", *lines[-80:], sep="\n", file=sys.stderr)

    def tearDown(self):
        try:
            for server in self.servers:
                if server.running() and server.port is not None:
                    server.check_identity()
        finally:
            for server in self.servers:
                if server.running():
                    server.kill()

    def launch(self, model_path, *arguments, environment=None):
        """Starts a process without waiting for it."""
        server = Server(self.folder, model_path, arguments, environment)
        self.servers.append(server)
        return server

    def start(self, model_path, *arguments, disk=True, ram_mib=512, environment=None, slots=2,
              context=8192):
        """A server with the given tiers that is ready to answer."""
        cache = ["--conversation-cache-mib", str(ram_mib), "--conversation-cache-min-free-mib",
                 "64"]
        if disk:
            cache += ["--conversation-cache-disk", self.disk,
                      "--conversation-cache-disk-min-free-mib", "64"]
        # One thread: tests run side by side, and threads that wait for each other's turn on a core
        # are slower than one.
        server = self.launch(model_path, "-c", str(context), "-np", str(slots), "-t", "1", "-tb",
                             "1", *cache, *arguments, environment=environment)
        server.wait_healthy(disk or ram_mib > 0)
        return server

    def start_plain(self, model_path, *arguments, **options):
        """The same server without a cache: what an uninterrupted one says."""
        return self.start(model_path, *arguments, disk=False, ram_mib=0, **options)

    def assert_served(self, server, tier, at_least, prompt_tokens=None):
        """The newest lookup reused `at_least` tokens, all of them from `tier`."""
        lookup = server.last_lookup()
        self.assertGreaterEqual(lookup["reused_tokens"], at_least, lookup)
        self.assertEqual(lookup["hit_tokens"], {tier: lookup["reused_tokens"]}, lookup)
        if tier != "slot":
            self.assertEqual(set(lookup["stage_tiers"]), {tier}, lookup)
        if prompt_tokens is not None:
            self.assertEqual(lookup["prompt_tokens"], prompt_tokens, lookup)
        return lookup

    # ---- what lies in the test's directory ----

    def extents(self, stage):
        """(path, offset, bytes, ordinal) of a stage's stored extents, in the order of the files."""
        header = 64  # of a segment and of an extent; FORMAT.md, section 7
        found = []
        for base, _, names in os.walk(os.path.join(self.disk, "segments")):
            for name in names:
                path = os.path.join(base, name)
                with open(path, "rb") as file:
                    data = file.read()
                at = header + struct.unpack_from("<Q", data, 32)[0]
                while at + header <= len(data) and data[at:at + 4] == b"PKEX":
                    ordinal, stored = struct.unpack_from("<II", data, at + 24)
                    of_stage, = struct.unpack_from("<H", data, at + 38)
                    if of_stage == stage:
                        found.append((path, at + header, stored, ordinal))
                    at = (at + header + stored + 63) // 64 * 64
        return sorted(found)

    @staticmethod
    def damage(extent):
        path, offset, stored, _ = extent
        with open(path, "r+b") as file:
            file.seek(offset + stored // 2)
            byte = file.read(1)[0]
            file.seek(offset + stored // 2)
            file.write(bytes([byte ^ 1]))

    def assert_answer_to(self, prompt, answer, plain):
        """That of the server `plain`. How a prompt is cut into batches moves its probabilities a
        little: where two tokens are about as likely, either is right, and ends the comparison."""
        reference = plain.ask(prompt, len(answer.tokens))
        if answer.tokens == reference.tokens:
            self.assertEqual(answer.text, reference.text)
            return
        pairs = list(zip(answer.tokens, reference.tokens))
        at = next(i for i, (mine, theirs) in enumerate(pairs) if mine != theirs)
        likely = plain.ask(prompt + reference.tokens[:at], 1, n_probs=10).logprobs[0]
        self.assertGreater(likely.get(answer.tokens[at], -math.inf),
                           likely[reference.tokens[at]] - TIE,
                           f"{answer.tokens} for {reference.tokens}: {likely}")

    def assert_same_answer(self, answer, reference):
        self.assertEqual(answer.tokens, reference.tokens)
        self.assertEqual(answer.text, reference.text)


def listing(folder):
    """Every path below a folder with its size, mode and content."""
    found = {}
    for base, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(base, name)
            status = os.lstat(path)
            content = b""
            if name in files and not os.path.islink(path):
                with open(path, "rb") as file:
                    content = file.read()
            found[os.path.relpath(path, folder)] = (status.st_mode, status.st_mtime_ns, content)
    return found
