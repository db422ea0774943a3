"""What the dashboards show: every panel with its expressions and how to read it.

make_dashboards.py turns these tables into the JSON files. Rows go from the question to the cause.
Expressions hold for several servers, over restarts (counters only through rate and increase), for
tiers that are switched off, and without traffic: a quotient whose divisor is 0 gives no data, a
quantile of nothing is dropped by `>= 0`.
"""

from dataclasses import dataclass, field

TOKENS_PER_SECOND = "suffix: tokens/s"
PER_MINUTE = "suffix: /min"


@dataclass
class Query:
    expr: str
    legend: str = ""
    # One value for the whole time range that is looked at, not a line over time.
    instant: bool = False


@dataclass
class Panel:
    title: str
    description: str
    kind: str  # stat, bars (horizontal, one value each), lines, stack, heatmap or states
    unit: str
    queries: list
    width: int = 12
    height: int = 8
    # For what has natural bounds.
    lowest: float = None
    highest: float = None
    # (value, colour) from which a stat or bar has that colour; the first value is None.
    steps: list = field(default_factory=list)
    # Said in place of a value when there is none.
    no_value: str = ""
    # Series with these words in their names are drawn as dashed limits.
    limits: list = field(default_factory=list)


@dataclass
class Dashboard:
    file: str
    uid: str
    title: str
    description: str
    rows: list  # (title, [Panel])


def select(*labels):
    return "{" + ", ".join(['instance=~"$instance"', *labels]) + "}"


def sum_by(label, inner):
    return f"sum by ({label}) ({inner})" if label else f"sum({inner})"


def rate(name, by="", *labels):
    return sum_by(by, f"rate({name}{select(*labels)}[$__rate_interval])")


def growth(name, by="", *labels):
    """Over the whole time range that is looked at."""
    return sum_by(by, f"increase({name}{select(*labels)}[$__range])")


def per_minute(name, by="", *labels):
    return "60 * " + rate(name, by, *labels)


def gauge(name, by="tier", *labels):
    return sum_by(by, name + select(*labels))


def quantile(share, name, by=""):
    labels = f"le, {by}" if by else "le"
    buckets = sum_by(labels, f"rate({name}_bucket{select()}[$__rate_interval])")
    return f"histogram_quantile({share}, {buckets}) >= 0"


def quantiles(name, by=""):
    return [Query(quantile(share, name, by), f"{{{{{by}}}}} {word}" if by else word)
            for share, word in ((0.5, "half"), (0.95, "95 %"))]


def heat(name):
    return [Query(sum_by("le", f"increase({name}_bucket{select()}[$__rate_interval])"), "{{le}}")]


HITS, MISSES = "parkade_hit_tokens_total", "parkade_miss_tokens_total"
LOOKED_UP = "parkade_lookup_tokens_total"
FIRST_TOKEN = "parkade_time_to_first_token_seconds"


def mean_first_token(by, *labels):
    total = growth(FIRST_TOKEN + "_sum", by, *labels)
    return f"{total} / ({growth(FIRST_TOKEN + '_count', by, *labels)} > 0)"


