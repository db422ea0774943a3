"""A TCP proxy on loopback that makes a server's answers late. Standard library only."""

import heapq
import socket
import threading
import time


class SlowProxy:
    """Every piece of an answer is `delay_s` late; what is asked goes on at once."""

    def __init__(self, port, delay_s=0.0):
        self.to_port = port
        self.delay_s = delay_s
        self.may_pass = threading.Event()
        self.may_pass.set()
        self.left = None
        self.connections = set()
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    @property
    def address(self):
        return f"redis://127.0.0.1:{self.port}"

    def hold_after(self, count):
        """Answers stop after so many bytes, and go on with None."""
        with self.lock:
            self.left = count
            self.may_pass.set()

    def held(self):
        return not self.may_pass.is_set()

    def pass_on(self, data, target):
        while data:
            self.may_pass.wait()
            with self.lock:
                part = len(data) if self.left is None else min(len(data), self.left)
                if self.left is not None:
                    self.left -= part
                    if self.left == 0:
                        self.may_pass.clear()
            target.sendall(data[:part])
            data = data[part:]

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.to_port))
            except OSError:
                client.close()
                continue
            with self.lock:
                self.connections |= {client, server}
            threading.Thread(target=self.forward, args=(client, server), daemon=True).start()
            threading.Thread(target=self.delay, args=(server, client), daemon=True).start()

    @staticmethod
    def end(*connections):
        for connection in connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # ended already

    def forward(self, source, target):
        try:
            while data := source.recv(1 << 16):
                target.sendall(data)
        except OSError:
            pass  # one of them is gone, so both go
        self.end(source, target)

    def delay(self, source, target):
        """As forward, late: pieces wait side by side, so a long answer is not later at its end."""
        pieces, ready, over = [], threading.Condition(), threading.Event()

        def send():
            while True:
                with ready:
                    ready.wait_for(lambda: pieces or over.is_set())
                    if not pieces:
                        return
                    due, _, data = heapq.heappop(pieces)
                late = due - time.monotonic()
                if late > 0:
                    threading.Event().wait(late)
                try:
                    self.pass_on(data, target)
                except OSError:
                    return

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        number = 0
        try:
            while data := source.recv(1 << 16):
                with ready:
                    heapq.heappush(pieces, (time.monotonic() + self.delay_s, number, data))
                    number += 1
                    ready.notify()
        except OSError:
            pass  # one of them is gone, so both go
        with ready:
            over.set()
            ready.notify()
        sender.join()
        self.end(source, target)

    def close(self):
        self.listener.close()
        self.hold_after(None)
        with self.lock:
            self.end(*self.connections)
