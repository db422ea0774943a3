#!/usr/bin/env python3
"""The story of Parkade: a long document is read, the server is killed, the conversation goes on.

Prints progress, a table and, as its last line, one JSON object. Exit 1 if less than 99 % of the
earlier tokens were reused, or if anything on the way failed.
"""

import argparse
import http.client
import json
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import time

WANTED_TOKENS = 25_000
CONTEXT_TOKENS = 32_768
ANSWER_TOKENS = 32
REUSED_SHARE = 0.99
START_TIMEOUT_S = 300
ANSWER_TIMEOUT_S = 1800
DURABLE_TIMEOUT_S = 120
TIERS = ("slot", "ram", "disk", "remote")  # fastest first

PLACES = """harbour mill orchard lighthouse railway market library quarry chapel ferry
observatory bakery foundry garden school bridge archive workshop canal station""".split()
NAMES = """Ada Bruno Clara Dmitri Elsa Farid Greta Hugo Ines Jonas Katya Leon Mira Nils Olga Pavel
Rosa Sven Tessa Viktor""".split()
VERBS = """repaired measured painted inspected borrowed described counted sketched moved cleaned
weighed opened photographed labelled returned""".split()
THINGS = """lanterns ropes ledgers bells barrels maps clocks windows boats seeds letters keys carts
pumps mirrors scales kites engines""".split()
REASONS = ("before the storm came in", "because the council had asked for it",
           "after a long quarrel about prices", "while the others were still asleep",
           "so that the winter would find them prepared", "as the old rules demand",
           "although nobody remembered why", "since the bridge was closed that week")


class DemoError(Exception):
    """What went wrong, in one line for the user."""


def say(text):
    print(f"demo: {text}", flush=True)


def chronicle():
    """Yields the sentences of a town's chronicle; the same ones every time."""
    source = random.Random(20_240_229)

    def pick(words):
        return words[int(source.random() * len(words))]

    day = 0
    while True:
        day += 1
        count = 2 + int(source.random() * 97)
        yield (f"Day {day}: {pick(NAMES)} {pick(VERBS)} {count} {pick(THINGS)} at the "
               f"{pick(PLACES)} {pick(REASONS)}, and {pick(NAMES)} {pick(VERBS)} the "
               f"{pick(THINGS)} of the {pick(PLACES)}.")


