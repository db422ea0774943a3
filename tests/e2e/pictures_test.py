"""Images in a chat: known by content and position, reused whole or not at all."""

import base64
import random
import struct
import unittest
import zlib

from parkade_process import ServerTest, model

ANSWER_TOKENS = 32
WINDOW_TOKENS = 64
MARKER = "<__image__>"


def picture(name, width, height):
    """A PNG of noise; the same name gives the same one."""
    noise = random.Random(name)
    rows = b"".join(b"\0" + noise.randbytes(3 * width) for _ in range(height))

    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data +
                struct.pack(">I", zlib.crc32(kind + data)))
    png = (b"\x89PNG\r\n\x1a\n" +
           chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
           chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
    return base64.b64encode(png).decode()


def words(name, count):
    return " ".join(random.Random(name).choices(
        "the of and to in is you that it he was for on are as with his they".split(), k=count))


class PicturesTest(ServerTest):
    FLAGS = {"window": ["--swa-full"]}
    # Tokens of an image, from the projector's sizes.
    IMAGE_TOKENS = {"mrope": 12, "window": 16}

    @staticmethod
    def projector(kind):
        return "mrope_projector" if kind == "mrope" else "window_projector"

    def begin(self, kind, plain=False, flags=None, **options):
        start = self.start_plain if plain else self.start
        return start(model(kind), "--mmproj", model(self.projector(kind)),
                     *(self.FLAGS.get(kind, []) if flags is None else flags),
                     environment={"LLAMA_MEDIA_MARKER": MARKER}, **options)

    @staticmethod
    def prompt(text, *pictures):
        return {"prompt_string": text, "multimodal_data": list(pictures)}

    def turns(self):
        before = words("before", 300)
        first = f"{before} {MARKER} {words('after', 30)}"
        return before, first, f"{first} {words('more', 20)}"

    def image_begin(self, server, kind, before):
        """Number of the first image's first token: text is cut into tokens piece by piece."""
        words_before = server.tokenize(before + " ")
        mark = server.json("POST", "/tokenize", {
            "content": "<|vision_start|>" if kind == "mrope" else "<start_of_image>",
            "add_special": False})["tokens"]
        return len(words_before) + len(mark)

    def goes_on(self, kind):
        before, first, longer = self.turns()
        image, other = picture("one", 112, 84), picture("two", 112, 84)
        server = self.begin(kind)
        answer = server.ask(self.prompt(first, image), ANSWER_TOKENS)
        held = answer.raw["tokens_evaluated"]
        server.wait_durable(held + ANSWER_TOKENS - 1)
        server.kill()

        server = self.begin(kind)
        second = server.ask(self.prompt(longer, image), ANSWER_TOKENS)
        lookup = self.assert_served(server, "disk", held - 1)
        self.assertLessEqual(lookup["reused_tokens"], held)
        # Another image of the same size: not from its first token on.
        third = server.ask(self.prompt(longer, other), ANSWER_TOKENS)
        lookup = server.last_lookup()
        text = self.image_begin(server, kind, before)
        self.assertEqual(lookup["matched_tokens"], text)
        self.assertEqual(lookup["reused_tokens"], text)
        self.assertEqual(lookup["miss_tokens"].get("unsupported", 0), 0)
        self.assertEqual(lookup["reason"], "diverged")
        server.wait_parked()
        server.kill()

        # Both are kept, and a text that only begins like them.
        server = self.begin(kind)
        again = server.ask(self.prompt(longer, other), ANSWER_TOKENS)
        self.assert_served(server, "disk", third.raw["tokens_evaluated"] - 1)
        text_only = server.ask(f"{before} {words('else', 50)}", ANSWER_TOKENS)
        self.assertGreaterEqual(server.last_lookup()["reused_tokens"],
                                len(server.tokenize(before)))

        plain = self.begin(kind, plain=True)
        self.assert_same_answer(answer, plain.ask(self.prompt(first, image), ANSWER_TOKENS))
        self.assert_same_answer(second, plain.ask(self.prompt(longer, image), ANSWER_TOKENS))
        reference = plain.ask(self.prompt(longer, other), ANSWER_TOKENS)
        self.assertNotEqual(reference.tokens, second.tokens)
        self.assert_same_answer(third, reference)
        self.assert_same_answer(again, reference)
        self.assert_same_answer(text_only,
                                plain.ask(f"{before} {words('else', 50)}", ANSWER_TOKENS))

    def test_wide_positions(self):
        self.goes_on("mrope")

    def test_dense(self):
        self.goes_on("dense")

    def test_hybrid(self):
        """Recurrent state: kept where an image begins and at the prompt's end."""
        _, first, longer = self.turns()
        image, other = picture("one", 112, 84), picture("two", 112, 84)
        server = self.begin("hybrid")
        answer = server.ask(self.prompt(first, image), ANSWER_TOKENS)
        held = answer.raw["tokens_evaluated"]
        server.wait_durable(held + ANSWER_TOKENS - 1)
        server.kill()
        server = self.begin("hybrid")
        second = server.ask(self.prompt(longer, image), ANSWER_TOKENS)
        lookup = self.assert_served(server, "disk", held - 4)
        self.assertLessEqual(lookup["reused_tokens"], held)
        server.wait_parked()
        server.kill()
        server = self.begin("hybrid")
        third = server.ask(self.prompt(longer, other), ANSWER_TOKENS)
        # The state before the image is kept, too.
        text = self.image_begin(server, "hybrid", self.turns()[0])
        lookup = self.assert_served(server, "disk", text)
        self.assertEqual((lookup["matched_tokens"], lookup["reused_tokens"]), (text, text))
        plain = self.begin("hybrid", plain=True)
        self.assert_same_answer(answer, plain.ask(self.prompt(first, image), ANSWER_TOKENS))
        self.assert_same_answer(second, plain.ask(self.prompt(longer, image), ANSWER_TOKENS))
        reference = plain.ask(self.prompt(longer, other), ANSWER_TOKENS)
        self.assertNotEqual(reference.tokens, second.tokens)
        self.assert_same_answer(third, reference)

    def test_full_window(self):
        self.goes_on("window")

    def test_small_window(self):
        """New tokens land in other cells, and sums round differently: as likely, not equal."""
        _, first, longer = self.turns()
        image = picture("one", 112, 84)
        server = self.begin("window", flags=[])
        held = server.ask(self.prompt(first, image), 4).raw["tokens_evaluated"]
        server.wait_durable(held)
        server.kill()
        server = self.begin("window", flags=[])
        answer = server.ask(self.prompt(longer, image), 6, n_probs=10)
        self.assert_served(server, "disk", held - WINDOW_TOKENS)
        plain = self.begin("window", plain=True, flags=[])
        reference = plain.ask(self.prompt(longer, image), 6, n_probs=10)
        self.assertEqual(answer.tokens[:1], reference.tokens[:1])
        token = answer.tokens[0]
        self.assertLess(abs(answer.logprobs[0][token] - reference.logprobs[0][token]), 0.5)
        # Rows of a window before the image are kept, too.
        server.ask(self.prompt(longer, picture("two", 112, 84)), 1)
        text = self.image_begin(server, "window", self.turns()[0])
        self.assertEqual(server.last_lookup()["reused_tokens"], text)

    def test_one_image_after_another(self):
        """The second image differs: the first stays, whole."""
        first = f"{words('a', 100)} {MARKER} {words('b', 30)} {MARKER} {words('c', 40)}"
        one, two, three = (picture(name, 112, 84) for name in ("one", "two", "three"))
        server = self.begin("mrope")
        server.ask(self.prompt(first, one, two), 8)
        server.wait_parked()
        server.kill()
        server = self.begin("mrope")
        answer = server.ask(self.prompt(first, one, three), ANSWER_TOKENS)
        lookup = server.last_lookup()
        size = self.IMAGE_TOKENS["mrope"]
        self.assertGreater(lookup["reused_tokens"], 130 + size)
        self.assertEqual(lookup["hit_tokens"], {"disk": lookup["reused_tokens"]})
        self.assertEqual(lookup["reused_tokens"], lookup["matched_tokens"])
        plain = self.begin("mrope", plain=True)
        self.assert_same_answer(answer, plain.ask(self.prompt(first, one, three), ANSWER_TOKENS))

    def test_more_chats_than_slots(self):
        """Back and forth between chats with images in one slot: RAM, then the slot's own."""
        server = self.begin("mrope", slots=1)
        plain = self.begin("mrope", plain=True, slots=1)
        prompts = [self.prompt(f"{words(name, 150)} {MARKER} {words(name + ' end', 60)}",
                               picture(name, 112, 84)) for name in ("one", "two", "three")]
        for prompt in prompts:
            server.ask(prompt, 8)
        server.wait_parked()
        for prompt in prompts:
            prompt["prompt_string"] += " " + words("next", 30)
            answer = server.ask(prompt, ANSWER_TOKENS)
            self.assert_served(server, "ram", 200)
            self.assert_same_answer(answer, plain.ask(prompt, ANSWER_TOKENS))

    def test_two_slots_in_one_pool(self):
        """Cells of two chats with images lie between each other."""
        flags = ["--kv-unified"]
        prompts = [self.prompt(f"{words(name, 150)} {MARKER} {words(name + ' end', 60)}",
                               picture(name, 112, 84)) for name in ("one", "two")]
        server = self.begin("mrope", flags=flags)
        for turn in range(2):
            for slot, prompt in enumerate(prompts):
                server.ask(prompt, 8, id_slot=slot)
                prompt["prompt_string"] += " " + words(f"turn {turn}", 30)
        server.wait_parked()
        server.kill()
        server = self.begin("mrope", flags=flags)
        plain = self.begin("mrope", plain=True, flags=flags)
        for slot, prompt in enumerate(prompts):
            answer = server.ask(prompt, ANSWER_TOKENS, id_slot=1 - slot)
            self.assert_served(server, "disk", 230)
            self.assert_same_answer(answer, plain.ask(prompt, ANSWER_TOKENS, id_slot=slot))

    def test_sessions_of_images_are_refused(self):
        server = self.begin("mrope")
        server.ask(self.prompt(f"{words('a', 100)} {MARKER} {words('b', 30)}",
                               picture("one", 112, 84)), 8, id_slot=0)
        error = server.json("POST", "/slots/0?action=save", {"filename": "pictures"}, 400)
        self.assertIn("images or sound", error["error"]["message"])
        server.wait_parked()
        chat = server.conversations()[0]["id"]
        server.json("POST", f"/conversations/{chat}/pin", {"pinned": True, "name": "pictures"})
        error = server.json("POST", "/slots/1?action=restore", {"filename": "pictures"}, 400)
        self.assertIn("images or sound", error["error"]["message"])

    def test_chat_completions(self):
        """As clients send it: the image in a message, the answer in the next turn's history."""
        server = self.begin("mrope", context=16384)

        def say(messages):
            return server.json("POST", "/v1/chat/completions", {
                "messages": messages, "max_tokens": 16, "temperature": 0})
        url = "data:image/png;base64," + picture("one", 112, 84)
        messages = [{"role": "user", "content": [
            {"type": "text", "text": words("question", 300)},
            {"type": "image_url", "image_url": {"url": url}}]}]
        first = say(messages)
        self.assertEqual(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        read = first["usage"]["prompt_tokens"]
        server.wait_durable(read)
        server.kill()
        server = self.begin("mrope", context=16384)
        messages += [{"role": "assistant", "content": first["choices"][0]["message"]["content"]},
                     {"role": "user", "content": words("and", 20)}]
        second = say(messages)
        cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertGreater(cached, 300 + self.IMAGE_TOKENS["mrope"])
        self.assertLess(second["usage"]["prompt_tokens"] - cached, 150)


if __name__ == "__main__":
    unittest.main()
