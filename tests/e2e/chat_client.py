"""A client that keeps its chats as tokens, beside a server that nobody interrupts.

Every request goes to both, and the answers are compared. A message of the user begins with a mark
that the requests name, as a chat template's would.
"""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from parkade_process import ServerTest, model, tokens_of

USER = " you your"
DELIMITERS = [{"role": "user", "delimiter": USER}]
ANSWER_TOKENS = 32
LOGPROBS = 10
# Of a token's logprob, where sums may round differently: the models' own answers differ by as much
# when a prompt is read in other batches.
NEAR = 0.3


@dataclass(frozen=True)
class Kind:
    """A generated model, and what its memory needs to go on at a position."""

    model: str
    arguments: tuple = ()
    # Bytes of one token's row in all layers, of its rows in window layers, of one state.
    row_bytes: int = 0
    window_bytes: int = 0
    state_bytes: int = 0
    window_tokens: int = 0
    # Tokens that are read when a prompt is asked again.
    again: int = 1
    # False where sums round differently: in a small window's cache new tokens land in other cells.
    same_text: bool = True


KINDS = {
    "dense": Kind("dense", row_bytes=2048),
    "window": Kind("window", row_bytes=512, window_bytes=2560, window_tokens=64, same_text=False),
    "full_window": Kind("window", ("--swa-full",), row_bytes=512, window_bytes=2560),
    "recurrent": Kind("recurrent", state_bytes=77824, again=4),
    # The cache ends batches where states are kept: sums of attention round differently.
    "hybrid": Kind("hybrid", row_bytes=512, state_bytes=3072, again=4, same_text=False),
}


def at_once(calls):
    """Runs all calls at the same time and returns their results in order."""
    barrier = threading.Barrier(len(calls))

    def run(call):
        barrier.wait()
        return call()
    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(run, calls))


def common_prefix(one, other):
    for i, (mine, theirs) in enumerate(zip(one, other)):
        if mine != theirs:
            return i
    return min(len(one), len(other))


def distinct_rows(sequences):
    """How many rows hold all of these, if what begins alike is stored once."""
    root, rows = {}, 0
    for sequence in sequences:
        node = root
        for token in sequence:
            if token not in node:
                node[token] = {}
                rows += 1
            node = node[token]
    return rows