class Server:
    """One run of parkade-server. Use with `with`: it never outlives the block."""

    def __init__(self, program, folder, arguments):
        self.log_path = folder / "server.log"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.command = [
            program, "--host", "127.0.0.1", "--port", str(self.port), "--parallel", "1",
            "--ctx-size", str(CONTEXT_TOKENS), "--conversation-cache-disk", str(folder / "tiers"),
            *arguments]
        self.process = None

    def __enter__(self):
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True)
        try:
            self.wait_until_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *unused):
        self.kill()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def check_alive(self):
        if self.process.poll() is not None:
            raise DemoError(f"the server ended with exit status {self.process.returncode}")

    def wait_until_ready(self):
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            self.check_alive()
            try:
                self.request("GET", "/health", timeout_s=5)
                return
            except (OSError, http.client.HTTPException, DemoError):
                time.sleep(0.1)
        raise DemoError(f"the server was not ready after {START_TIMEOUT_S} s")

    def open(self, method, path, body=None, timeout_s=60):
        """Sends a request; returns the response, whose body the caller reads."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            text = response.read(300).decode(errors="replace")
            raise DemoError(f"{method} {path} answered {response.status}: {text}")
        return response

    def request(self, method, path, body=None, timeout_s=60):
        with self.open(method, path, body, timeout_s) as response:
            return json.loads(response.read())

    def count_tokens(self, text):
        return len(self.request("POST", "/tokenize", {"content": text})["tokens"])


def write_document(server):
    """Returns a document of at least WANTED_TOKENS tokens, and not many more."""
    sentences = chronicle()
    document = ""
    tokens = 0
    while tokens < WANTED_TOKENS:
        sample = " ".join(next(sentences) for _ in range(20))
        document += sample + "\n"
        tokens += server.count_tokens(sample)
    tokens = server.count_tokens(document)
    if not WANTED_TOKENS <= tokens <= CONTEXT_TOKENS - 1024:
        raise DemoError(f"the document came out with {tokens:,} tokens")
    return document, tokens


def show_progress(progress, shown):
    """Says every fifth of the way; `shown` is how far the last line was. Returns the new one."""
    reused = progress.get("cache", 0)
    total, done = progress.get("total", 0) - reused, progress.get("processed", 0) - reused
    fifth = done * 5 // total if total >= 5000 else 0
    if fifth > shown and done < total:
        say(f"  {done:,} of {total:,} tokens read")
    return max(fifth, shown)


def events(response):
    for line in response:
        if line.startswith(b"data: ") and not line.startswith(b"data: [DONE]"):
            event = json.loads(line[6:])
            if "error" in event:
                raise DemoError(f"the server answered: {event['error']}")
            yield event


def chat(server, messages):
    """One turn. Returns its answer, time to first token in seconds, and token counts."""
    body = {
        "messages": messages, "stream": True, "stream_options": {"include_usage": True},
        "return_progress": True, "timings_per_token": True, "temperature": 0,
        "max_tokens": ANSWER_TOKENS}
    start = time.monotonic()
    ttft_s, text, usage, timings, shown = None, "", {}, {}, 0
    with server.open("POST", "/v1/chat/completions", body, ANSWER_TIMEOUT_S) as response:
        for event in events(response):
            usage = event.get("usage") or usage
            timings = event.get("timings") or timings
            shown = show_progress(event.get("prompt_progress") or {}, shown)
            for choice in event.get("choices", []):
                piece = choice.get("delta", {}).get("content") or ""
                if ttft_s is None and (piece or choice.get("finish_reason")):
                    ttft_s = time.monotonic() - start
                text += piece
    if ttft_s is None or "prompt_tokens" not in usage:
        server.check_alive()
        raise DemoError("the stream ended before it was complete")
    return {
        "text": text, "ttft_s": ttft_s, "prompt_tokens": usage["prompt_tokens"],
        "completion_tokens": usage["completion_tokens"],
        "cached_tokens": usage.get("prompt_tokens_details", {}).get("cached_tokens", 0),
        "cache_n": timings.get("cache_n")}


def wait_until_durable(server, tokens):
    deadline = time.monotonic() + DURABLE_TIMEOUT_S
    durable = 0
    while time.monotonic() < deadline:
        server.check_alive()
        listed = server.request("GET", "/conversations")["conversations"]
        durable = max((entry["durable_tokens"] for entry in listed), default=0)
        if durable >= tokens:
            return durable
        time.sleep(0.05)
    raise DemoError(
        f"only {durable:,} of {tokens:,} tokens were durable after {DURABLE_TIMEOUT_S} s")


def lowest_tier(server):
    """The slowest tier that the newest lookup used, or `none`."""
    lookups = server.request("GET", "/conversations/lookups?limit=1")["lookups"]
    used = [tier for tier in lookups[0]["stage_tiers"] if tier in TIERS] if lookups else []
    return max(used, key=TIERS.index, default="none")


def first_run(args, arguments):
    with Server(args.server, args.folder, arguments) as server:
        document, tokens = write_document(server)
        say(f"a document of {tokens:,} tokens; the first question about it:")
        messages = [{"role": "user", "content": document + "\nWhat is this chronicle about?"}]
        turn = chat(server, messages)
        say(f"first token after {turn['ttft_s']:.2f} s")
        # The last token of an answer has been sampled but not yet computed, so nobody can keep it.
        earlier = turn["prompt_tokens"] + turn["completion_tokens"] - 1
        durable = wait_until_durable(server, earlier)
        say(f"{durable:,} tokens are durable; kill -9")
    messages.append({"role": "assistant", "content": turn["text"]})
    return messages, turn, earlier


def second_run(args, arguments, messages):
    messages = messages + [{"role": "user", "content": "Who repaired something, and where?"}]
    start = time.monotonic()
    with Server(args.server, args.folder, arguments) as server:
        say(f"started again in {time.monotonic() - start:.2f} s; the conversation goes on")
        turn = chat(server, messages)
        say(f"first token after {turn['ttft_s']:.2f} s")
        if turn["cache_n"] is not None and turn["cache_n"] != turn["cached_tokens"]:
            raise DemoError(f"timings.cache_n is {turn['cache_n']} but cached_tokens is "
                            f"{turn['cached_tokens']}")
        return turn, lowest_tier(server)


def print_table(cold, rewarmed, tier):
    rows = [
        ("", "first time", "after kill -9"),
        ("prompt tokens", f"{cold['prompt_tokens']:,}", f"{rewarmed['prompt_tokens']:,}"),
        ("of them reused", f"{cold['cached_tokens']:,}", f"{rewarmed['cached_tokens']:,}"),
        ("reused from", "-", tier),
        ("time to first token", f"{cold['ttft_s']:.2f} s", f"{rewarmed['ttft_s']:.2f} s")]
    print()
    for name, first, second in rows:
        print(f"{name:<22}{first:>14}{second:>16}")
    print()


def tell_story(args, arguments):
    args.folder.mkdir(parents=True, exist_ok=True)
    (args.folder / "server.log").unlink(missing_ok=True)
    if (args.folder / "tiers").exists():
        shutil.rmtree(args.folder / "tiers")
    messages, cold, earlier = first_run(args, arguments)
    rewarmed, tier = second_run(args, arguments, messages)
    print_table(cold, rewarmed, tier)
    enough = rewarmed["cached_tokens"] >= REUSED_SHARE * earlier
    if not enough:
        say(f"only {rewarmed['cached_tokens']:,} of {earlier:,} earlier tokens were reused, see "
            f"{args.folder / 'server.log'}")
    print(json.dumps({
        "prompt_tokens": rewarmed["prompt_tokens"], "cold_ttft_s": round(cold["ttft_s"], 3),
        "rewarmed_ttft_s": round(rewarmed["ttft_s"], 3), "cached_tokens": rewarmed["cached_tokens"],
        "tier": tier}), flush=True)
    return 0 if enough else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True, help="parkade-server")
    parser.add_argument("--folder", type=pathlib.Path, required=True,
                        help="for tiers/, emptied first, and server.log")
    parser.add_argument("arguments", nargs="*", help="after --: arguments for the server")
    args = parser.parse_args()
    # SIGTERM leaves through the same door as an error, so that the server is ended too.
    signal.signal(signal.SIGTERM, lambda *unused: sys.exit(143))
    try:
        return tell_story(args, args.arguments)
    except (DemoError, OSError, http.client.HTTPException, KeyError, ValueError) as error:
        log = args.folder / "server.log"
        print(f"demo: {error or type(error).__name__}; the server's log is {log}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
