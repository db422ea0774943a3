#!/usr/bin/env python3
"""Holds the tree to the include table of DESIGN section 7 and to the limits of STYLE.

    check_tree.py [ROOT]

Prints `path:line: [rule] what is wrong` for each violation; exit status 1 if there is any. The
rules are the tables below; headers in /usr/include slip past the build's link rules, so includes
are read from the text. Standard library only.
"""

import ast
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import cpp_text

# ---- who may include whom ------------------------------------------------------------------------
# room -> the other rooms it may include. A room always includes itself. The longest match counts,
# so a single file can have a row. A C++ file that no row covers is a violation: add a row first.
CONTRACTS = "include/parkade"
FORMAT = "src/format"
EVERY_ROOM = ""
ROOMS = {
    CONTRACTS: [],
    FORMAT: [CONTRACTS],
    "src/index": [CONTRACTS],
    "src/policy": [CONTRACTS],
    "src/manager": [CONTRACTS, FORMAT, "src/index", "src/policy"],
    "src/device": [CONTRACTS],
    "src/engine/fake": [CONTRACTS, FORMAT, "src/device"],
    "src/engine/llama": [CONTRACTS, FORMAT, "src/device", "src/server"],
    "src/metrics": [CONTRACTS, "src/policy"],
    "src/server": [CONTRACTS, FORMAT, "src/metrics"],
    "src/server/main.cc": [EVERY_ROOM],
    # Composes a cache for engines, as main does for the server.
    "src/capi": [CONTRACTS, FORMAT, "src/device", "src/server", "tiers"],
    "src/cli": [CONTRACTS, FORMAT, "src/server", "tiers"],
    "tiers/ram": [CONTRACTS, FORMAT],
    "tiers/disk": [CONTRACTS, FORMAT],
    "tiers/remote": [CONTRACTS, FORMAT],
    "tests": [EVERY_ROOM],
}

# library -> (what its headers look like, the rooms that may include it). Others are free.
LIBRARIES = {
    "llama.cpp": (
        r"(.*/)?((llama|ggml|gguf|mtmd|server)([-_][\w-]+)?\.(h|hpp)"
        r"|(arg|chat|common|log|sampling|speculative)\.h)",
        ["src/engine/llama", "tests"],
    ),
    "prometheus-cpp": (r"prometheus/.*", ["src/metrics", "tests"]),
    "RocksDB": (r"rocksdb/.*", ["tiers/disk", "tests"]),
    "LZ4": (r"lz4\w*\.h", [FORMAT, "tests"]),
    "zstd": (r"(zstd\w*|zdict)\.h", [FORMAT, "tests"]),
    "xxHash": (r"xxhash\.h|xxh_x86dispatch\.h", [FORMAT, "tests"]),
    "OpenSSL": (r"openssl/.*", [FORMAT, "tiers/remote", "tests"]),
    "hiredis": (r"hiredis/.*", ["tiers/remote", "tests"]),
    "CUDA": (r"(cuda|nvml)\w*(/.*)?\.h", ["src/device", "tests"]),
    # The one door through which ids and secrets get their randomness.
    "system randomness": (r"sys/random\.h", [FORMAT, "tests"]),
    "GoogleTest": (r"(gtest|gmock)/.*", ["tests"]),
}

# Rooms that may include nothing but the C and C++ standard library, Abseil and these.
PURE_ROOMS = {
    CONTRACTS: [],
    FORMAT: ["LZ4", "zstd", "xxHash", "OpenSSL", "system randomness"],
    "src/index": [],
    "src/policy": [],
}
C_HEADERS = (
    "assert ctype errno fenv float inttypes limits locale math setjmp signal stdalign stdarg "
    "stdatomic stdbool stddef stdint stdio stdlib string threads time uchar wchar wctype"
).split()

# ---- sizes ---------------------------------------------------------------------------------------
LINE_COLUMNS = 100
FUNCTION_LINES = 70
# First match counts: (files, most lines).
FILE_LINES = [
    # The whole C API, which is installed as one header.
    (r"include/parkade/parkade\.h", 400),
    (r"include/.*\.h", 300),
    (r"tests/.*\.(h|cc|cu|py|sh)", 700),
    (r".*\.(h|cc|cu|py|sh)", 500),
]
CPP_FILES = r".*\.(h|cc|cu)"
MEASURED_LINES = r".*\.(h|cc|cu|py|sh|cmake)|(.*/)?CMakeLists\.txt"

