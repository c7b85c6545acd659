"""The test cluster does what tests of the package take from it: failovers, half-moved slots, ends without remains."""

from __future__ import annotations

from contextlib import closing

import pytest
import redis

from tests.conftest import MakeCluster
from tests.support.cluster import HOMES, SHARDS, Cluster, slot_of
from tests.support.cluster_nodes import Node
from tests.support.pids import gone

TAG = "{half}"
KEYS = [f"{TAG}{number}" for number in range(10)]
SLOT = slot_of(TAG)


def fill(cluster: Cluster, *keys: str) -> None:
    """Keys that their replicas have too."""
    for key in keys:
        with redis.Redis(port=cluster.master_of(key).port) as client:
            client.set(key, f"value of {key}")
            assert client.wait(1, 30_000) == 1


def value(node: Node, key: str) -> str:
    found: bytes = node.command("GET", key)
    return found.decode()


def another(cluster: Cluster, node: Node) -> Node:
    """A master that this one is not."""
    return next(master for master in cluster.masters() if master is not node)


def test_there_are_three_masters_with_a_replica_each(cluster: Cluster) -> None:
    masters = cluster.masters()
    assert [master.itself().ranges for master in masters] == [(home,) for home in HOMES]
    assert len({cluster.replica_of(master) for master in masters} | set(masters)) == 2 * SHARDS
    assert {node.state() for node in cluster.nodes} == {"ok"}
    assert cluster.url.count("127.0.0.1:") == len(cluster.nodes)


def test_a_client_of_clusters_finds_every_key_where_the_cluster_says(cluster: Cluster) -> None:
    with closing(redis.RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port)) as client:
        for key in ("a", "b", "c", "d"):
            client.set(key, key)
            assert value(cluster.master_of(key), key) == key


def test_a_failover_promotes_the_replica_and_keeps_what_it_has(cluster: Cluster) -> None:
    fill(cluster, "key")
    for _ in range(2):  # there and back
        old = cluster.master_of("key")
        new = cluster.replica_of(old)
        cluster.failover(new)
        assert cluster.master_of("key") is new
        assert cluster.replica_of(new) is old
        assert value(new, "key") == "value of key"


def test_a_killed_master_is_replaced_and_comes_back_as_a_replica(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    fill(cluster, "key")
    old = cluster.master_of("key")
    replica, id = cluster.replica_of(old), old.id
    old.kill()
    assert cluster.wait_for_failover_of(slot_of("key"), old) is replica
    assert value(replica, "key") == "value of key"
    old.start()
    cluster.wait_until_ok()
    assert cluster.replica_of(replica) is old
    assert old.id == id


def test_a_frozen_master_is_replaced_and_learns_of_it_when_it_goes_on(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    old = cluster.master_of_slot(0)
    old.freeze()
    new = cluster.wait_for_failover_of(0, old)
    old.thaw()
    cluster.wait_until_ok()
    assert cluster.replica_of(new) is old
    assert cluster.masters()[0] is new


def test_a_half_moved_slot_asks_for_keys_that_are_gone_and_is_not_yet_the_targets(cluster: Cluster) -> None:
    fill(cluster, *KEYS)
    source = cluster.master_of(TAG)
    target = another(cluster, source)
    with cluster.migrate_slot_key_by_key(SLOT, source, target) as moving:
        moving.move(KEYS[0], KEYS[1])
        assert len(moving.left()) == len(KEYS) - 2
        with pytest.raises(redis.exceptions.AskError, match=f"{SLOT} 127.0.0.1:{target.port}"):
            source.command("GET", KEYS[0])
        with pytest.raises(redis.exceptions.MovedError, match=f"{SLOT} 127.0.0.1:{source.port}"):
            target.command("GET", KEYS[0])
        assert value(source, KEYS[2]) == f"value of {KEYS[2]}"
    assert cluster.master_of(TAG) is target
    assert [value(target, key) for key in KEYS] == [f"value of {key}" for key in KEYS]
    with pytest.raises(redis.exceptions.MovedError, match=f"{SLOT} 127.0.0.1:{target.port}"):
        source.command("GET", KEYS[0])


def test_keys_of_two_places_are_told_to_try_again_in_the_middle(cluster: Cluster) -> None:
    fill(cluster, *KEYS)
    source = cluster.master_of(TAG)
    moving = cluster.migrate_slot_key_by_key(SLOT, source, another(cluster, source))
    moved, left = moving.move_some(1)[0], moving.left()[0]
    with pytest.raises(redis.exceptions.TryAgainError):
        source.command("MGET", moved, left)


def test_a_move_that_is_backed_out_leaves_the_slot_with_its_master(cluster: Cluster) -> None:
    fill(cluster, KEYS[0])
    source = cluster.master_of(TAG)
    with cluster.migrate_slot_key_by_key(SLOT, source, another(cluster, source)) as moving:
        moving.back_out()
    assert [node.itself().half_moved for node in cluster.nodes] == [()] * len(cluster.nodes)
    assert value(source, KEYS[0]) == f"value of {KEYS[0]}"


def test_an_atomic_migration_moves_slots_with_their_keys(cluster: Cluster) -> None:
    if not cluster.has_atomic_migration:
        pytest.skip("this server has no CLUSTER MIGRATESLOTS")
    fill(cluster, *KEYS)
    source = cluster.master_of(TAG)
    target = another(cluster, source)
    cluster.migrate_slots(range(SLOT, SLOT + 2), target)
    assert cluster.master_of(TAG) is target
    assert [value(target, key) for key in KEYS] == [f"value of {key}" for key in KEYS]
    with pytest.raises(redis.exceptions.MovedError):
        source.command("GET", KEYS[0])


def test_a_reset_mends_whatever_a_test_did(cluster: Cluster) -> None:
    fill(cluster, *KEYS)
    source, target = cluster.master_of(TAG), another(cluster, cluster.master_of(TAG))
    cluster.migrate_slot_key_by_key(SLOT, source, target).finish()
    strayed = next(slot for slot in HOMES[0] if slot != SLOT)
    cluster.migrate_slot_key_by_key(strayed, cluster.masters()[0], cluster.masters()[2]).move_some(1)
    killed, frozen = cluster.replica_of(source), cluster.replica_of(target)
    killed.kill()
    frozen.freeze()
    cluster.reset()
    assert {node.state() for node in cluster.nodes} == {"ok"}
    assert [master.itself().ranges for master in cluster.masters()] == [(home,) for home in HOMES]
    assert [(node.command("DBSIZE"), node.itself().half_moved) for node in cluster.nodes] == [(0, ())] * 6


def test_nothing_is_left_of_a_cluster_that_was_removed(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    pids = [node.pid for node in cluster.nodes]
    cluster.nodes[0].freeze()
    cluster.nodes[1].kill()
    cluster.remove()
    assert all(gone(pid) for pid in pids)
    assert not any(node.directory.exists() for node in cluster.nodes)


def test_two_clusters_never_take_the_same_ports() -> None:
    made = [Cluster() for _ in range(8)]
    ports = [port for cluster in made for node in cluster.nodes for port in (node.port, node.bus_port)]
    for cluster in made:
        cluster.remove()
    assert len(set(ports)) == len(ports)
