"""One model's servers over one directory, life after life, and what they are put through."""

import glob
import json
import os
import random
import signal
import subprocess
import threading
import time

from parkade_process import DEADLINE_S, PROGRAM, Server, ServerTest, model, tokens_of, wait_until
from soak_clients import BROKEN_CONNECTION, GEMMA_TIE, TIE, Client, Reference, WrongTokens
from soak_figures import Process, Series, block_bytes, file_count

TOOL = os.environ.get("PARKADE_PROGRAM", os.path.join(os.path.dirname(PROGRAM), "parkade"))
MIB = 1 << 20
# Least that buffers and index leave room for, and more.
RAM_MIB = (0, 192, 288)
DISK_GIB = (0.11, 0.15, 0.3)
CONTEXT_TOKENS = 2048
# Of a life, beside what the RAM tier says it holds: threads' arenas, answers that are being made.
WANDER_BYTES = 64 * MIB
# Beside the segments: RocksDB's, and the directory's own few.
OTHER_FILES = 64
# On top of the memory that the cache may take, from the first answer on: llama.cpp's own.
OWN_BYTES = 96 * MIB


class Box:
    """A directory and the servers that have it, one after the other, beside a plain one."""

    def __init__(self, folder, name, kind, key, figures, seed):
        self.name, self.kind, self.figures = name, kind, figures
        self.folder = os.path.join(folder, name)
        # The servers' logs; those of the one with a cache go with it.
        for each in ("", "plain", "cached"):
            os.mkdir(os.path.join(self.folder, each))
        self.disk = os.path.join(self.folder, "disk")
        self.random = random.Random(seed)
        self.key_arguments = ()
        if key:
            path = os.path.join(self.folder, "key")
            with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as f:
                f.write("07" * 32 + "\n")
            self.key_arguments = (path,)
        self.clients = [Client(self, i, f"{seed} {i}") for i in range(8)]
        self.server = self.plain = self.reference = None
        self.pool_may_be_full = False
        self.slots, self.ram_mib, self.disk_gib = 1, 0, 0.3
        self.text = None
        self.sessions = {}  # name: (tokens, the chat they begin)
        self.forgotten = set()
        self.damaged, self.was_damaged = set(), False
        self.ending = threading.Event()
        self.hits = {}
        self.files = Series()
        # Within each life, of anonymous memory besides the RAM tier's bytes.
        self.growth = Series()
        self.life = None

    # ---- texts ----

    def words(self, name, count):
        if self.kind.endswith(".gguf"):
            at = random.Random(name).randrange(len(self.text) - count)
            return self.text[at:at + count]
        return tokens_of(name, count)

    # ---- processes ----

    def model_path(self):
        return self.kind if self.kind.endswith(".gguf") else model(self.kind)

    def begin_visit(self):
        self.plain = self.process("plain", "--conversation-cache-mib", "0", slots=8)
        self.plain.wait_healthy(False)
        if self.kind.endswith(".gguf") and self.text is None:
            self.text = self.plain.tokenize(" ".join(
                f"Item {i} weighs {i * 7 % 101} grams and is coloured "
                f"{('red', 'blue', 'green')[i % 3]}." for i in range(600)))
        tie = GEMMA_TIE if self.kind.endswith(".gguf") else TIE
        self.reference = Reference(self.plain, self.figures, tie)

    def end_visit(self):
        if self.server is not None:
            self.end_life("terminate")
        self.plain.kill()
        self.plain = None

    def process(self, which, *arguments, slots):
        return Server(os.path.join(self.folder, which), self.model_path(), (
            "-c", str(slots * CONTEXT_TOKENS), "-np", str(slots), "-t", "1", "-tb", "1",
            *arguments))

    def begin_life(self, disk_gib=None):
        pick = self.random.choice
        self.slots, self.ram_mib = pick((1, 2, 4)), pick(RAM_MIB)
        self.disk_gib = disk_gib or pick(DISK_GIB)
        arguments = ["--conversation-cache-mib", str(self.ram_mib),
                     "--conversation-cache-min-free-mib", "64",
                     "--conversation-cache-disk", self.disk,
                     "--conversation-cache-disk-gib", str(self.disk_gib),
                     "--conversation-cache-disk-min-free-mib", "64"]
        if self.key_arguments:
            arguments += ["--conversation-cache-key-file", *self.key_arguments]
        self.pool_may_be_full = self.slots > 1 and self.random.random() < 0.25
        if self.pool_may_be_full:
            arguments += ["--kv-unified"]
        self.ending.clear()
        self.server = self.process("cached", *arguments, slots=self.slots)
        self.server.wait_healthy(True)
        self.figures.add("lives")
        self.life = Life(self)

    def end_life(self, how):
        """`kill`: SIGKILL; `terminate`: SIGTERM, and a clean end."""
        server, self.server = self.server, None
        if how == "terminate":
            server.process.send_signal(signal.SIGTERM)
        elif server.running():
            server.process.kill()
        status = server.process.wait(DEADLINE_S)
        self.figures.add("kills" if how == "kill" else "stops")
        expected = -signal.SIGKILL if how == "kill" else 0
        if status != expected:
            self.figures.add("aborts")
            raise AssertionError(f"{self.name}: the server ended with {status} after {how}:\n" +
                                 server.log()[-4000:])
        for tier, tokens in self.hits.items():
            self.figures.add("reused_from_" + tier, tokens)
        self.hits = {}
        self.life.finish()
        os.unlink(server.log_path)

    # ---- the tool, while no server has the directory ----

    def parkade(self, command, *arguments, status=(0,)):
        key = ("--key-file", *self.key_arguments) if self.key_arguments else ()
        done = subprocess.run([TOOL, command, *arguments, "--disk", self.disk, "--json", *key],
                              capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        if done.returncode not in status:
            raise AssertionError(f"parkade {command}: {done.returncode} {done.stdout}{done.stderr}")
        return json.loads(done.stdout) if done.stdout else None

    def verify(self):
        """Nothing is found but what was damaged on purpose."""
        found = self.parkade("verify", status=(0, 1))
        self.figures.add("verified_bytes", found["bytes"])
        surprises = [line for line in found["findings"]
                     if not any(path in line for path in self.damaged)]
        if surprises or (not self.damaged and found["findings"]):
            raise AssertionError(f"{self.name}: {surprises or found}")
        self.damaged = {path for path in self.damaged
                        if any(path in line for line in found["findings"])}
        files = file_count(self.disk)
        if files > found["segments"] + OTHER_FILES:
            raise AssertionError(f"{self.name}: {files} files, {found['segments']} segments")
        self.files.add(files)
        return found

    def repair(self):
        self.parkade("verify", "--repair", status=(0, 1))
        self.damaged = set()
        self.verify()
        self.figures.add("repairs")

    def damage(self):
        """A byte of a segment's payload, at rest."""
        segments = [path for path in glob.glob(os.path.join(self.disk, "segments", "*", "*"))
                    if os.path.getsize(path) > 16384]
        if not segments:
            return
        path = self.random.choice(segments)
        ServerTest.damage((path, os.path.getsize(path) // 2, os.path.getsize(path) // 3, 0))
        self.damaged.add(os.path.relpath(path, self.disk))
        self.was_damaged = True
        self.sessions = {}  # any of them may stand on it
        self.figures.add("damages")

    def move_a_chat(self):
        """Out of the directory in a file, and back."""
        listed = self.parkade("ls")["conversations"]
        parents = {c["forked_from"] for c in listed}
        movable = [c["id"] for c in listed
                   if not c["pinned"] and c["forked_from"] is None and c["id"] not in parents]
        if not movable or self.damaged:
            return
        chat = self.random.choice(movable)
        file = os.path.join(self.folder, "moved.parkade")
        self.parkade("export", chat, file, "--force")
        self.parkade("rm", chat)
        self.parkade("import", file)
        os.unlink(file)
        self.figures.add("moved")

    def rest(self, clean):
        """Between two lives. After a kill a file may lie there that the next start takes away."""
        if os.path.isdir(self.disk):
            dice = self.random.random()
            if clean:
                self.verify()
                if self.damaged and dice < 0.5:
                    self.repair()
                if dice > 0.6:
                    self.move_a_chat()
            if self.random.random() < 0.3:
                self.damage()


class Life:
    """One server's, from its start to its end: rounds of traffic, each with a quiet end."""

    def __init__(self, box):
        self.box, self.server = box, box.server
        self.process = Process(self.server.process.pid)
        self.at_start = None
        self.memory, self.descriptors, self.threads = Series(), Series(), Series()
        self.started = 0
        self.counted = threading.Condition()

    # ---- traffic ----

    def round(self, clients, acts, until, end_at=None):
        """All clients at once, until that time at the latest. `end_at`: (acts begun, how); the
        server's end comes then."""
        failures = []
        ending = self.box.ending
        self.started = 0

        def work(client):
            try:
                for act in range(acts):
                    if act > 0 and time.monotonic() > until:
                        return
                    with self.counted:
                        self.started += 1
                        self.counted.notify_all()
                    client.act(self.server)
            except BROKEN_CONNECTION as error:
                if not ending.is_set():
                    failures.append(error)
            except WrongTokens as error:
                failures.append(error)
            except (AssertionError, ValueError, KeyError) as error:
                # Half an answer of one that is being stopped.
                if not ending.is_set():
                    failures.append(error)
        threads = [threading.Thread(target=work, args=(client,))
                   for client in self.box.clients[:clients]]
        for thread in threads:
            thread.start()
        if end_at is not None:
            with self.counted:
                self.counted.wait_for(lambda: self.started >= end_at[0] or failures or not any(
                    thread.is_alive() for thread in threads), 10)
            ending.set()
            if not failures:
                self.box.end_life(end_at[1])
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    # ---- quiet moments ----

    def quiet(self):
        """Nothing is in flight: sums are exact, and memory is what it is."""
        box, server = self.box, self.server
        if not server.running():
            box.figures.add("aborts")
            raise AssertionError(f"{box.name}: the server ended with "
                                 f"{server.process.returncode}:\n{server.log()[-4000:]}")
        wait_until(lambda: not any(slot["is_processing"] for slot in server.json("GET", "/slots")),
                   "idle slots")
        server.wait_parked()
        server.check_identity()
        back = box.forgotten & {c["id"] for c in server.conversations()}
        if back:
            raise AssertionError(f"{box.name}: forgotten, and listed again: {sorted(back)}")
        metrics = server.metrics()
        box.hits = {tier: int(metrics.get_one("parkade_hit_tokens_total", tier=tier))
                    for tier in ("slot", "ram", "disk")}
        most = box.disk_gib * (1 << 30)
        if block_bytes(box.disk) > most:
            raise AssertionError(f"{box.name}: du says {block_bytes(box.disk)}, more than {most}")
        anonymous = self.process.anonymous_bytes()
        held = metrics.get_one("parkade_used_bytes", tier="ram")
        if self.at_start is None:
            self.at_start = anonymous - held
        self.memory.add(int(anonymous - held))
        self.descriptors.add(self.process.descriptors())
        self.threads.add(self.process.threads())
        if anonymous > self.at_start + max(box.ram_mib, 192) * MIB + OWN_BYTES:
            raise AssertionError(f"{box.name}: {anonymous} bytes of memory, {self.at_start} after "
                                 f"the first round, {held} in the RAM tier of {box.ram_mib} MiB")
        box.figures.add("quiet_moments")

    def session(self):
        """A name for a chat, or back to one."""
        box, server = self.box, self.server
        if box.damaged:  # any chat may stand on it
            return
        client = box.clients[0]
        slot = box.random.randrange(box.slots)
        if box.sessions and box.random.random() < 0.6:
            name = box.random.choice(sorted(box.sessions))
            chat = box.sessions[name]
            status, text = server.request("POST", f"/slots/{slot}?action=restore",
                                          {"filename": name})
            if status == 507 and box.pool_may_be_full:
                return
            if status != 200:
                raise AssertionError(f"{box.name}: restore of '{name}': {status} {text}")
            restored = json.loads(text)["n_restored"]
            if restored != len(chat) - 1:
                raise AssertionError(f"{box.name}: {restored} tokens of '{name}' restored, "
                                     f"{len(chat) - 1} saved")
            if client.ask(server, chat + client.text(10), id_slot=slot) is not None:
                box.figures.add("sessions_restored")
            return
        answer = client.ask(server, id_slot=slot)
        if answer is None:
            return
        name = f"kept {box.random.randrange(3)}"
        status, text = server.request("POST", f"/slots/{slot}?action=save", {"filename": name})
        if status == 507:  # pins hold at most so much; what had the name has it still
            box.figures.add("sessions_refused")
            return
        if status != 200 or not json.loads(text)["durable"]:
            raise AssertionError(f"{box.name}: save of '{name}': {status} {text}")
        box.sessions[name] = client.chats[-1]
        box.figures.add("sessions_saved")

    def durable(self):
        """What a kill must not take: {id: tokens}, of conversations with a park of their own."""
        return {c["id"]: c["durable_tokens"] for c in self.server.conversations()
                if c["forked_from"] is None and c["durable_tokens"] > 0}

    def finish(self):
        """The life's memory did not grow after its first quarter."""
        box = self.box
        if self.memory.values:
            box.growth.add(self.memory.values[-1] - self.memory.values[0])
            for name, series in (("descriptors", self.descriptors), ("threads", self.threads)):
                box.figures.most(name, max(series.values))
        if len(self.memory.values) >= 12 and \
                self.memory.late_max > self.memory.early_max + WANDER_BYTES:
            raise AssertionError(f"{box.name}: memory grew within a life: {self.memory.values}")
