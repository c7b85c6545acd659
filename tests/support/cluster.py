"""A cluster of three masters and three replicas, made of real server processes on loopback.

Nodes are asked themselves who they are: a test that kills, freezes and promotes them has no picture of its own to keep.
"""

from __future__ import annotations

import time
from collections.abc import Collection

from redis.crc import key_slot

from tests.support.cluster_nodes import Node, layout, reserve_ports
from tests.support.cluster_slots import KeyByKey, give, give_atomically
from tests.support.waiting import eventually_sync

SLOTS = 16384
SHARDS = 3
HOMES = tuple(range(n * SLOTS // SHARDS, (n + 1) * SLOTS // SHARDS) for n in range(SHARDS))
MANUAL_FAILOVER = 6.0  # seconds after which a node has given up what it was asked to do


class Cluster:
    """Six nodes; ``start()`` it first. Node n and node n + 3 hold the slots of ``HOMES[n]``, whoever is the master.

    ``node_timeout_ms`` is how long a node is silent before the others take it for dead: a failover takes about three
    times as long. Without an append-only file (``appendonly="yes"``) a node that was killed comes back empty.
    """

    def __init__(self, *, node_timeout_ms: int = 1000, **options: str) -> None:
        self._claim, ports = reserve_ports(4 * SHARDS)
        pairs = zip(ports[::2], ports[1::2], strict=True)
        self.nodes = [Node(port, bus, node_timeout_ms, **options) for port, bus in pairs]

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    @property
    def answering(self) -> list[Node]:
        """The nodes that are neither killed nor frozen."""
        return [node for node in self.nodes if node.answers]

    # --- its life ---

    def start(self) -> Cluster:
        for epoch, node in enumerate(self.nodes, start=1):
            node.start()
            # Epochs that differ from the first: nodes that find later that theirs are the same change them then.
            node.command("CLUSTER", "SET-CONFIG-EPOCH", epoch)
        for node, home in zip(self.nodes, HOMES, strict=False):
            node.command("CLUSTER", "ADDSLOTSRANGE", home.start, home.stop - 1)
        self._introduce()
        for master, replica in zip(self.nodes[:SHARDS], self.nodes[SHARDS:], strict=True):
            replica.command("CLUSTER", "REPLICATE", master.id)
        self.wait_until_ok()
        return self

    def _introduce(self) -> None:
        """Everybody to everybody: until the news has gone round by itself takes seconds."""
        for number, node in enumerate(self.nodes):
            for other in self.nodes[number + 1 :]:
                node.command("CLUSTER", "MEET", "127.0.0.1", other.port, other.bus_port)
        everybody = {node.id for node in self.nodes}
        eventually_sync(
            lambda: all({seen.id for seen in node.seen()} == everybody for node in self.nodes),
            "every node to know all others",
        )

    def remove(self) -> None:
        """Kills all and removes what they wrote."""
        for node in self.nodes:
            node.remove()
        self._claim.close()

    def flush(self) -> None:
        """No keys on any node that answers, no slot half moved, and each slot where it was at first."""
        self.wait_until_ok()
        masters = self._by_role("master")
        for node in masters:
            for slot in node.itself().half_moved:
                node.command("CLUSTER", "SETSLOT", slot, "STABLE")
            node.command("FLUSHALL")
        for node in masters:
            self._send_home(HOMES[self.nodes.index(node) % SHARDS], node, masters)
        self.wait_until_ok()
        eventually_sync(lambda: not any(node.command("DBSIZE") for node in self.answering), "empty nodes")

    def _send_home(self, home: range, master: Node, masters: list[Node]) -> None:
        if self._all_say(home, master):
            return
        if self.has_atomic_migration:  # there SETSLOT waits for the replicas, and takes 50 ms a slot
            give_atomically(home, master, masters)
        else:
            give(home, master, masters)
        self._wait_until_owned(home, master)

    def reset(self) -> None:
        """The cluster as it was at first, but for who of each two is the master: what is down runs again; no keys."""
        for node in self.nodes:
            if not node.answers:
                node.thaw() if node.runs else node.start()
        self.flush()

    def wait_until_ok(self) -> None:
        """Until each node that answers says so, all see the same, and each replica is linked to its master."""
        eventually_sync(self._is_ok, "the cluster to be whole")

    def _is_ok(self) -> bool:
        seen = {node: node.seen() for node in self.answering}
        layouts = {node: layout(all_seen) for node, all_seen in seen.items()}
        assert len(set(layouts.values())) == 1, f"they see different clusters: {layouts}"
        there = {node.id for node in seen}
        failed = [one for all_seen in seen.values() for one in all_seen if one.failed and one.id in there]
        assert not failed, f"still taken for dead: {failed}"
        for node in seen:
            assert (state := node.state()) == "ok", f"{node} says {state}"
            link = node.fields("INFO", "replication").get("master_link_status", "up")
            assert link == "up", f"the link of {node} to its master is {link}"
        return True

    # --- who is who ---

    def masters(self) -> list[Node]:
        """The masters that answer and have slots, by their first; not one that was replaced and does not know yet."""
        owners = self._owners()
        return list(dict.fromkeys(owners[slot] for slot in sorted(owners)))

    def master_of(self, key: str | bytes) -> Node:
        return self.master_of_slot(slot_of(key))

    def master_of_slot(self, slot: int) -> Node:
        """It has to be among the nodes that answer."""
        owner = self._owners().get(slot)
        assert owner, f"expected a master of slot {slot} among {self.answering}"
        return owner

    def replica_of(self, master: Node) -> Node:
        return next(node for node in self._by_role("slave") if node.itself().master_id == master.id)

    def _owners(self) -> dict[int, Node]:
        """By slot; of two nodes that claim it, the one with the newer epoch."""
        claims = [(node.itself(), node) for node in self._by_role("master")]
        owners: dict[int, Node] = {}
        for claim, node in sorted(claims, key=lambda claim: claim[0].epoch):
            owners |= dict.fromkeys(claim.slots, node)
        return owners

    def _by_role(self, role: str) -> list[Node]:
        return [node for node in self.answering if role in node.itself().flags]

    # --- masters that change ---

    def failover(self, replica: Node, *how: str) -> None:
        """CLUSTER FAILOVER (``"FORCE"``, ``"TAKEOVER"``) and its end: the replica is the master, the master its replica.

        Asked for again when it came to nothing. Redis 7 counts the votes of an election once more when the same node is
        promoted again within four node timeouts: it thinks itself elected, for a moment, until the others refuse.
        """
        asked = -MANUAL_FAILOVER

        def promoted() -> bool:
            nonlocal asked
            if replica in self.masters():
                return self._is_ok()
            if time.monotonic() - asked > MANUAL_FAILOVER:
                replica.command("CLUSTER", "FAILOVER", *how)
                asked = time.monotonic()
            return False

        eventually_sync(promoted, f"{replica} to be promoted")

    def wait_for_failover_of(self, slot: int, old: Node) -> Node:
        """Until another node has the slot by all that answer, and they say that the cluster is ok; the new master."""

        def found() -> Node | None:
            new = self.master_of_slot(slot)
            settled = new is not old and self._all_say([slot], new)
            return new if settled and all(node.state() == "ok" for node in self.answering) else None

        new = eventually_sync(found, f"another master of slot {slot} than {old}")
        assert new
        return new

    def _all_say(self, slots: Collection[int], owner: Node) -> bool:
        """Whether every node that answers says so."""
        seen = [seen for node in self.answering for seen in node.seen() if seen.id == owner.id]
        return all(one.has(slots) for one in seen)

    # --- slots that move ---

    @property
    def has_atomic_migration(self) -> bool:
        """Whether the server has CLUSTER MIGRATESLOTS: Valkey 9."""
        return any(line.startswith(b"MIGRATESLOTS") for line in self.answering[0].command("CLUSTER", "HELP"))

    def migrate_slot_key_by_key(self, slot: int, source: Node, target: Node) -> KeyByKey:
        """Begins to move a slot as every server can; the test says how far it gets."""

        def settle() -> None:
            give([slot], target, self._by_role("master"))
            self._wait_until_owned([slot], target)

        return KeyByKey(slot, source, target, settle)

    def migrate_slots(self, slots: Collection[int], target: Node, *, until_done: bool = True) -> None:
        """CLUSTER MIGRATESLOTS, where the server has it: the slots with all their keys at one blow."""
        give_atomically(slots, target, self._by_role("master"))
        if until_done:
            self._wait_until_owned(slots, target)

    def _wait_until_owned(self, slots: Collection[int], owner: Node) -> None:
        eventually_sync(
            lambda: self._all_say(slots, owner), f"{owner} to have {len(slots)} slots by all nodes"
        )


def slot_of(key: str | bytes) -> int:
    """The slot of a key, by its hash tag if it has one."""
    slot: int = key_slot(key.encode() if isinstance(key, str) else key)
    return slot
