#!/usr/bin/env python3
"""Draws all panels of a dashboard from a real Prometheus, as Grafana would, into one picture.

  draw_panels.py [--model GGUF] [--chat-tokens N] [--minutes M] [--file NAME.json] OUTPUT.png

A parkade-server behind a Prometheus serves chats for M minutes (default 8): more chats than slots,
an edit, a kill -9 and a restart, settings that make another identity, and data damaged on purpose.
The panels' titles, expressions, units and colours are those of the JSON file. Not a test: it waits
for the clock. Needs Debian's prometheus and the packages that config/setup.sh --tests installs.
"""

import argparse
import math
import os
import re
import sys
import time
import unittest
from datetime import datetime, timezone

import matplotlib

matplotlib.use("Agg")
import matplotlib.dates  # noqa: E402
import matplotlib.pyplot as plt  # noqa: E402
from PIL import Image  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "e2e"))

from parkade_process import GEMMA, tokens_of  # noqa: E402
from prometheus_process import Panels, now  # noqa: E402
from watched_chats import WatchedTest  # noqa: E402

INK, PAPER, GRID = "#D8D9DA", "#181B1F", "#2C3235"
# Between two points, and what each looks back on.
STEP_S, WINDOW_S = 5, 30
COLUMN_INCHES, ROW_INCHES = 0.62, 0.3
PALETTE = ["#73BF69", "#F2CC0C", "#8AB8FF", "#FF780A", "#F2495C", "#5794F2", "#B877D9", "#37872D"]


# ---- how Grafana writes numbers ----

def written(value, unit):
    if unit == "percentunit":
        return f"{value:.0%}" if value == 0 or value >= 0.1 else f"{value:.1%}"
    if unit == "s":
        return seconds(value)
    if unit in ("bytes", "Bps"):
        for word in ("B", "KiB", "MiB", "GiB", "TiB"):
            if abs(value) < 1024 or word == "TiB":
                return f"{value:.3g} {word}" + ("/s" if unit == "Bps" else "")
            value /= 1024
    word = unit.removeprefix("suffix:") if unit.startswith("suffix:") else ""
    for size, letter in ((1e9, " B"), (1e6, " M"), (1e3, " K")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}{word}"
    return f"{value:.3g}{word}"


