"""A Redis cluster on loopback: three masters with a third of the slots each, and a replica of
each."""

from parkade_process import wait_until
from redis_process import Redis, free_port

MASTERS = 3
SLOTS = 16384
BOUNDS = (0, 5461, 10923, SLOTS)


class RedisCluster:
    """nodes[i + MASTERS] begins as the replica of nodes[i]."""

    def __init__(self, *arguments):
        self.nodes = []
        self.bus_ports = []
        try:
            for _ in range(2 * MASTERS):
                # Not 10,000 above the port: that may be none.
                self.bus_ports.append(free_port())
                self.nodes.append(Redis(
                    "--cluster-enabled", "yes", "--cluster-port", self.bus_ports[-1],
                    "--cluster-node-timeout", "1000", "--cluster-replica-validity-factor", "0",
                    *arguments))
            self.join()
        except BaseException:
            self.close()
            raise

    def join(self):
        for number, node in enumerate(self.nodes):
            if number < MASTERS:
                node.ask("CLUSTER", "ADDSLOTSRANGE", BOUNDS[number], BOUNDS[number + 1] - 1)
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for node, bus_port in zip(self.nodes, self.bus_ports):
            self.nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", node.port, bus_port)
        wait_until(lambda: self.all_say("cluster_state:ok") and
                   self.all_say(f"cluster_known_nodes:{len(self.nodes)}"), "a cluster")
        for number in range(MASTERS):
            self.nodes[number + MASTERS].ask("CLUSTER", "REPLICATE", self.id(number))
        wait_until(self.has_replicas, "replicas")

    def id(self, number):
        return self.nodes[number].ask("CLUSTER", "MYID").decode()

    def running(self):
        return [node for node in self.nodes if node.process.poll() is None]

    def all_say(self, line):
        return all(line.encode() in node.ask("CLUSTER", "INFO") for node in self.running())

    def has_replicas(self):
        """Each node has heard of all: only then does it vote for one of them."""
        return all(len(node.ask("CLUSTER", "REPLICAS", self.id(number))) == 1
                   for number in range(MASTERS) for node in self.nodes) and all(
            b"master_link_status:up" in node.ask("INFO", "replication")
            for node in self.nodes[MASTERS:])

    @property
    def address(self):
        """The first two masters: the others are found out."""
        return "redis://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes[:2])

    def masters(self):
        return [node for node in self.running() if b"role:master" in node.ask("INFO",
                                                                              "replication")]

    def keys(self, kind=""):
        return sorted(key for node in self.masters() for key in node.keys(kind))

    def fail_over(self, number):
        """The master dies, and its replica takes its place."""
        self.nodes[number].kill()
        heir = self.nodes[number + MASTERS]
        wait_until(lambda: b"role:master" in heir.ask("INFO", "replication") and
                   self.all_say("cluster_state:ok"), "the replica to take over")

    def move(self, key, source, target):
        """The key's slot goes to another master, while all are used."""
        slot = self.nodes[source].ask("CLUSTER", "KEYSLOT", key)
        self.nodes[target].ask("CLUSTER", "SETSLOT", slot, "IMPORTING", self.id(source))
        self.nodes[source].ask("CLUSTER", "SETSLOT", slot, "MIGRATING", self.id(target))
        while True:
            keys = self.nodes[source].ask("CLUSTER", "GETKEYSINSLOT", slot, 100)
            if not keys:
                break
            self.nodes[source].ask("MIGRATE", "127.0.0.1", self.nodes[target].port, "", 0, 20000,
                                   "KEYS", *keys)
        owner = self.id(target)
        for node in [self.nodes[target], *self.masters()]:
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", owner)

    def close(self):
        for node in self.nodes:
            node.close()
