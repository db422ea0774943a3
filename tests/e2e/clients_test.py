"""The clients that people use: the packages openai and anthropic, and curl.

Each has the same talk: several turns with tools in the prompt, one of them a call with its result,
the server killed between them. What it counts as cached is compared with what is known to be kept,
what it reads with the answers of a server that nobody interrupts.
"""

import json
import os
import shutil
import subprocess
import sys
import unittest

import gguf
from parkade_process import DEADLINE_S, ROOT, ServerTest, model

sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import make_models  # noqa: E402 (its folder is known now)

TEMPLATE = os.path.join(ROOT, "tests", "e2e", "tools_template.jinja")
ANSWER_TOKENS = 24
SYSTEM = "you would like to see what people write about this " * 60
QUESTIONS = ("what did you find there", "how long is the way", "is there water", "who made it",
             "can you tell more about that")
CALL_TURN = 2  # the turn after which the client's history has a call and its result
KILLED_BEFORE = (1, 3)
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


class Counted:
    """One answer: its text, and what the client was told of the prompt."""

    def __init__(self, text, prompt, cached, answer):
        self.text, self.prompt, self.cached, self.answer = text, prompt, cached, answer


class OpenAiTalk:
    """The chat endpoint, through the package openai."""

    def __init__(self, stream, **fields):
        self.stream = stream
        self.fields = fields  # of llama-server's own, in every request
        self.messages = [{"role": "system", "content": SYSTEM}]
        self.tools = [{"type": "function", "function": {
            "name": "weather", "description": "the weather of a city", "parameters": CITY}}]

    def ask(self, port, question):
        if question is not None:
            self.messages.append({"role": "user", "content": question})
        body = {"model": "any", "messages": self.messages, "tools": self.tools,
                "max_tokens": ANSWER_TOKENS, "temperature": 0}
        return self.send(port, body)

    def send(self, port, body):
        import openai  # takes long, and half of the tests don't need it
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none",
                               max_retries=0, timeout=DEADLINE_S)
        if not self.stream:
            answer = client.chat.completions.create(**body)
            text, usage = answer.choices[0].message.content, answer.usage
        else:
            text, usage = "", None
            for chunk in client.chat.completions.create(
                    stream=True, stream_options={"include_usage": True}, **body):
                if chunk.choices:
                    text += chunk.choices[0].delta.content or ""
                usage = chunk.usage or usage
        return Counted(text, usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens,
                       usage.completion_tokens)

    def keep(self, text):
        self.messages.append({"role": "assistant", "content": text})

    def keep_call(self):
        self.messages.append({"role": "assistant", "content": None, "tool_calls": [
            {"id": "call1", "type": "function",
             "function": {"name": "weather", "arguments": '{"city": "rome"}'}}]})
        self.messages.append({"role": "tool", "tool_call_id": "call1", "content": "no water"})
        return None  # the result is what is asked about


class CurlTalk(OpenAiTalk):
    """The same endpoint, as a shell script would ask it."""

    def send(self, port, body):
        body = {**body, "stream": self.stream, **self.fields}
        if self.stream:
            body["stream_options"] = {"include_usage": True}
        output = subprocess.run(
            ["curl", "--silent", "--show-error", "--no-buffer", "--noproxy", "*", "--fail",
             "--max-time", str(int(DEADLINE_S)), "--header", "Content-Type: application/json",
             "--data-binary", "@-", f"http://127.0.0.1:{port}/v1/chat/completions"],
            input=json.dumps(body), capture_output=True, text=True, check=True).stdout
        if not self.stream:
            answers = [json.loads(output)]
        else:
            lines = [line[6:] for line in output.splitlines() if line.startswith("data: ")]
            assert lines[-1] == "[DONE]", lines[-1]
            answers = [json.loads(line) for line in lines[:-1]]
        text = "".join(choice.get("message", choice.get("delta"))["content"] or ""
                       for answer in answers for choice in answer["choices"]
                       if "content" in choice.get("message", choice.get("delta")))
        usage = [answer["usage"] for answer in answers if answer.get("usage")][-1]
        return Counted(text, usage["prompt_tokens"],
                       usage["prompt_tokens_details"]["cached_tokens"], usage["completion_tokens"])


