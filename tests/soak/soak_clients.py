"""Clients of a server under test: chats that go on, branch, are edited, asked again and broken off.

Every answer is compared with that of a llama-server without a cache, which nobody interrupts.
"""

import http.client
import json
import random
import threading
from collections import OrderedDict

from parkade_process import answer_of

ANSWER_TOKENS = 12
LOGPROBS = 10
# Sums round differently when a prompt is read in other batches, or beside other prompts: of two
# tokens that are this close either may be said, and the text goes on from there. With Gemma's
# quantised weights the gaps are wide: without any cache, cold against read in turns beside others,
# 43 prompts showed one of 0.96 and probabilities apart by 0.20, 13,000 answers of a soak one of
# 1.6.
# What a wrong state would do shows in the mean of the first logprobs, too: see check.
TIE = 1.0
GEMMA_TIE = 2.5
MOST_PROMPT_TOKENS = 1500
REFERENCES = 2000
WARM_SLOT = 7
FULL_POOL = "Context size has been exceeded"

BROKEN_CONNECTION = (ConnectionError, http.client.HTTPException, TimeoutError, OSError)


class WrongTokens(AssertionError):
    pass


def compare(answer, reference, tie):
    """`equal`, `tied` (another token that is about as likely, then another text) or `wrong`."""
    for i, (mine, theirs) in enumerate(zip(answer.tokens, reference.tokens)):
        if mine == theirs:
            continue
        ours, expected = answer.logprobs[i], reference.logprobs[i]
        close = (mine in expected and theirs in ours and ours[mine] - ours[theirs] < tie and
                 expected[theirs] - expected[mine] < tie)
        return "tied" if close else "wrong"
    return "equal" if len(answer.tokens) == len(reference.tokens) else "wrong"


class Reference:
    """The uninterrupted server's answers, remembered by prompt."""

    def __init__(self, server, figures, tie=TIE):
        self.server, self.figures, self.tie = server, figures, tie
        self.known = OrderedDict()
        self.lock = threading.Lock()

    def ask(self, prompt, **fields):
        return self.server.ask(prompt, ANSWER_TOKENS, n_probs=LOGPROBS, **fields)

    def answer(self, prompt):
        key = tuple(prompt)
        with self.lock:
            if key in self.known:
                self.known.move_to_end(key)
                return self.known[key]
        answer = self.ask(prompt)
        with self.lock:
            self.known[key] = answer
            if len(self.known) > REFERENCES:
                self.known.popitem(last=False)
        return answer

    def cold(self, prompt, _):
        return self.ask(prompt, cache_prompt=False)

    def warm(self, prompt, reused):
        """Read in two pieces, as the server under test did: what it reused, and the rest."""
        self.server.ask(prompt[:max(1, reused)], 1, cache_prompt=False, id_slot=WARM_SLOT)
        return self.ask(prompt, id_slot=WARM_SLOT)

    def check(self, prompt, answer):
        """Raises when the answer is not that of an uninterrupted server."""
        verdict = compare(answer, self.answer(prompt), self.tie)
        # Its own slots may have gone on from a state that was read in other batches.
        for look in (self.cold, self.warm):
            if verdict == "wrong":
                self.figures.add("second_looks")
                verdict = compare(answer, look(prompt, answer.cache_n), self.tie)
        self.figures.add("answers_" + verdict)
        reference = self.answer(prompt)
        token = reference.tokens[0]
        if token in answer.logprobs[0]:
            # What a subtly wrong state would show: the first token's logprob, reused or not.
            group = "reused" if answer.cache_n >= 64 else "computed"
            apart = abs(answer.logprobs[0][token] - reference.logprobs[0][token])
            self.figures.add(f"first_logprobs_{group}")
            self.figures.add(f"first_logprobs_{group}_apart", round(apart, 6))
        if verdict == "wrong":
            raise WrongTokens(f"prompt of {len(prompt)} tokens: {answer.tokens}, expected "
                              f"{reference.tokens}; {answer.cache_n} reused\n"
                              f"{answer.logprobs}\n{reference.logprobs}")