# ---- words ---------------------------------------------------------------------------------------
# (rule, files, pattern, what to say). Brackets keep a pattern from matching itself.
TEXT_RULES = [
    ("unfinished", r".*", r"\b(TO[D]O|FIX[M]E)\b", "unfinished work belongs in an issue"),
    (
        "machine path",
        r".*",
        r"(?<![\w.})\]])(/wor[k]/|/roo[t]/|/tmp/bas[h])",
        "the path of one machine",
    ),
]
# The same, for C++ without comments, literals cut to one letter.
CODE_RULES = [
    (
        "sleep",
        r"tests/(unit|model|conformance)/.*\.(h|cc)",
        r"\b(sleep_for|sleep_until|SleepFor|(u|nano)?sleep\s*\()",
        "tests wait for events or move a fake clock",
    ),
    (
        "skip",
        r"tests/.*\.(h|cc)",
        r"\bGTEST_SKIP\b(?!\s*\(\s*\)\s*<<\s*(?!\"\")[^\s;])",
        "say why it is skipped",
    ),
    (
        "lock",
        r".*\.(h|cc|cu)",
        r"\bABSL_NO_THREAD_SAFETY_ANALYSIS\b",
        "say which lock is held: ABSL_EXCLUSIVE_LOCKS_REQUIRED, on a lambda too",
    ),
]
NAMELESS = r"((.*[_-])?(utils?|helpers?|misc)|common|(.*[_-])common)"

SKIPPED_FOLDERS = r"\..*|build(-.*)?|__pycache__|node_modules"
KEPT_FOLDERS = {".github"}
# These hold bytes, not text of ours.
SKIPPED_FILES = r".*\.(bin|gguf|png|svg|jpg|gz|zst|lz4|seg|sst)"


@dataclass(frozen=True, order=True)
class Violation:
    path: str
    line: int
    rule: str
    message: str

    def __str__(self):
        return f"{self.path}:{self.line}: [{self.rule}] {self.message}"


def matches(pattern, text):
    return re.fullmatch(pattern, text) is not None


def within(path, room):
    return room == EVERY_ROOM or path == room or path.startswith(room + "/")


def room_of(path):
    """The longest row of ROOMS that covers `path`; None if there is none."""
    return max((room for room in ROOMS if within(path, room)), key=len, default=None)


class Tree:
    """The text files below a folder, by path relative to it."""

    def __init__(self, root):
        self.root = Path(root)
        self.texts = {}
        for folder, folders, names in os.walk(self.root):
            folders[:] = sorted(
                f for f in folders if f in KEPT_FOLDERS or not matches(SKIPPED_FOLDERS, f)
            )
            for name in sorted(names):
                self.read(Path(folder) / name)

    def read(self, file):
        if file.is_symlink() or not file.is_file() or matches(SKIPPED_FILES, file.name):
            return
        try:
            text = file.read_bytes().decode("utf-8")
        except UnicodeDecodeError:
            return
        self.texts[file.relative_to(self.root).as_posix()] = text

    def resolve(self, includer, name):
        """The path of an included header of this project, or None for a library's."""
        sibling = (Path(includer).parent / name).as_posix()
        for path in (name, "include/" + name, sibling):
            path = os.path.normpath(path)
            if path in self.texts:
                return path
        if name.startswith("parkade/"):
            return "include/" + name
        # Not there: still judged by the room that it names.
        return name if room_of(name) else None


def library_of(name):
    for library, (pattern, _) in LIBRARIES.items():
        if matches(pattern, name):
            return library
    return None


def is_standard(name):
    if name.startswith("absl/") or matches(r"[a-z0-9_]+", name):
        return True
    return name.endswith(".h") and name[:-2] in C_HEADERS


def check_library_include(path, room, name):
    """What is wrong with including a library's header from `path`, or None."""
    library = library_of(name)
    if library and not any(within(path, owner) for owner in LIBRARIES[library][1]):
        owners = ", ".join(owner for owner in LIBRARIES[library][1] if owner != "tests")
        return f"{name} is {library}'s: only {owners or 'tests'} may include it"
    if room in PURE_ROOMS and not is_standard(name) and library not in PURE_ROOMS[room]:
        return f"{room} includes only the standard library and Abseil, not {name}"
    return None


