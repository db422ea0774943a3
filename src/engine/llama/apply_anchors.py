#!/usr/bin/env python3
"""Writes edited copies of llama.cpp's files: each edit is a text beside an anchor line.

The source tree is only read, so one fetched and built llama.cpp serves any number of build folders.
"""

import argparse
import json
import pathlib
import sys

COMPILED = {".c", ".cc", ".cpp", ".cu"}
FIELDS = {"hook", "file", "anchor", "where", "text"}


class AnchorError(Exception):
    """An edit that cannot be made; the message names file, anchor, count and what to do."""


def load(path):
    edits = json.loads(path.read_text(encoding="utf-8"))
    for edit in edits:
        name = edit.get("hook", "?")
        if not FIELDS <= edit.keys():
            missing = ", ".join(sorted(FIELDS - edit.keys()))
            raise AnchorError(f"{path}: hook '{name}' lacks {missing}")
        if edit["where"] not in ("before", "after"):
            raise AnchorError(f"{path}: hook '{name}': where is 'before' or 'after'")
        if pathlib.PurePosixPath(edit["file"]).suffix not in COMPILED:
            raise AnchorError(f"{path}: hook '{name}': {edit['file']} is not a file that is "
                              "compiled by itself; only such files can be edited")
    return edits


def find(lines, edit):
    """Returns (first, last + 1) of the one place where the anchor's lines stand."""
    wanted = [line.strip() for line in edit["anchor"].strip("\n").split("\n")]
    stripped = [line.strip() for line in lines]
    size = len(wanted)
    places = [i for i in range(len(lines) - size + 1) if stripped[i:i + size] == wanted]
    if len(places) != 1:
        raise AnchorError(
            f"{edit['file']}: the anchor of hook '{edit['hook']}' occurs {len(places)} times, "
            f"must be 1:\n    {edit['anchor'].strip()}\n"
            "This llama.cpp differs from the one that the anchors were written for. Take that\n"
            "one (no PARKADE_LLAMA_SOURCE), or give the hook an anchor that fits in\n"
            "src/engine/llama/anchors.json.")
    return places[0], places[0] + size


def indented(text, indent):
    for line in text.rstrip("\n").split("\n"):
        is_code = line.strip() and not line.startswith("#")
        yield (indent + line if is_code else line) + "\n"


def edited(source, edits):
    """Applies edits, all found in the pristine text: none can move or hide another's anchor."""
    lines = source.splitlines(keepends=True)
    added = {}
    for edit in edits:
        first, end = find(lines, edit)
        indent = lines[first][:len(lines[first]) - len(lines[first].lstrip())]
        place = first if edit["where"] == "before" else end
        added.setdefault(place, []).extend(indented(edit["text"], indent))
    result = []
    for i, line in enumerate(lines):
        result += added.get(i, [])
        result.append(line)
    return "".join(result + added.get(len(lines), []))


def write_if_changed(path, text):
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--anchors", type=pathlib.Path, required=True)
    parser.add_argument("--source", type=pathlib.Path, required=True, help="llama.cpp, only read")
    parser.add_argument("--output", type=pathlib.Path, required=True, help="edited copies go here")
    args = parser.parse_args()
    try:
        by_file = {}
        for edit in load(args.anchors):
            by_file.setdefault(edit["file"], []).append(edit)
        texts = {}
        for name, edits in by_file.items():
            pristine = args.source / name
            if not pristine.is_file():
                raise AnchorError(f"{name}: no such file in {args.source}")
            texts[name] = edited(pristine.read_text(encoding="utf-8"), edits)
    except (AnchorError, OSError, ValueError) as error:
        print(f"apply_anchors: {error}", file=sys.stderr)
        return 1
    for name, text in texts.items():
        write_if_changed(args.output / name, text)
        print(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
