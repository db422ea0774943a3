"""Redis as a process under test. Standard library only; speaks RESP itself."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

PROGRAM = shutil.which("redis-server") or shutil.which("valkey-server")
WHY_NOT = "neither redis-server nor valkey-server is installed"


class RedisError(Exception):
    pass


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Redis:
    """One server without persistence on a loopback port."""

    def __init__(self, *arguments, port=None):
        self.folder = tempfile.mkdtemp(prefix="parkade-redis-")
        self.port = port or free_port()
        self.arguments = arguments
        self.password = None
        self.process = None
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [PROGRAM, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "",
             "--appendonly", "no", "--dir", self.folder, "--logfile", f"{self.folder}/log",
             *map(str, self.arguments)], stdin=subprocess.DEVNULL)
        end = time.monotonic() + 30
        while True:
            try:
                self.ask("PING")
                return
            except (OSError, RedisError) as error:
                if isinstance(error, RedisError) and "NOAUTH" in str(error):
                    return
                if time.monotonic() > end or self.process.poll() is not None:
                    raise
                time.sleep(0.02)

    @property
    def address(self):
        return f"redis://127.0.0.1:{self.port}"

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        if self.process.poll() is None:
            self.go_on()
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, *words):
        """One command; the reply as bytes, int, None or a list."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
            with connection.makefile("rb") as stream:
                if self.password is not None:
                    connection.sendall(self.command("AUTH", self.password))
                    self.read(stream)
                connection.sendall(self.command(*words))
                return self.read(stream)

    @staticmethod
    def command(*words):
        words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)

    def read(self, stream):
        line = stream.readline()
        if not line:
            raise RedisError("closed")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise RedisError(rest.decode())
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        if kind == b"$":
            size = int(rest)
            return None if size < 0 else stream.read(size + 2)[:-2]
        return [self.read(stream) for _ in range(int(rest))]

    def keys(self, kind=""):
        """Keys of one kind: b (boundaries), r (rows), x (extents), t (tombstones)."""
        return sorted(key.decode() for key in self.ask("KEYS", f"*:{kind}:*" if kind else "*"))
