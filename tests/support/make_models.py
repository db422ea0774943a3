#!/usr/bin/env python3
"""Writes tiny models with random weights, one for each kind of memory the cache knows, and what
belongs to some of them: LoRA adapters, control vectors, projectors for images.

  make_models.py FOLDER [KIND...]

Kinds: see KINDS at the end; all of them when none is named. The seed is fixed, so a file is the
same every time; an existing file is kept. Needs the packages gguf and numpy. The models talk
nonsense, but what they say depends on everything they have read: that is all the tests need.
"""

import os
import sys
import zlib

import gguf
import numpy as np

CONTEXT_TOKENS = 32768
EMBD = 128
HEAD = 64  # rows of quantised caches are rotated only when the head is a multiple of 64
WINDOW_TOKENS = 64

WORDS = ("the of and to in is you that it he was for on are as with his they at be this have from"
         " or one had by word but not what all were we when your can said there use an each which"
         " she do how their if will up other about out many then them these so some her would make"
         " like him into time has look two more write go see number no way could people my than"
         " first water been call who oil its now find long down day did get come made may part"
         ).split()


def vocabulary():
    """Sentence pieces with byte fallback: every text can be tokenised."""
    tokens = [("<unk>", 0.0, gguf.TokenType.UNKNOWN), ("<s>", 0.0, gguf.TokenType.CONTROL),
              ("</s>", 0.0, gguf.TokenType.CONTROL)]
    tokens += [(f"<0x{byte:02X}>", 0.0, gguf.TokenType.BYTE) for byte in range(256)]
    pieces = {"\u2581": None}
    for character in range(0x21, 0x7F):
        pieces[chr(character)] = None
    # A piece is reached by joining neighbours, so every beginning of a word is a piece too.
    for word in WORDS:
        for end in range(1, len(word) + 1):
            pieces["\u2581" + word[:end]] = None
    tokens += [(piece, -float(rank), gguf.TokenType.NORMAL) for rank, piece in enumerate(pieces)]
    return tokens


class Model:
    def __init__(self, path, arch, name, layers):
        self.writer = gguf.GGUFWriter(path, arch)
        self.random = np.random.default_rng(zlib.crc32(name.encode()))
        self.layers = layers
        self.tokens = vocabulary()
        writer = self.writer
        writer.add_name(f"parkade-test-{name}")
        writer.add_context_length(CONTEXT_TOKENS)
        writer.add_embedding_length(EMBD)
        writer.add_block_count(layers)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_vocab_size(len(self.tokens))
        writer.add_tokenizer_model("llama")
        writer.add_tokenizer_pre("default")
        writer.add_token_list([token for token, _, _ in self.tokens])
        writer.add_token_scores([score for _, score, _ in self.tokens])
        writer.add_token_types([int(kind) for _, _, kind in self.tokens])
        writer.add_unk_token_id(0)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_add_bos_token(True)

    def matrix(self, name, n_in, n_out, gain=1.0, full=False):
        data = self.random.standard_normal((n_out, n_in), dtype=np.float32)
        data *= gain / np.sqrt(n_in)
        self.writer.add_tensor(name, data if full else data.astype(np.float16))

    def vector(self, name, size, base=0.0, spread=0.1):
        data = base + spread * self.random.standard_normal(size, dtype=np.float32)
        self.writer.add_tensor(name, data.astype(np.float32))

    def vectors(self, name, shape, base, spread):
        data = base + spread * self.random.standard_normal(shape, dtype=np.float32)
        self.writer.add_tensor(name, data.astype(np.float32))

    def embeddings(self, norm="output_norm.weight"):
        count = len(self.tokens)
        embedding = self.random.standard_normal((count, EMBD), dtype=np.float32)
        self.writer.add_tensor("token_embd.weight", embedding.astype(np.float16))
        output = self.random.standard_normal((count, EMBD), dtype=np.float32) / np.sqrt(EMBD)
        # Control and byte tokens never win: answers are readable and end where they are told to.
        for index, (_, _, kind) in enumerate(self.tokens):
            if kind != gguf.TokenType.NORMAL:
                output[index] = 0.0
        self.writer.add_tensor("output.weight", (4.0 * output).astype(np.float16))
        self.vector(norm, EMBD, 1.0)

    def attention(self, layer, heads, kv_heads):
        # Peaked attention: rows far back keep their weight in the answer.
        self.matrix(f"blk.{layer}.attn_q.weight", EMBD, heads * HEAD, gain=2.0)
        self.matrix(f"blk.{layer}.attn_k.weight", EMBD, kv_heads * HEAD, gain=2.0)
        self.matrix(f"blk.{layer}.attn_v.weight", EMBD, kv_heads * HEAD)
        self.matrix(f"blk.{layer}.attn_output.weight", heads * HEAD, EMBD)

    def feed_forward(self, layer, size):
        self.vector(f"blk.{layer}.ffn_norm.weight", EMBD, 1.0)
        self.matrix(f"blk.{layer}.ffn_gate.weight", EMBD, size)
        self.matrix(f"blk.{layer}.ffn_up.weight", EMBD, size)
        self.matrix(f"blk.{layer}.ffn_down.weight", size, EMBD)

    def finish(self):
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