def seconds(value):
    if value == 0:
        return "0 s"
    for size, word in ((3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if abs(value) >= size:
            return f"{value / size:.3g} {word}"
    return f"{value:.1e} s"


# ---- panels ----

class Picture:
    def __init__(self, panels, prometheus, begin, end, step, rate_s):
        self.panels, self.begin, self.end = panels, begin, end
        self.events = []
        self.data = {panel["id"]: panels.ask(prometheus, panel, begin, end, step, rate_s=rate_s)
                     for panel in panels.panels}

    def colour(self, panel, name, index):
        for rule in panel["fieldConfig"]["overrides"]:
            pattern = rule["matcher"]["options"].strip("/")
            for entry in rule["properties"]:
                if entry["id"] == "color" and re.search(pattern, name):
                    return entry["value"]["fixedColor"]
        return PALETTE[index % len(PALETTE)]

    def dashed(self, panel, name):
        return any(entry["id"] == "custom.lineStyle" for rule in panel["fieldConfig"]["overrides"]
                   for entry in rule["properties"]
                   if re.search(rule["matcher"]["options"].strip("/"), name))

    def draw(self, path):
        rows = max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in self.panels.json["panels"])
        self.figure = plt.figure(figsize=(24 * COLUMN_INCHES, rows * ROW_INCHES + 0.5),
                                 facecolor="#111217")
        self.rows = rows + 0.5 / ROW_INCHES
        self.figure.text(0.012, 1 - 0.25 / (self.rows * ROW_INCHES), self.panels.json["title"],
                         color=INK, size=15, weight="bold", va="center")
        for panel in self.panels.json["panels"]:
            if panel["type"] == "row":
                x, y, _, _ = self.box(panel)
                self.figure.text(x + 0.006, y + 0.2 / self.rows, "⌄ " + panel["title"],
                                 color=INK, size=11.5, weight="bold")
            else:
                self.draw_panel(panel)
        self.figure.savefig(path, dpi=88, facecolor=self.figure.get_facecolor())
        plt.close(self.figure)
        with Image.open(path) as drawn:
            few_colours = drawn.convert("RGB").quantize(160)
        few_colours.save(path, optimize=True)

    def box(self, panel):
        at = panel["gridPos"]
        top = at["y"] + 0.5 / ROW_INCHES
        return (at["x"] / 24, 1 - (top + at["h"]) / self.rows, at["w"] / 24, at["h"] / self.rows)

    def draw_panel(self, panel):
        x, y, width, height = self.box(panel)
        gap = 0.004
        frame = self.figure.add_axes([x + gap, y + gap, width - 2 * gap, height - 2 * gap],
                                     facecolor=PAPER)
        frame.set_xticks([])
        frame.set_yticks([])
        for side in frame.spines.values():
            side.set_color(GRID)
        self.figure.text(x + 2.5 * gap, y + height - 0.85 / self.rows, panel["title"], color=INK,
                         size=9.5, weight="bold", va="center")
        draw = {"stat": self.stat, "bargauge": self.bars, "timeseries": self.lines}[panel["type"]]
        draw(panel, self.data[panel["id"]], (x, y, width, height))

    def stat(self, panel, data, box):
        x, y, width, height = box
        steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        for index, (name, values) in enumerate(data.items()):
            value = values[-1][1]
            colour = self.colour(panel, name, 0)
            if len(steps) > 1:
                colour = [step["color"] for step in steps
                          if step["value"] is None or value >= step["value"]][-1]
                colour = {"green": "#73BF69", "orange": "#FF9830", "red": "#F2495C"}[colour]
            middle = x + width * (2 * index + 1) / (2 * len(data))
            text = written(value, panel["fieldConfig"]["defaults"]["unit"])
            self.figure.text(middle, y + height * 0.42, text, color=colour, size=23,
                             weight="bold", ha="center", va="center")
            if len(data) > 1:
                self.figure.text(middle, y + height * 0.14, name, color=INK, size=9, ha="center",
                                 va="center")

    def bars(self, panel, data, box):
        x, y, width, height = box
        unit = panel["fieldConfig"]["defaults"]["unit"]
        axes = self.figure.add_axes([x + 0.32 * width, y + 0.08 * height, 0.44 * width,
                                     0.72 * height], facecolor=PAPER)
        names = list(data)[::-1]
        values = [data[name][-1][1] for name in names]
        axes.barh(range(len(names)), values, height=0.62,
                  color=[self.colour(panel, name, i) for i, name in enumerate(names)])
        axes.set_yticks(range(len(names)), names, color=INK, size=9)
        axes.set_ylim(-0.6, max(len(names), 4) - 0.4)
        axes.set_xticks([])
        axes.tick_params(length=0)
        for side in axes.spines.values():
            side.set_visible(False)
        for index, value in enumerate(values):
            axes.text(value + max(values) * 0.03, index, written(value, unit), color=INK, size=9,
                      va="center")

    def lines(self, panel, data, box):
        config = panel["fieldConfig"]["defaults"]
        calc = panel["options"]["legend"]["calcs"][0]
        stacked = config["custom"]["stacking"]["mode"] == "normal"
        summary = {name: (max if calc == "max" else mean)([v for _, v in values])
                   for name, values in data.items()}
        shown = [name for name in data if summary[name] > 0]
        order = sorted(shown, key=lambda name: summary[name], reverse=True)
        labels = [f"{name}  {written(summary[name], config['unit'])}" for name in order]
        axes = self.plot_area(box, written(100 * math.pi, config["unit"]), labels)
        handles = self.stack(axes, panel, data, shown) if stacked else \
            self.curves(axes, panel, data, shown)
        axes.set_xlim(moment(self.begin), moment(self.end))
        top = config.get("max")
        axes.set_ylim(config.get("min", None), top)
        axes.yaxis.set_major_locator(matplotlib.ticker.MaxNLocator(5))
        axes.yaxis.set_major_formatter(lambda value, _: written(value, config["unit"]))
        minutes = (self.end - self.begin) / 60 / (4 if box[2] < 0.3 else 8)
        every = next(m for m in (1, 2, 5, 10, 15, 30, 60) if m >= minutes or m == 60)
        axes.xaxis.set_major_locator(matplotlib.dates.MinuteLocator(range(0, 60, every)))
        axes.xaxis.set_major_formatter(matplotlib.dates.DateFormatter("%H:%M"))
        axes.tick_params(colors=INK, labelsize=8, length=0)
        axes.grid(color=GRID, linewidth=0.7)
        axes.set_axisbelow(True)
        for side in axes.spines.values():
            side.set_visible(False)
        if box[2] > 0.6:
            self.mark_events(axes)
        axes.legend([handles[name] for name in order], labels, loc="upper left", title=calc,
                    title_fontsize=8, bbox_to_anchor=(1.01, 1.05), frameon=False, fontsize=8,
                    labelcolor=INK, handlelength=1.1)
        axes.get_legend().get_title().set_color(INK)

    def plot_area(self, box, tick, labels):
        """Axes that leave room for the ticks' and the legend's texts."""
        x, y, width, height = box
        of_width = 1 / (24 * COLUMN_INCHES)
        left = (0.16 + 0.072 * len(tick)) * of_width
        right = (0.45 + 0.068 * max(map(len, labels), default=0)) * of_width
        return self.figure.add_axes([x + left, y + 0.13 * height, width - left - right,
                                     0.7 * height], facecolor=PAPER)

    def mark_events(self, axes):
        """What the story did, above the plot; Grafana has no such line."""
        for at, what in self.events:
            axes.axvline(moment(at), color=INK, linewidth=1, linestyle=(0, (4, 3)))
            axes.annotate(what, (moment(at), 1), (4, -3), xycoords=("data", "axes fraction"),
                          textcoords="offset points", color=INK, size=8.5, va="top",
                          bbox={"facecolor": PAPER, "edgecolor": "none", "alpha": 0.3, "pad": 1})

    def stack(self, axes, panel, data, shown):
        times = sorted({at for values in data.values() for at, _ in values})
        if not times:
            return {}
        step = min(b - a for a, b in zip(times, times[1:]))
        grid, at = [], times[0]
        while at <= times[-1]:
            grid.append(at)
            at += step
        series = {name: dict(data[name]) for name in shown}
        levels = [[series[name].get(t, float("nan")) for t in grid] for name in shown]
        # No data is a gap for all of a stack.
        areas = axes.stackplot([moment(t) for t in grid], *levels, linewidth=0, alpha=0.9,
                               colors=[self.colour(panel, n, i) for i, n in enumerate(shown)])
        return dict(zip(shown, areas))

    def curves(self, axes, panel, data, shown):
        handles = {}
        for index, name in enumerate(shown):
            times, values = [], []
            for at, value in data[name]:
                if times and at - times[-1] > 4 * self.step(data[name]):
                    times.append(at - 1e-3)
                    values.append(float("nan"))
                times.append(at)
                values.append(value)
            handles[name], = axes.plot(
                [moment(t) for t in times], values, color=self.colour(panel, name, index),
                linewidth=1.6, linestyle=":" if self.dashed(panel, name) else "-", marker=".",
                markersize=3)
        return handles

    @staticmethod
    def step(values):
        return min((b - a for (a, _), (b, _) in zip(values, values[1:])), default=1)


def mean(values):
    return sum(values) / len(values)


def moment(at):
    return datetime.fromtimestamp(at, timezone.utc)


# ---- the story ----

class Drawn(WatchedTest):
    options = None

    def runTest(self):
        self.watch("main")
        begin = now()
        self.part = self.options.minutes * 60 / 8
        self.chats = [tokens_of(f"chat {i}", self.options.chat_tokens) for i in range(4)]
        self.turn, self.events = 0, []
        self.serve(2.5, "first start")
        self.serve(2, "kill -9, started again")
        self.serve(1, "other KV type", "-ctk", "q8_0")
        self.damage_some()
        self.serve(2.5, "first KV type, some data damaged")
        panels = Panels(self.options.file)
        picture = Picture(panels, self.prometheus, begin, now(), STEP_S, WINDOW_S)
        picture.events = self.events
        picture.draw(self.options.output)

    def serve(self, parts, what, *arguments):
        print(f"{datetime.now():%H:%M:%S} {what}", file=sys.stderr)
        self.events.append((now(), what))
        self.open_door("main", self.options.model, *arguments, context=32768)
        end = time.monotonic() + parts * self.part
        while time.monotonic() < end:
            self.one_turn()
        self.close_door("main")

    def one_turn(self):
        chat = self.turn * 7 % len(self.chats) if self.turn % 3 else self.turn % 2
        self.chats[chat] = self.say("main", self.chats[chat] +
                                    tokens_of(f"turn {self.turn}", 40))
        self.turn += 1
        if self.turn % 11 == 5:  # the client edits what it said
            keep = len(self.chats[chat]) * 2 // 3
            self.chats[chat] = self.say("main", self.chats[chat][:keep] +
                                        tokens_of(f"edit {self.turn}", 60))
        if self.turn % 17 == 9:  # somebody new
            self.chats[self.turn % len(self.chats)] = self.say(
                "main", tokens_of(f"new {self.turn}", self.options.chat_tokens))
        time.sleep(self.options.pause_s)

    def damage_some(self):
        for extent in self.extents(0)[::5]:
            self.damage(extent)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output")
    parser.add_argument("--model", default=GEMMA)
    parser.add_argument("--chat-tokens", type=int, default=1200)
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--pause-s", type=float, default=0.5)
    parser.add_argument("--file", default="tier_hit_rates.json")
    Drawn.options = parser.parse_args()
    Drawn.options.output = os.path.abspath(Drawn.options.output)
    result = unittest.TextTestRunner().run(Drawn())
    sys.exit(0 if result.wasSuccessful() else 1)


if __name__ == "__main__":
    main()