HIT_RATE_ROWS = [
    ("Is it remembered?", [
        Panel("Token hit ratio",
              "Share of all prompt tokens in the time range that were not computed again. A chat "
              "that goes on is near 100 %; every first prompt is 0 %. Low? See the last row.",
              "stat", "percentunit",
              [Query(f"{growth(HITS)} / ({growth(LOOKED_UP)} > 0)", "hit ratio", True)],
              width=6, height=5, lowest=0, highest=1, no_value="no prompts",
              steps=[(None, "red"), (0.25, "orange"), (0.5, "green")]),
        Panel("Prompt tokens",
              "Prompt tokens in the time range: reused from the slot or a tier, and computed.",
              "stat", "short",
              [Query(growth(HITS), "reused", True), Query(growth(MISSES), "computed", True)],
              width=6, height=5, lowest=0, no_value="no prompts"),
        Panel("Time saved",
              "Reading time that tokens from RAM, disk or remote saved in the time range, less "
              "what restoring them took. A lower bound; tokens still in the slot count nothing.",
              "stat", "s", [Query(growth("parkade_saved_seconds_total"), "saved", True)],
              width=6, height=5, lowest=0, no_value="no prompts"),
        Panel("Mean time to first token",
              "From a request's arrival to its first token, for prompts of which something was "
              "reused and for those computed whole. The distance is what the cache is worth.",
              "stat", "s",
              [Query(mean_first_token("", 'tier!="none"'), "something reused", True),
               Query(mean_first_token("", 'tier="none"'), "all computed", True)],
              width=6, height=5, lowest=0, no_value="no prompts"),
        Panel("Token hit ratio by tier",
              "Each colour is the share of prompt tokens that came from there; the top edge is the "
              "hit ratio, what is missing up to 100 % was computed. After a restart disk takes "
              "over from RAM. Gaps: nobody asked.",
              "stack", "percentunit",
              [Query(f"{rate(HITS, 'tier')} / on () group_left () ({rate(LOOKED_UP)} > 0)",
                     "{{tier}}")],
              width=24, height=9, lowest=0, highest=1),
    ]),
    ("How much, and from where?", [
        Panel("Prompt tokens reused and computed",
              "All prompt tokens a second. Colours by where they came from; grey had to be "
              "computed and is what keeps the device busy.",
              "stack", TOKENS_PER_SECOND,
              [Query(rate(HITS, "tier"), "{{tier}}"), Query(rate(MISSES), "computed")],
              lowest=0),
        Panel("Look-ups by outcome",
              "full: all but the last token, or all that was parked; partial: some of it; miss: "
              "nothing. Many partial ones: prompts change in the middle.",
              "stack", PER_MINUTE, [Query(per_minute("parkade_lookups_total", "outcome"),
                                          "{{outcome}}")],
              lowest=0),
    ]),
    ("What is it worth?", [
        Panel("Time to first token by lowest tier used",
              "Half of the requests were faster than the first line of a colour, 95 % than the "
              "second. `none` is a miss: how long reading takes. A tier near `none` is not worth "
              "its restore.",
              "lines", "s", quantiles(FIRST_TOKEN, "tier"), lowest=0),
        Panel("Mean time to first token by lowest tier used",
              "Over the time range. `none` is a miss.",
              "bars", "s", [Query(mean_first_token("tier"), "{{tier}}", True)],
              width=6, lowest=0, no_value="no prompts"),
        Panel("Seconds saved a minute",
              "60 means: without the tiers one device more would be reading prompts all the time.",
              "lines", "s", [Query(per_minute("parkade_saved_seconds_total"), "saved")],
              width=6, lowest=0),
    ]),
    ("Why were tokens computed?", [
        Panel("Computed tokens by reason",
              "Of the time range. new and cold: nobody had them. diverged: the client changed "
              "what it sent before (`parkade lookups` names it). evicted: the budget is too small. "
              "corrupt, incomplete: see the dashboard Performance. identity: other settings or "
              "weights. too_short: not worth a restore.",
              "bars", "short", [Query(f"sort_desc({growth(MISSES, 'reason')} > 0)",
                                      "{{reason}}", True)],
              width=8, height=9, lowest=0, no_value="no prompts"),
        Panel("Computed tokens by reason over time",
              "The same over time: a reason that begins at a restart or an update of a client has "
              "its cause there.",
              "stack", TOKENS_PER_SECOND, [Query(rate(MISSES, "reason"), "{{reason}}")],
              width=16, height=9, lowest=0),
    ]),
]

USED, BUDGET, FREE = "parkade_used_bytes", "parkade_budget_bytes", "parkade_free_bytes"


def tier_bytes(tier, *more):
    label = f'tier="{tier}"'
    names = ((USED, "used"), (BUDGET, "budget in force"), *more)
    return [Query(gauge(name, "", label), word) for name, word in names]


EVICTED_SHARE = growth(MISSES, "", 'reason="evicted"') + f" / ({growth(LOOKED_UP)} > 0)"

