"""What a soak counts: quantities over time that may wander but not grow, and its report."""

import json
import os
from collections import Counter

MINUTES = float(os.environ.get("PARKADE_SOAK_MINUTES", "2"))


class Series:
    """Values over time. The first twentieth is the warm-up."""

    def __init__(self):
        self.values = []

    def add(self, value):
        self.values.append(value)

    def max_of(self, begin_percent, end_percent):
        count = len(self.values)
        return max(self.values[count * begin_percent // 100:count * end_percent // 100], default=0)

    @property
    def early_max(self):
        return self.max_of(5, 29)

    @property
    def late_max(self):
        return self.max_of(76, 100)

    def figures(self, name):
        if not self.values:
            return {}
        return {f"{name}_first": self.values[0], f"{name}_early_max": self.early_max,
                f"{name}_late_max": self.late_max, f"{name}_last": self.values[-1]}


class Process:
    """What a process holds, from /proc."""

    def __init__(self, pid):
        self.pid = pid

    def status(self, field):
        with open(f"/proc/{self.pid}/status", encoding="ascii", errors="replace") as lines:
            for line in lines:
                if line.startswith(field + ":"):
                    return int(line.split()[1])
        raise AssertionError(f"no {field} of process {self.pid}")

    def anonymous_bytes(self):
        return self.status("RssAnon") << 10

    def threads(self):
        return self.status("Threads")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))


class Figures(Counter):
    """Counts from several threads: each holds the interpreter's lock for one addition only, so
    `add` takes a lock of its own."""

    def __init__(self, lock):
        super().__init__()
        self.lock = lock

    def add(self, name, count=1):
        with self.lock:
            self[name] += count

    def most(self, name, value):
        with self.lock:
            self[name] = max(self[name], value)


def tell(name, figures):
    """A table for people, and NAME.json in the folder PARKADE_SOAK_REPORT, if any."""
    for figure, value in figures.items():
        print(f"  {figure:<40} {value:>18}")
    folder = os.environ.get("PARKADE_SOAK_REPORT")
    if folder:
        with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as file:
            json.dump({"name": name, "figures": figures}, file)
            file.write("\n")


def block_bytes(folder):
    """What `du` says."""
    total = os.lstat(folder).st_blocks * 512
    for base, folders, files in os.walk(folder):
        for entry in folders + files:
            try:
                total += os.lstat(os.path.join(base, entry)).st_blocks * 512
            except FileNotFoundError:  # evicted while this walks
                pass
    return total


def file_count(folder):
    return sum(len(files) for _, _, files in os.walk(folder))