DENSE_LAYERS = 4


def dense(path):
    model = Model(path, "llama", "dense", layers=DENSE_LAYERS)
    model.writer.add_feed_forward_length(256)
    model.writer.add_head_count(4)
    model.writer.add_head_count_kv(2)
    model.writer.add_key_length(HEAD)
    model.writer.add_value_length(HEAD)
    model.writer.add_rope_dimension_count(HEAD)
    model.embeddings()
    for layer in range(model.layers):
        model.vector(f"blk.{layer}.attn_norm.weight", EMBD, 1.0)
        model.attention(layer, 4, 2)
        model.feed_forward(layer, 256)
    model.finish()


def window(path):
    model = Model(path, "gemma3", "window", layers=6)
    model.writer.add_feed_forward_length(256)
    model.writer.add_head_count(4)
    model.writer.add_head_count_kv(2)
    model.writer.add_key_length(HEAD)
    model.writer.add_value_length(HEAD)
    model.writer.add_sliding_window(WINDOW_TOKENS)
    model.embeddings()
    for layer in range(model.layers):
        for norm in ("attn_norm", "post_attention_norm", "post_ffw_norm"):
            model.vector(f"blk.{layer}.{norm}.weight", EMBD, 1.0)
        for norm in ("attn_q_norm", "attn_k_norm"):
            model.vector(f"blk.{layer}.{norm}.weight", HEAD, 1.5)
        model.attention(layer, 4, 2)
        model.feed_forward(layer, 256)
    model.finish()


def recurrent(path):
    inner, state, rank, kernel = 2 * EMBD, 16, 8, 4
    model = Model(path, "mamba", "recurrent", layers=4)
    model.writer.add_feed_forward_length(0)
    model.writer.add_head_count(0)
    model.writer.add_ssm_conv_kernel(kernel)
    model.writer.add_ssm_inner_size(inner)
    model.writer.add_ssm_state_size(state)
    model.writer.add_ssm_time_step_rank(rank)
    model.embeddings()
    for layer in range(model.layers):
        prefix = f"blk.{layer}."
        model.vector(prefix + "attn_norm.weight", EMBD, 1.0)
        model.matrix(prefix + "ssm_in.weight", EMBD, 2 * inner)
        model.matrix(prefix + "ssm_conv1d.weight", kernel, inner, full=True)
        model.vector(prefix + "ssm_conv1d.bias", inner)
        model.matrix(prefix + "ssm_x.weight", inner, rank + 2 * state)
        model.matrix(prefix + "ssm_dt.weight", rank, inner)
        # Slow decay: the state remembers hundreds of tokens.
        model.vector(prefix + "ssm_dt.bias", inner, -4.0)
        model.vectors(prefix + "ssm_a", (inner, state), -0.5, 0.05)
        model.vector(prefix + "ssm_d", inner, 1.0)
        model.matrix(prefix + "ssm_out.weight", inner, EMBD)
    model.finish()


