#!/usr/bin/env python3
"""Holds the tree to its lock annotations, with clang's -Wthread-safety.

    check_thread_safety.py CLANG BUILD_FOLDER [ROOT]

The tree is built with another compiler, for which annotations are empty. Each of our sources that
sees a mutex is read by clang as the build's compile_commands.json compiles it, syntax only. Before
that, SAMPLES must be refused: where they are not, the check could not fail. A room that this build
leaves out (OPTIONAL_ROOMS) is not read; anything else that is missing is a failure. Exit status 77:
CLANG is empty. Standard library only.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cpp_text

OURS = ("include", "src", "tiers")
OPTIONAL_ROOMS = ("src/engine/llama/", "src/server/main.cc")
MUTEX_HEADERS = ("absl/synchronization/", "absl/base/thread_annotations.h")
WARNINGS = ["-Wno-everything", "-Wthread-safety", "-Wthread-safety-beta"]
ERRORS = ["-Werror=thread-safety", "-Werror=thread-safety-beta"]
SYNTAX = ["-fsyntax-only", "-fno-color-diagnostics"]

SAMPLE_HEAD = """
#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
class Account {
 public:
  void Right() {
    absl::MutexLock lock(&mu_);
    ++sum_;
    Locked();
    auto full = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return sum_ > 3; };
    mu_.Await(absl::Condition(&full));
  }
  void Locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { ++sum_; }
  void Unlocked() ABSL_LOCKS_EXCLUDED(mu_) { absl::MutexLock lock(&mu_); }
  void Wrong() { %s }
  absl::Mutex mu_;
  absl::Mutex late_ ABSL_ACQUIRED_AFTER(mu_);
  int sum_ ABSL_GUARDED_BY(mu_) = 0;
};
"""
# body of Wrong() -> what clang must say about it; empty: nothing.
SAMPLES = {
    "": "",
    "++sum_;": "writing variable 'sum_' requires holding mutex 'mu_' exclusively",
    "Locked();": "calling function 'Locked' requires holding mutex 'mu_' exclusively",
    "mu_.Lock();": "mutex 'mu_' is still held at the end of function",
    "absl::MutexLock lock(&mu_); Unlocked();":
        "cannot call function 'Unlocked' while mutex 'mu_' is held",
    "auto full = [this] { return sum_ > 3; };": "reading variable 'sum_' requires holding mutex",
    "absl::MutexLock a(&late_); absl::MutexLock b(&mu_);": "mutex 'mu_' must be acquired before",
}


def run_clang(command, folder, text=None):
    """(exit status, what clang said)."""
    done = subprocess.run(
        command, cwd=folder, input=text, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


def check_samples(clang):
    """What clang makes of SAMPLES that it should not."""
    problems = []
    command = [clang, "-x", "c++", "-std=c++20", *SYNTAX, *WARNINGS, *ERRORS, "-"]
    for body, expected in SAMPLES.items():
        status, said = run_clang(command, None, SAMPLE_HEAD % body)
        if (status != 0) != bool(expected) or expected not in said:
            problems.append(f"sample `{body}`: expected `{expected}`, clang says:\n{said}")
    return problems


class Includes:
    """Which files of the tree see a header that has to do with locks."""

    def __init__(self, root):
        self.root = root
        self.seen = {}

    def reach_mutex(self, path):
        if path not in self.seen:
            self.seen[path] = False  # of a circle
            text = (self.root / path).read_text(encoding="utf-8")
            names = [name for _, name in cpp_text.includes(text)]
            self.seen[path] = any(name.startswith(MUTEX_HEADERS) for name in names) or any(
                self.reach_mutex(inner) for inner in map(self.resolve, names) if inner
            )
        return self.seen[path]

    def resolve(self, name):
        for path in (name, "include/" + name):
            if (self.root / path).is_file():
                return path
        return None


def sources_with_locks(root):
    includes = Includes(root)
    found = (path for folder in OURS for path in (root / folder).rglob("*.cc"))
    paths = sorted(path.relative_to(root).as_posix() for path in found)
    return [path for path in paths if includes.reach_mutex(path)]


def clang_command(clang, entry):
    """The entry's command, of which macros, headers and the standard are kept."""
    words = shlex.split(entry["command"])
    kept = []
    for at, word in enumerate(words):
        if word in ("-isystem", "-include"):
            kept += words[at:at + 2]
        elif re.match(r"-(I|D|std=)\S", word):
            kept.append(word)
    return [clang, *SYNTAX, *WARNINGS, *ERRORS, *kept, entry["file"]]


def check_sources(clang, build, root):
    """Number of sources that were read, and what is wrong with them."""
    entries = {}
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        file = Path(entry["directory"], entry["file"])
        if file.is_relative_to(root):
            entries[file.relative_to(root).as_posix()] = entry
    sources = sources_with_locks(root)
    read = [path for path in sources if path in entries]
    problems = [
        f"{path}: this build does not compile it"
        for path in sources
        if path not in entries and not path.startswith(OPTIONAL_ROOMS)
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(
            lambda path: run_clang(clang_command(clang, entries[path]), entries[path]["directory"]),
            read,
        )
        # Clang names the file and the line.
        problems += [said or f"{path}: clang failed" for path, (status, said)
                     in zip(read, results) if status != 0 or said]
    return len(read), problems


def main(arguments):
    clang, build = arguments[0], Path(arguments[1])
    root = Path(arguments[2] if len(arguments) > 2 else Path(__file__).resolve().parents[2])
    if not clang:
        print("not checked: there is no clang++; install config/packages_tests.txt")
        return 1 if os.environ.get("CI") == "true" else 77
    problems = check_samples(clang)
    count = 0
    if not problems:
        count, problems = check_sources(clang, build, root)
    for problem in problems:
        print(problem)
    print(f"{count} sources read, {len(problems)} with problems", file=sys.stderr)
    return 1 if problems or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