def check_includes(tree):
    for path, text in tree.texts.items():
        if not matches(CPP_FILES, path):
            continue
        room = room_of(path)
        if room is None:
            yield Violation(path, 1, "include", "no row of the include table covers this file")
            continue
        home = room_of(os.path.dirname(path))
        for line, name in cpp_text.includes(text):
            target = tree.resolve(path, name)
            if ".." in name.split("/"):
                problem = f"{name}: name headers from the top of the tree"
            elif target is None:
                problem = check_library_include(path, room, name)
            elif within(target, home) or any(within(target, other) for other in ROOMS[room]):
                problem = None
            else:
                problem = f"{room} may not include {target}"
            if problem:
                yield Violation(path, line, "include", problem)


def check_names(tree):
    folders = {os.path.dirname(path) for path in tree.texts}
    for path in sorted(set(tree.texts) | folders):
        stem = os.path.basename(path).split(".")[0].lower()
        if matches(NAMELESS, stem):
            yield Violation(path, 1, "name", f"'{stem}' says nothing; name what it is for")


def check_sizes(tree):
    for path, text in tree.texts.items():
        lines = text.splitlines()
        limit = next((most for files, most in FILE_LINES if matches(files, path)), None)
        if limit is not None and len(lines) > limit:
            yield Violation(path, limit + 1, "file size", f"{len(lines)} lines, at most {limit}")
        if not matches(MEASURED_LINES, path):
            continue
        for number, line in enumerate(lines, 1):
            # An address can't be broken.
            if len(line) > LINE_COLUMNS and not re.search(r"https?://\S+$", line):
                message = f"{len(line)} columns, at most {LINE_COLUMNS}"
                yield Violation(path, number, "line length", message)


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno, node.name


def check_functions(tree):
    for path, text in tree.texts.items():
        if path.endswith(".py"):
            try:
                functions = list(python_functions(text))
            except SyntaxError as error:
                yield Violation(path, error.lineno or 1, "python", f"does not parse: {error.msg}")
                continue
        elif matches(CPP_FILES, path):
            functions = cpp_text.functions(text)
        else:
            continue
        for first, last, name in functions:
            length = last - first + 1
            if length > FUNCTION_LINES:
                message = f"{name} has {length} lines, at most {FUNCTION_LINES}"
                yield Violation(path, first, "function size", message)


def find_all(rules, path, text):
    for rule, files, pattern, message in rules:
        if not matches(files, path):
            continue
        for found in re.finditer(pattern, text):
            line = text.count("\n", 0, found.start()) + 1
            yield Violation(path, line, rule, f"'{found.group().strip()}': {message}")


def check_words(tree):
    for path, text in tree.texts.items():
        yield from find_all(TEXT_RULES, path, text)
        if any(matches(files, path) for _, files, _, _ in CODE_RULES):
            # One letter, so that an empty reason can be told from one.
            code = cpp_text.without_comments(text, literal="s")
            yield from find_all(CODE_RULES, path, code)


def check_mutexes(tree):
    """A mutex that guards nothing by annotation is one that clang can't check."""
    for path, text in tree.texts.items():
        if not matches(CPP_FILES, path):
            continue
        code = cpp_text.without_comments(text)
        for found in re.finditer(r"\babsl::Mutex\s+(\w+)[^;]*;", code):
            name = found.group(1)
            if re.search(rf"GUARDED_BY\((\w+(\.|->))?{name}\)", code) is None:
                line = code.count("\n", 0, found.start()) + 1
                yield Violation(path, line, "lock", f"nothing is ABSL_GUARDED_BY({name})")


CHECKS = [check_includes, check_names, check_sizes, check_functions, check_words, check_mutexes]


def check(root):
    """All violations of the tree at `root`, sorted."""
    tree = Tree(root)
    return sorted(violation for check_one in CHECKS for violation in check_one(tree))


def main(arguments):
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parents[2]
    if not (root / "include").is_dir():
        print(f"{root}: not a tree of this project", file=sys.stderr)
        return 2
    violations = check(root)
    for violation in violations:
        print(violation)
    print(f"{len(violations)} violations", file=sys.stderr)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
