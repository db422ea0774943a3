"""ggml-rpc-server processes on this machine's loopback, as devices that a model is split over."""

import os
import socket
import subprocess
import time

from parkade_process import DEADLINE_S, PROGRAM, ServerTest

RPC_PROGRAM = os.path.join(os.path.dirname(PROGRAM), "ggml-rpc-server")


class Device:
    def __init__(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.process = None
        self.start()

    def start(self):
        """Again under the same address, as a service manager would."""
        self.process = subprocess.Popen(
            [RPC_PROGRAM, "-H", "127.0.0.1", "-p", str(self.port), "-t", "1"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + DEADLINE_S
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"{RPC_PROGRAM} does not listen")
            time.sleep(0.02)

    def kill(self):
        self.process.kill()
        self.process.wait(DEADLINE_S)

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"


class SplitTest(ServerTest):
    """Servers whose models lie on RPC devices. A device serves one server at a time."""

    def setUp(self):
        super().setUp()
        self.devices = []

    def tearDown(self):
        try:
            super().tearDown()
        finally:
            for device in self.devices:
                if device.process.poll() is None:
                    device.kill()

    def split(self, *shares, layers_on_devices=99):
        """Arguments that share a model out over as many devices as there are shares."""
        while len(self.devices) < len(shares):
            self.devices.append(Device())
        addresses = ",".join(device.address for device in self.devices[:len(shares)])
        return ["--rpc", addresses, "-ngl", str(layers_on_devices), "--split-mode", "layer",
                "--tensor-split", ",".join(str(share) for share in shares)]

    def stage_map(self, server):
        """The newest conversation's stages: a list of (device, layers)."""
        newest = max(server.conversations(), key=lambda c: c["last_used"])
        detail = server.conversation(newest["id"])
        return [(stage["device"], stage["layers"]) for stage in detail["stage_map"]]