class Client:
    """A person with a few chats. One thread at a time."""

    def __init__(self, box, number, seed):
        self.box, self.number = box, number
        self.random = random.Random(seed)
        self.chats = []
        self.made = 0

    # ---- texts ----

    def text(self, count):
        self.made += 1
        return self.box.words(f"{self.box.name} {self.number} {self.made}", count)

    def new_chat(self):
        system = self.box.words(f"{self.box.name} system {self.random.randrange(3)}",
                                self.random.choice((100, 250)))
        return system + self.text(self.random.randint(20, 400))

    def prompt(self):
        """The next prompt, and the chat that it continues."""
        dice = self.random.random()
        if not self.chats or dice < 0.15:
            return self.new_chat()
        chat = self.random.choice(self.chats)
        if dice < 0.60:
            prompt = chat + self.text(self.random.randint(5, 60))
        elif dice < 0.72:
            return chat[:max(1, len(chat) - ANSWER_TOKENS)]  # asked again
        elif dice < 0.90:  # an edit, or a branch
            prompt = chat[:self.random.randint(1, len(chat))] + self.text(30)
        else:
            return chat[:self.random.randint(1, len(chat))]
        return prompt if len(prompt) <= MOST_PROMPT_TOKENS else self.new_chat()

    def keep(self, chat):
        self.chats.append(chat)
        del self.chats[:-5]

    # ---- what it does ----

    def act(self, server):
        dice = self.random.random()
        if dice < 0.72:
            self.ask(server)
        elif dice < 0.82:
            self.leave_a_stream(server)
        else:
            self.look(server)

    def ask(self, server, prompt=None, **fields):
        """Returns the answer, or None where the pool had no room."""
        prompt = prompt or self.prompt()
        status, text = server.request("POST", "/completion", server.body(
            prompt, ANSWER_TOKENS, n_probs=LOGPROBS, **fields))
        self.box.figures.add("requests")
        if status != 200:
            if self.box.pool_may_be_full and FULL_POOL in text:
                self.box.figures.add("pool_was_full")
                return None
            raise AssertionError(f"/completion: {status} {text}")
        answer = answer_of(json.loads(text))
        if self.box.ending.is_set() and len(answer.tokens) < ANSWER_TOKENS:
            return None  # cut off by SIGTERM
        self.box.figures.add("prompt_tokens", len(prompt))
        if answer.cache_n + answer.prompt_n != len(prompt):
            raise AssertionError(f"{answer.cache_n} reused + {answer.prompt_n} computed are not "
                                 f"the prompt's {len(prompt)} tokens")
        self.box.reference.check(prompt, answer)
        self.keep(prompt + answer.tokens)
        return answer

    def leave_a_stream(self, server):
        prompt = self.prompt()
        self.box.figures.add("requests")
        connection = server.begin_stream(prompt, 200)
        try:
            lines = self.random.randrange(20)
            if lines:
                response = connection.getresponse()
                for _ in range(lines):
                    response.readline()
                response.close()
        finally:
            connection.close()
        self.box.figures.add("streams_left")

    def look(self, server):
        """Somebody who manages, now and then."""
        listed = server.json("GET", "/conversations")["conversations"]
        dice = self.random.random()
        # What the box keeps under a name, it will ask for.
        others = [c["id"] for c in listed if not (c["name"] or "").startswith("kept")]
        if dice < 0.3 or not others:
            server.lookups(20)
            server.metrics()
            return
        some = self.random.choice(others)
        if dice < 0.5:
            self.one_of(server, (200, 404), "GET", f"/conversations/{some}")
        elif dice < 0.65:
            self.one_of(server, (200, 404, 507), "POST", f"/conversations/{some}/pin",
                        {"pinned": self.random.random() < 0.4})
        elif dice < 0.72:
            if self.one_of(server, (200, 404), "DELETE", f"/conversations/{some}") == 200:
                self.box.figures.add("forgotten")
                self.one_of(server, (404,), "GET", f"/conversations/{some}")
                self.box.forgotten.add(some)
        elif dice < 0.86:
            slot = self.random.randrange(self.box.slots)
            name = f"taken {self.random.randrange(3)}"
            action = self.random.choice(("save", "restore", "erase"))
            # 500: what the name stands for was damaged.
            statuses = (200, 400, 404, 409, 507) + ((500,) if self.box.was_damaged else ())
            status = self.one_of(server, statuses, "POST",
                                 f"/slots/{slot}?action={action}", {"filename": name})
            self.box.figures.add(f"slot_{action}_{status}")
        else:
            budgets = {"disk_gib": self.random.choice((0.1, self.box.disk_gib))}
            if self.box.ram_mib:
                budgets["ram_mib"] = self.random.choice((0, self.box.ram_mib))
            self.one_of(server, (200,), "POST", "/conversations/budgets", budgets)
            self.box.figures.add("budgets_changed")

    @staticmethod
    def one_of(server, statuses, method, path, body=None):
        status, text = server.request(method, path, body)
        if status not in statuses:
            raise AssertionError(f"{method} {path}: {status} {text}")
        return status