class AnthropicTalk:
    """The messages endpoint, through the package anthropic."""

    def __init__(self, stream):
        self.stream = stream
        self.messages = []
        self.tools = [{"name": "weather", "description": "the weather of a city",
                       "input_schema": CITY}]

    def ask(self, port, question):
        if question is not None:
            self.messages.append({"role": "user", "content": question})
        import anthropic  # takes long, and half of the tests don't need it
        client = anthropic.Anthropic(base_url=f"http://127.0.0.1:{port}", api_key="none",
                                     max_retries=0, timeout=DEADLINE_S)
        body = {"model": "any", "system": SYSTEM, "messages": self.messages, "tools": self.tools,
                "max_tokens": ANSWER_TOKENS, "extra_body": {"temperature": 0}}
        if self.stream:
            with client.messages.stream(**body) as stream:
                text = "".join(stream.text_stream)
                answer = stream.get_final_message()
            assert text == answer.content[0].text, answer
        else:
            answer = client.messages.create(**body)
        usage = answer.usage
        cached = usage.cache_read_input_tokens
        return Counted(answer.content[0].text, usage.input_tokens + cached, cached,
                       usage.output_tokens)

    def keep(self, text):
        self.messages.append({"role": "assistant", "content": text})

    def keep_call(self):
        self.messages.append({"role": "assistant", "content": [
            {"type": "tool_use", "id": "call1", "name": "weather", "input": {"city": "rome"}}]})
        self.messages.append({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "call1", "content": "no water"}]})
        return None


class WordsTest(ServerTest):
    def word_model(self, kind):
        """A model that answers in whole words, so that a text's tokens are those it was made of."""
        path = os.path.join(self.folder, f"{kind}.gguf")
        shutil.copy(model(kind), path)
        words = {f"\u2581{word}" for word in make_models.WORDS}
        output = next(tensor for tensor in gguf.GGUFReader(path, "r+").tensors
                      if tensor.name == "output.weight")
        for token, (piece, _, _) in enumerate(make_models.vocabulary()):
            if piece not in words:
                output.data[token] = 0
        output.data.flush()
        return path


class ClientsTest(WordsTest):
    def talk(self, kind, Talk, stream):
        path = self.word_model(kind)
        arguments = ("--jinja", "--chat-template-file", TEMPLATE)
        plain = self.start_plain(path, *arguments, slots=1)
        server = self.start(path, *arguments, slots=1)
        mine, theirs = Talk(stream), Talk(stream)
        held = 0
        for turn, question in enumerate(QUESTIONS):
            killed = turn in KILLED_BEFORE
            if killed:
                server.wait_parked()
                server.kill()
                server = self.start(path, *arguments, slots=1)
            if turn == CALL_TURN + 1:
                question = None  # the call's result stands there
            reference = theirs.ask(plain.port, question)
            answer = mine.ask(server.port, question)
            self.assertEqual(answer.text, reference.text)
            self.assertEqual(answer.prompt, reference.prompt)
            self.assertEqual(answer.answer, ANSWER_TOKENS)
            self.assertEqual(answer.cached, held, server.last_lookup())
            if turn:
                self.assert_served(server, "disk" if killed else "slot", held, answer.prompt)
            held = answer.prompt + answer.answer - 1
            if turn == CALL_TURN:
                # The client keeps a call, not what the model said: up to the prompt's end they
                # are alike.
                held = answer.prompt
                mine.keep_call()
                theirs.keep_call()
            else:
                mine.keep(answer.text)
                theirs.keep(reference.text)

    def test_openai(self):
        self.talk("dense", OpenAiTalk, False)

    def test_openai_stream(self):
        self.talk("dense", OpenAiTalk, True)

    def test_openai_stream_hybrid(self):
        self.talk("hybrid", OpenAiTalk, True)

    def test_curl(self):
        self.talk("dense", CurlTalk, False)

    def test_curl_stream(self):
        self.talk("dense", CurlTalk, True)

    def test_anthropic(self):
        self.talk("dense", AnthropicTalk, False)

    def test_anthropic_stream(self):
        self.talk("dense", AnthropicTalk, True)

    def test_anthropic_hybrid(self):
        self.talk("hybrid", AnthropicTalk, False)


if __name__ == "__main__":
    unittest.main()