class ChatTest(ServerTest):
    def begin(self, kind, *arguments, cache=(), chats=1, slots=1, context=8192, **options):
        """Starts both servers; on the uninterrupted one every chat has a slot to itself."""
        self.kind = KINDS[kind]
        self.arguments = (*self.kind.arguments, *arguments, *cache)
        self.options = {"slots": slots, "context": slots * context, **options}
        self.plain = self.start_plain(model(self.kind.model), *self.kind.arguments, *arguments,
                                      slots=chats, context=chats * context)
        self.mark = self.plain.tokenize(USER)[1:]
        self.server = self.start(model(self.kind.model), *self.arguments, **self.options)

    def restart(self, stop="kill"):
        """As after a crash, or after SIGTERM: nothing but the directory is left."""
        self.server.wait_parked()
        getattr(self.server, stop)()
        self.server = self.start(model(self.kind.model), *self.arguments, **self.options)

    def read_progress(self, response, at_least):
        """Reads a stream until the server says that so much of the prompt is read."""
        processed = 0
        while processed < at_least:
            line = response.readline()
            self.assertTrue(line, "the stream ended")
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
                self.assertIn("prompt_progress", event, "read before anybody looked")
                processed = event["prompt_progress"]["processed"]
        return processed

    def forget_slot(self):
        """Takes the slot for something that is too short to be parked."""
        self.server.wait_parked()
        self.server.ask(tokens_of("too short", 20), 1)

    def message(self, name, count):
        """A message of the user of about `count` tokens; the mark stands at its beginning only."""
        return self.mark + [token for token in tokens_of(name, count) if token not in self.mark]

    def ask(self, prompt, n_predict=ANSWER_TOKENS, chat=0, **fields):
        """The answer, compared with that of the server that nobody interrupts."""
        fields = {"message_delimiters": DELIMITERS, "n_probs": LOGPROBS, **fields}
        reference = self.plain.ask(prompt, n_predict, id_slot=chat, **fields)
        kept = self.kept()
        answer = self.server.ask(prompt, n_predict, **fields)
        self.assert_answers_like(answer, reference)
        lookup = self.server.last_lookup()
        self.assertEqual(lookup["prompt_tokens"], len(prompt), lookup)
        self.assertEqual(lookup["reused_tokens"], answer.cache_n, lookup)
        self.assertEqual(sum(lookup["hit_tokens"].values()), answer.cache_n, lookup)
        self.assertEqual(sum(lookup["miss_tokens"].values()), answer.prompt_n, lookup)
        if lookup["conversation"] in kept:
            common = min(lookup["matched_tokens"], len(prompt) - 1)
            self.assertGreaterEqual(answer.cache_n,
                                    self.deepest_kept(kept, lookup["conversation"], common), lookup)
        return answer

    def assert_answers_like(self, answer, reference):
        if self.kind.same_text:
            self.assert_same_answer(answer, reference)
        else:
            self.assert_near(answer, reference)

    def assert_near(self, answer, reference):
        """The same text up to a place where two tokens are about as likely."""
        for i, (mine, theirs) in enumerate(zip(answer.tokens, reference.tokens)):
            likeliest = answer.logprobs[i][mine]
            self.assertIn(mine, reference.logprobs[i])
            self.assertLess(abs(likeliest - reference.logprobs[i][mine]), NEAR)
            if mine != theirs:
                # As likely: from here on they are different texts.
                self.assertLess(likeliest - answer.logprobs[i][theirs], NEAR)
                return

    def assert_reused(self, answer, tokens, *tiers, reason=None, below=0):
        """`tokens` were reused, or up to `below` fewer where the kind needs a boundary."""
        lookup = self.server.last_lookup()
        self.assertLessEqual(answer.cache_n, tokens, lookup)
        exact = not self.kind.window_tokens and not self.kind.state_bytes
        self.assertGreaterEqual(answer.cache_n, tokens if exact else tokens - below, lookup)
        if len(tiers) > 1:
            self.assertLessEqual(set(lookup["hit_tokens"]), set(tiers), lookup)
        else:
            self.assertEqual(set(lookup["hit_tokens"]), set(tiers), lookup)
        if tiers != ("slot",):
            self.assertLessEqual(set(lookup["stage_tiers"]), set(tiers), lookup)
            self.assertGreater(lookup["restored_bytes"], 0, lookup)
        if reason is not None:
            self.assertEqual(lookup["reason"], reason, lookup)
        return lookup

    # ---- what is kept ----

    def kept(self):
        """Every conversation in detail, by its id."""
        return {c["id"]: self.server.conversation(c["id"]) for c in self.server.conversations()}

    def deepest_kept(self, kept, conversation, common):
        """The deepest position at or below `common` where this conversation can go on."""
        checkpoints, rows, end = {0}, set(), common
        while conversation is not None:
            found = kept[conversation]
            for park in found["parks"]:
                checkpoints |= {at for at in park["checkpoints"] if at <= end}
                for first, last in park["window_rows"]:
                    rows |= set(range(first, min(last, end)))
            conversation, end = found["forked_from"], min(end, found["forked_at"] or 0)
        if self.kind.state_bytes:
            return max(checkpoints)
        if not self.kind.window_tokens:
            return common
        missing = 0  # window rows before a position are needed from here on
        best = 0
        for position in range(1, common + 1):
            if position - 1 not in rows:
                missing = position
            if missing <= max(0, position - self.kind.window_tokens - 1):
                best = position
        return best

    def assert_stored_once(self, tokens):
        """`tokens` rows are stored, each once, and no byte besides what the records name."""
        kept = self.kept().values()
        parks = [park for conversation in kept for park in conversation["parks"]]
        rows = sum(park["tokens"][1] - park["tokens"][0] for park in parks)
        windows = sum(last - first for park in parks for first, last in park["window_rows"])
        states = sum(len(park["checkpoints"]) for park in parks)
        self.assertEqual(rows, tokens)
        self.assertLessEqual(windows, rows)
        self.assertEqual(sum(conversation["bytes"] for conversation in kept),
                         rows * self.kind.row_bytes + windows * self.kind.window_bytes +
                         states * self.kind.state_bytes)