def short_convolutions(path, name, window_tokens):
    cache, kv_heads = 3, [0, 1, 0, 1, 0]
    model = Model(path, "lfm2", name, layers=len(kv_heads))
    model.writer.add_feed_forward_length(256)
    model.writer.add_head_count(EMBD // HEAD)
    model.writer.add_head_count_kv(kv_heads)
    model.writer.add_uint32("lfm2.shortconv.l_cache", cache)
    model.writer.add_rope_dimension_count(HEAD)
    if window_tokens:
        model.writer.add_sliding_window(window_tokens)
    model.embeddings(norm="token_embd_norm.weight")
    for layer, heads in enumerate(kv_heads):
        prefix = f"blk.{layer}."
        model.vector(prefix + "attn_norm.weight", EMBD, 1.0)
        if heads:
            model.vector(prefix + "attn_q_norm.weight", HEAD, 1.5)
            model.vector(prefix + "attn_k_norm.weight", HEAD, 1.5)
            model.attention(layer, EMBD // HEAD, heads)
        else:
            model.matrix(prefix + "shortconv.conv.weight", cache, EMBD, full=True)
            model.matrix(prefix + "shortconv.in_proj.weight", EMBD, 3 * EMBD)
            model.matrix(prefix + "shortconv.out_proj.weight", EMBD, EMBD)
        model.feed_forward(layer, 256)
    model.finish()


def mrope(path):
    """Positions of several numbers, as vision models have them."""
    model = Model(path, "qwen2vl", "mrope", layers=4)
    model.writer.add_feed_forward_length(256)
    model.writer.add_head_count(EMBD // HEAD)
    model.writer.add_head_count_kv(1)
    model.writer.add_rope_dimension_sections([8, 12, 12, 0])
    model.embeddings()
    for layer in range(model.layers):
        model.vector(f"blk.{layer}.attn_norm.weight", EMBD, 1.0)
        model.attention(layer, EMBD // HEAD, 1)
        model.feed_forward(layer, 256)
    model.finish()


class Part:
    """A file that belongs to a model: no vocabulary."""

    def __init__(self, path, arch, name):
        self.writer = gguf.GGUFWriter(path, arch)
        self.random = np.random.default_rng(zlib.crc32(name.encode()))

    def tensor(self, name, shape, gain, base=0.0, full=True):
        data = base + gain * self.random.standard_normal(shape, dtype=np.float32)
        self.writer.add_tensor(name, data.astype(np.float32 if full else np.float16))

    def linear(self, name, n_in, n_out):
        self.tensor(name + ".weight", (n_out, n_in), 1.0 / np.sqrt(n_in))
        self.tensor(name + ".bias", n_out, 0.1)

    finish = Model.finish


def dense_lora(path, name):
    """An adapter of rank 4 for the dense model's queries and values."""
    rank = 4
    part = Part(path, "llama", name)
    part.writer.add_type("adapter")
    part.writer.add_string("adapter.type", "lora")
    part.writer.add_float32("adapter.lora.alpha", 4.0)
    for layer in range(DENSE_LAYERS):
        for weight, n_out in (("attn_q", 4 * HEAD), ("attn_v", 2 * HEAD)):
            tensor = f"blk.{layer}.{weight}.weight"
            part.tensor(tensor + ".lora_a", (rank, EMBD), 1.0 / np.sqrt(EMBD))
            part.tensor(tensor + ".lora_b", (n_out, rank), 0.5)
    part.finish()


def dense_vector(path, name):
    part = Part(path, "controlvector", name)
    part.writer.add_string("controlvector.model_hint", "llama")
    part.writer.add_uint32("controlvector.layer_count", DENSE_LAYERS - 1)
    for layer in range(1, DENSE_LAYERS):
        part.tensor(f"direction.{layer}", EMBD, 0.5)
    part.finish()


def projector(path, name, kind, image_size, patch):
    """A vision encoder of one layer."""
    embd, heads, forward = 64, 2, 128
    part = Part(path, "clip", name)
    writer = part.writer
    writer.add_string("clip.projector_type", kind)
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_bool("clip.use_gelu", True)
    for key, value in (("embedding_length", embd), ("feed_forward_length", forward),
                       ("block_count", 1), ("projection_dim", EMBD), ("image_size", image_size),
                       ("patch_size", patch), ("attention.head_count", heads)):
        writer.add_uint32("clip.vision." + key, value)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-6)
    writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])
    patch_shape = (embd, 3, patch, patch)
    part.tensor("v.patch_embd.weight", patch_shape, 0.3 / patch)
    for norm in ("ln1", "ln2"):
        part.tensor(f"v.blk.0.{norm}.weight", embd, 0.1, 1.0)
        part.tensor(f"v.blk.0.{norm}.bias", embd, 0.1)
    for name_of in ("attn_q", "attn_k", "attn_v", "attn_out"):
        part.linear("v.blk.0." + name_of, embd, embd)
    part.linear("v.blk.0.ffn_up", embd, forward)
    part.linear("v.blk.0.ffn_down", forward, embd)
    part.tensor("v.post_ln.weight", embd, 0.1, 1.0)
    part.tensor("v.post_ln.bias", embd, 0.1)
    if kind == "qwen2vl_merger":
        part.tensor("v.patch_embd.weight.1", patch_shape, 0.3 / patch)
        part.linear("mm.0", 4 * embd, 4 * embd)
        part.linear("mm.2", 4 * embd, EMBD)
    else:
        part.tensor("v.patch_embd.bias", embd, 0.1)
        part.tensor("v.position_embd.weight", ((image_size // patch) ** 2, embd), 0.5)
        part.tensor("mm.input_projection.weight", (embd, EMBD), 1.0 / np.sqrt(embd))
        part.tensor("mm.soft_emb_norm.weight", embd, 0.1, 1.0)
    part.finish()


KINDS = {
    "dense": dense,
    "dense_lora_a": lambda path: dense_lora(path, "dense_lora_a"),
    "dense_lora_b": lambda path: dense_lora(path, "dense_lora_b"),
    "dense_vector_a": lambda path: dense_vector(path, "dense_vector_a"),
    "dense_vector_b": lambda path: dense_vector(path, "dense_vector_b"),
    "mrope": mrope,
    "mrope_projector": lambda path: projector(path, "mrope_projector", "qwen2vl_merger", 56, 14),
    "window_projector": lambda path: projector(path, "window_projector", "gemma3", 128, 8),
    "window": window,
    "recurrent": recurrent,
    "hybrid": lambda path: short_convolutions(path, "hybrid", 0),
    "hybrid_window": lambda path: short_convolutions(path, "hybrid_window", WINDOW_TOKENS),
}


def main(arguments):
    if not arguments or any(kind not in KINDS for kind in arguments[1:]):
        sys.exit(__doc__)
    folder = arguments[0]
    os.makedirs(folder, exist_ok=True)
    for kind in arguments[1:] or KINDS:
        path = os.path.join(folder, kind + ".gguf")
        if os.path.exists(path):
            continue
        KINDS[kind](path + ".tmp")
        os.replace(path + ".tmp", path)
        print(f"{path}: {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
