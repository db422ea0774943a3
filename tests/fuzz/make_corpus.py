#!/usr/bin/env python3
"""Writes the seeds of the fuzz programs, tests/fuzz/corpus/<program>/<name>, from the golden files.

    make_corpus.py

Seeds whose names begin with `found_` are inputs that broke something once: they stay. Standard
library only.
"""

import struct
from pathlib import Path

FUZZ = Path(__file__).resolve().parent
TREE = FUZZ.parents[1]


def golden(name):
    lines = (TREE / "tests/golden" / f"{name}.hex").read_text().splitlines()
    return bytes.fromhex("".join(line for line in lines if not line.startswith("#")))


def rows():
    kinds = {"manifest": 0, "tokens": 1, "tokens_packed": 1, "image": 2, "identity": 3}
    kinds["attributes"] = 4
    for name, kind in kinds.items():
        yield name, bytes([kind]) + golden(f"format_1_{name}")
        # With the highest bit set checksums stay as they are; 132 = 22 * 6.
        yield name + "_unchecked", bytes([132 + kind]) + golden(f"format_1_{name}")
    keys = golden("format_1_keys")
    for name, begin, end in (("manifest", 0, 20), ("image", 20, 42), ("conversation", 42, 58)):
        yield "key_" + name, bytes([5]) + keys[begin:end]


def segment():
    extent = golden("format_1_extent_header")
    stored = bytes(range(100))
    for name, switches in (("right", 0), ("unchecked", 0x80)):
        yield name, (
            bytes([switches])
            + extent
            + struct.pack("<H", len(stored))
            + stored
            + golden("format_1_segment_head")
        )
    sealed = golden("format_2_extent")
    yield "sealed", (
        bytes([0x80])
        + sealed[:64]
        + struct.pack("<H", len(sealed) - 64)
        + sealed[64:]
        + golden("format_2_segment_head")
    )


def container():
    whole = golden("format_1_container")
    yield "whole", b"\0" + whole
    yield "unchecked", b"\x80" + whole
    yield "header", b"\0" + whole[:128]


def config():
    text = (TREE / "config/parkade.conf").read_text()
    yield "example", text.encode()
    # Its comments hold every key with a value.
    keys = [line.lstrip("# ") for line in text.splitlines() if " = " in line and "conv" in line]
    yield "all_keys", "\n".join(keys).encode()
    yield "off", b"conversation-cache-disk = off\nconversation-cache-key-file = off\n"
    yield "fractions", b"conversation-cache-disk-gib = 0.1\r\nconversation-cache-disk= /a b/c \n"


def http():
    first = "0000000000000001000000000000000a"
    requests = {
        "list": ("GET /conversations", "limit=2&after=" + first, ""),
        "one": ("GET /conversations/" + first, "", ""),
        "forget": ("DELETE /conversations/" + first, "", ""),
        "pin": (f"POST /conversations/{first}/pin", "", '{"pinned":true,"name":"caf\u00e9"}'),
        "lookups": ("GET /conversations/lookups", "limit=1000", ""),
        "budgets": ("POST /conversations/budgets", "", '{"ram_mib":512,"disk_gib":1.5}'),
        "wrong_method": ("PUT /conversations/budgets", "", ""),
        "save": ("save 0", "", '{"filename":"book club"}'),
        "restore": ("restore 12", "", '{"filename":"../x"}'),
        "erase": ("erase 1", "", ""),
        "deep": ("POST /conversations/budgets", "", "[" * 500 + "]" * 500),
    }
    for name, parts in requests.items():
        yield name, "\n".join(parts).encode()


def state_planes(planes, row_bytes):
    header = struct.pack("<II", 0, (planes + 1) // 2)
    for plane in range(planes):
        header += struct.pack("<iQ", plane, row_bytes)
    return header


def state():
    planes, rows_held = 2, 4
    runs = bytes([planes]) + bytes([0, rows_held]) * planes
    for name, shape in (("kv", 0), ("wide", 0x80)):
        cells = b""
        for position in range(rows_held):
            cells += struct.pack("<iI", position, 1)
            if shape & 0x80:
                cells += struct.pack("<iii", position, position, position)
            cells += struct.pack("<i", 0)
        header = struct.pack("<II", 1, rows_held) + cells + state_planes(planes, 32)
        yield name, bytes([shape | planes - 1, 0x05]) + struct.pack("<HH", 3, 0) + runs + header
    one = bytes([planes]) + bytes([3, 1]) * planes
    header = struct.pack("<IiI", 1, 3, 0) + state_planes(planes, 32)
    yield "state", bytes([0x40 | planes - 1, 0x05]) + struct.pack("<HH", 3, 0) + one + header
    two = struct.pack("<II", 2, 0) + struct.pack("<IiIi", 1, 0, 1, 0) + state_planes(planes, 32)
    yield "streams", bytes([planes - 1, 0x05]) + struct.pack("<HH", 0, 0) + runs + two


def main():
    for program in (rows, segment, container, config, http, state):
        folder = FUZZ / "corpus" / program.__name__
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            if not old.name.startswith("found_"):
                old.unlink()
        for name, seed in program():
            (folder / name).write_bytes(seed)


if __name__ == "__main__":
    main()