CAPACITY_ROWS = [
    ("Is there room?", [
        Panel("Budget used",
              "A full tier is normal: it evicts what was used longest ago. Whether the budget is "
              "too small says the panel beside.",
              "bars", "percentunit",
              [Query(f"{USED}{select()} / ({BUDGET}{select()} > 0)",
                     "{{tier}} {{instance}}", True)],
              width=8, height=7, lowest=0, highest=1, no_value="no tier is on"),
        Panel("Asked for again after its eviction",
              "Share of prompt tokens in the time range that had been kept and were evicted before "
              "they were asked for again. Above a few per cent: a larger budget pays.",
              "stat", "percentunit", [Query(EVICTED_SHARE, "evicted", True)],
              width=8, height=7, lowest=0, highest=1, no_value="no prompts",
              steps=[(None, "green"), (0.05, "orange"), (0.2, "red")]),
        Panel("Conversations",
              "Held by each tier, branches counted; one that is in RAM and on disk counts in both.",
              "lines", "short", [Query(gauge("parkade_conversations"), "{{tier}}")],
              width=8, height=7, lowest=0),
    ]),
    ("Bytes against budgets", [
        Panel("RAM tier", "What the images take, and what they may take: the budget less index and "
              "buffers. The budget falls when the index grows.",
              "lines", "bytes", tier_bytes("ram"), lowest=0, limits=["budget"]),
        Panel("Disk tier", "Physical bytes against the budget in force, which is lower than the "
              "one that was set while free space is near the floor "
              "(`--conversation-cache-disk-min-free-mib`).",
              "lines", "bytes", tier_bytes("disk", ("parkade_physical_bytes", "physical")),
              lowest=0, limits=["budget"]),
        Panel("Free on the medium",
              "RAM: memory that is available; disk: free on the file system. At the floor a tier "
              "takes nothing more until space returns.",
              "lines", "bytes", [Query(gauge(FREE, "tier, instance"), "{{tier}} {{instance}}")],
              lowest=0),
        Panel("Pinned share of the budget",
              "Pinned conversations are never evicted. Pins are refused above 80 % of a tier.",
              "lines", "percentunit",
              [Query(f"{gauge('parkade_pinned_bytes')} / ({gauge(BUDGET)} > 0)", "{{tier}}"),
               Query("vector(0.8)", "limit")], lowest=0, highest=1, limits=["limit"]),
    ]),
    ("What leaves, and why?", [
        Panel("Evicted bytes by tier and reason",
              "budget: the oldest made room. slots: more chats than "
              "`--conversation-cache-slots`. superseded: states in the middle of long prompts. "
              "manual: forgotten by a person. corrupt: found damaged.",
              "stack", "Bps", [Query(rate("parkade_evicted_bytes_total", "tier, reason"),
                                     "{{tier}} {{reason}}")],
              lowest=0),
        Panel("Evictions by tier and reason",
              "The same in removed parks a minute; disk evictions by `budget` are conversations "
              "that will have to be read again.",
              "stack", PER_MINUTE, [Query(per_minute("parkade_evictions_total", "tier, reason"),
                                          "{{tier}} {{reason}}")],
              lowest=0),
    ]),
    ("What is not kept at all?", [
        Panel("Parks not taken, by reason",
              "too_short: below `--conversation-cache-min-tokens`. queue_full: the disk is slower "
              "than what is generated. no_space: nothing more could be evicted. too_large: more "
              "than a tier. unsupported: a shifted context, video.",
              "stack", PER_MINUTE, [Query(per_minute("parkade_skipped_parks_total", "reason"),
                                          "{{reason}}")],
              lowest=0),
        Panel("Waiting to be stored",
              "Captured bytes that no durable tier has yet: what `kill -9` would lose now. It "
              "should fall to 0 between requests.",
              "lines", "bytes", [Query(gauge("parkade_spill_queue_bytes", "instance"),
                                       "{{instance}}")],
              lowest=0),
    ]),
]


def latency(word, name, what, by=""):
    return [
        Panel(f"{word}: every one", f"{what} Each cell: how many took that long; bright is many.",
              "heatmap", "s", heat(name)),
        Panel(f"{word}: half and 95 %",
              f"{what} Half of them were faster than the lower line, 95 % than the upper one. "
              "Values lie between the bounds of the buckets.",
              "lines", "s", quantiles(name, by), lowest=0),
    ]


PER_TOKEN = (f"{rate('parkade_written_bytes_total', 'tier')} / on () group_left () "
             f"({rate(LOOKED_UP)} > 0)")

