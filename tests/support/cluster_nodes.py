"""One node of the test cluster: its process, its ports, and what it says of the cluster it sees."""

from __future__ import annotations

import os
import random
import signal
import socket
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.processes import Server, _state_of
from tests.support.waiting import eventually_sync

FIRST_PORT, LAST_PORT = 20_000, 32_000  # below those that the system gives to outgoing connections


@dataclass(frozen=True, slots=True)
class Seen:
    """A line of CLUSTER NODES: what one node says of another, or of itself."""

    id: str
    flags: frozenset[str]
    master_id: str  # "-" for a master
    epoch: int
    ranges: tuple[range, ...]
    half_moved: tuple[int, ...]  # slots it is importing or migrating; a node tells only its own

    @property
    def slots(self) -> set[int]:
        return {slot for part in self.ranges for slot in part}

    @property
    def failed(self) -> bool:
        """Taken for dead, by the node that says it or by most."""
        return bool(self.flags & {"fail", "fail?"})

    def has(self, slots: Collection[int]) -> bool:
        return slots in self.ranges or self.slots.issuperset(slots)


class Node(Server):
    """A server in cluster mode. Nothing of it is on disk but its nodes.conf, unless told otherwise."""

    def __init__(self, port: int, bus_port: int, node_timeout_ms: int, **options: str) -> None:
        cluster = {
            "cluster_enabled": "yes",
            "cluster_port": str(bus_port),
            "cluster_announce_ip": "127.0.0.1",
            "cluster_node_timeout": str(node_timeout_ms),
            "cluster_replica_validity_factor": "0",  # on a busy machine a replica's data is soon "too old"
            "cluster_allow_replica_migration": "no",  # who belongs to whom is the test's affair
            "repl_diskless_sync_delay": "0",  # a replica need not wait for others that might come
            "appendonly": "no",
        }
        super().__init__(port=port, **cluster | options)
        self.bus_port = bus_port
        self._client = redis.Redis(port=port, protocol=2, retry=Retry(NoBackoff(), 0))
        self.id = ""
        self.answers = False  # neither killed nor frozen, as far as the test has done it

    def __repr__(self) -> str:
        return f"<node {self.port}>"

    @property
    def runs(self) -> bool:
        """Frozen or not."""
        return self._process is not None and self._process.poll() is None

    def start(self, *, until_loaded: bool = True) -> Node:
        super().start(until_loaded=until_loaded)
        self.id = self.command("CLUSTER", "MYID").decode()
        self.answers = True
        return self

    def kill(self) -> None:
        self.answers = False
        super().kill()
        self._client.close()

    def command(self, *words: str | int | bytes) -> Any:
        """Runs one command, on a connection that is kept: a cluster is asked often while it is waited for."""
        return self._client.execute_command(*words)

    def freeze(self) -> None:
        """SIGSTOP, and wait until it has stopped."""
        self.answers = False
        os.kill(self.pid, signal.SIGSTOP)
        eventually_sync(lambda: _state_of(self.pid) == "T", f"process {self.pid} to be stopped")

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)
        self.answers = True

    def fields(self, *words: str) -> dict[str, str]:
        """The answer of INFO or CLUSTER INFO."""
        answer: Any = self.command(*words)
        if isinstance(answer, dict):  # the client library took it apart
            return {str(name): str(value) for name, value in answer.items()}
        lines = [line.partition(":") for line in answer.decode().splitlines()]
        return {name: value for name, colon, value in lines if colon}

    def state(self) -> str:
        """What it says of the cluster: "ok" or "fail"."""
        return self.fields("CLUSTER", "INFO")["cluster_state"]

    def seen(self) -> list[Seen]:
        """All nodes as this one sees them, itself among them."""
        return [_seen(line) for line in self.command("CLUSTER", "NODES").decode().splitlines()]

    def itself(self) -> Seen:
        return next(seen for seen in self.seen() if "myself" in seen.flags)


def layout(seen: Collection[Seen]) -> frozenset[tuple[str, str, tuple[range, ...]]]:
    """Who is whose replica and who has which slots, as one node sees it."""
    return frozenset((one.id, one.master_id, one.ranges) for one in seen)


def _seen(line: str) -> Seen:
    id, _, flags, master_id, _, _, epoch, _, *slots = line.split()
    ends = [slot.split("-") for slot in slots if not slot.startswith("[")]
    return Seen(
        id=id,
        flags=frozenset(flags.split(",")),
        master_id=master_id,
        epoch=int(epoch),
        ranges=tuple(range(int(first[0]), int(first[-1]) + 1) for first in ends),
        half_moved=tuple(int(slot[1:].split("-")[0]) for slot in slots if slot.startswith("[")),
    )


def reserve_ports(count: int) -> tuple[socket.socket, list[int]]:
    """So many free ports in a row, and a socket on the one before them: while it is open no other cluster takes them.

    A node that was killed comes back on its port. Meanwhile that is nobody's, and the others go on trying to reach it:
    among the ports of outgoing connections one of these tries might be given that very port, and meet itself there.
    """
    blocks = range(FIRST_PORT, LAST_PORT - count, count + 1)
    for first in random.sample(blocks, len(blocks)):
        ports = [first + 1 + number for number in range(count)]
        if (claim := _bound(first)) is None:
            continue
        if all(_is_free(port) for port in ports):
            return claim, ports
        claim.close()
    raise AssertionError(f"expected {count} free ports in a row from {FIRST_PORT} to {LAST_PORT}, found none")


def _bound(port: int) -> socket.socket | None:
    probe = socket.socket()
    try:
        probe.bind(("127.0.0.1", port))
    except OSError:
        probe.close()
        return None
    return probe


def _is_free(port: int) -> bool:
    probe = _bound(port)
    if probe is not None:
        probe.close()
    return probe is not None