PERFORMANCE_ROWS = [
    ("Is anything wrong?", [
        Panel("Tiers up", "1: reads and writes. 0: read-only (no space) or down; the server's log "
              "and `parkade stats` say why.",
              "states", "none", [Query(f"parkade_tier_up{select()}", "{{tier}} {{instance}}")],
              width=12, height=6),
        Panel("Failed operations",
              "By tier and kind in the time range. Nothing is normal; the log has each one.",
              "bars", "short",
              [Query(f"sort_desc({growth('parkade_tier_errors_total', 'tier, kind')} > 0)",
                     "{{tier}} {{kind}}", True)], width=6, height=6, lowest=0, no_value="none"),
        Panel("Damaged extents",
              "Found in the time range. Each is a counted miss, never a wrong token. More than one "
              "or two: look at the disk, then run `parkade verify`.",
              "stat", "short", [Query(growth("parkade_corrupt_total", "tier"), "{{tier}}", True)],
              width=6, height=6, lowest=0, steps=[(None, "green"), (0.5, "red")]),
    ]),
    ("Do restores come in time?", [
        *latency("Restore", "parkade_restore_seconds",
                 "From the first read to the last import of one restore.", "tier"),
        Panel("Read by tier", "Bytes a second that the tiers read for restores and checks. Disk "
              "stays at 0 while RAM serves.",
              "lines", "Bps", [Query(rate("parkade_read_bytes_total", "tier"), "{{tier}}")],
              lowest=0),
        Panel("Restored by stage", "Bytes a second imported into each stage (device). Under a "
              "layer split the shares should be those of the layers.",
              "stack", "Bps", [Query(rate("parkade_stage_restored_bytes_total", "stage"),
                                     "stage {{stage}}")],
              lowest=0),
        Panel("Limited by stage",
              "Restores that ended early because this stage's data were missing, damaged or late: "
              "all other stages had to wait for it or to stop with it.",
              "stack", PER_MINUTE, [Query(per_minute("parkade_stage_limited_total", "stage"),
                                          "stage {{stage}}")],
              lowest=0),
        Panel("Time to first token: every one",
              "All requests, hits and misses. Two bands are usual: restored and computed.",
              "heatmap", "s", heat(FIRST_TOKEN)),
    ]),
    ("What does keeping cost?", [
        *latency("Park", "parkade_park_seconds",
                 "Time on the serving thread to copy new rows: it delays the next batch."),
        *latency("Spill", "parkade_spill_seconds",
                 "One park stored in a tier, behind the request.", "tier"),
        Panel("Written by tier", "Bytes a second, counted by the tiers; disk with its catalogue.",
              "lines", "Bps", [Query(rate("parkade_written_bytes_total", "tier"), "{{tier}}")],
              lowest=0),
        Panel("Written per prompt token", "Bytes written for each prompt token that was looked up. "
              "New conversations cost their rows once; a chat that goes on should cost little.",
              "lines", "bytes", [Query(PER_TOKEN, "{{tier}}")], lowest=0),
    ]),
    ("And looking up?", latency("Look-up", "parkade_lookup_seconds",
                                "Index search and comparison of tokens, before any reading.")),
]

DASHBOARDS = [
    Dashboard("tier_hit_rates.json", "parkade-hit-rates", "Parkade: hit rates",
              "How many prompt tokens are reused, from where, and why the others are not.",
              HIT_RATE_ROWS),
    Dashboard("capacity.json", "parkade-capacity", "Parkade: capacity",
              "Bytes against budgets, what is evicted, what is not kept.", CAPACITY_ROWS),
    Dashboard("performance.json", "parkade-performance", "Parkade: performance",
              "How long restores, spills, look-ups and parks take, and what fails.",
              PERFORMANCE_ROWS),
]

# The same thing has the same colour everywhere; greys: nobody could have avoided it. By label, and
# for names that are no label's.
COLOURS = {
    "tier": {"slot": "#73BF69", "ram": "#5794F2", "disk": "#B877D9", "remote": "#FF9830",
             "none": "#8E8E8E"},
    "reason": {"new": "#B0B0B0", "cold": "#8E8E8E", "disabled": "#6E6E6E",
               "unsupported": "#5A4E44", "diverged": "#F2CC0C", "identity": "#FF9830",
               "evicted": "#F2495C", "corrupt": "#C4162A", "incomplete": "#8F3BB8",
               "checkpoint": "#5794F2", "remote": "#B877D9", "too_short": "#96D98D"},
    "outcome": {"full": "#73BF69", "partial": "#F2CC0C", "miss": "#8E8E8E"},
    "": {"computed": "#8E8E8E", "reused": "#73BF69", "something reused": "#73BF69",
         "all computed": "#8E8E8E", "used": "#5794F2", "physical": "#B877D9",
         "budget in force": "#F2495C", "limit": "#F2495C"},
}
