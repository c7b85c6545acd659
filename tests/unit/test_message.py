from __future__ import annotations

import copy
import dataclasses
import math
import os
import pickle
import threading
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairqueue.errors import InvalidMessageError
from fairqueue.ids import _Uuid7Source, uuid7
from fairqueue.message import DeadLetter, Enqueued, LeaseInfo, Message, MessageInfo, MessageState
from fairqueue.new_message import NewMessage

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_new_message_has_the_documented_defaults() -> None:
    message = NewMessage({"invoice": 7}, tenant="acme")
    assert (message.payload, message.tenant, message.queue, message.pool) == (
        {"invoice": 7},
        "acme",
        "default",
        "default",
    )
    assert (message.priority, message.cost, message.max_attempts, message.metadata) == (0, 1, None, {})
    assert (message.delay, message.at, message.due_in_ms, message.due_at_ms) == (None, None, 0, None)


def test_the_id_is_drawn_once_when_the_message_is_made() -> None:
    message = NewMessage(1, tenant="acme")
    assert message.id == message.id
    assert uuid.UUID(message.id).version == 7
    assert NewMessage(1, tenant="acme").id != message.id
    assert NewMessage(1, tenant="acme", id="mine").id == "mine"


def test_times() -> None:
    assert NewMessage(1, tenant="a", delay=1.5).due_in_ms == 1500
    assert NewMessage(1, tenant="a", delay=timedelta(minutes=1)).due_in_ms == 60_000
    assert NewMessage(1, tenant="a", at=NOW).due_at_ms == 1_767_225_600_000
    assert NewMessage(1, tenant="a", at=NOW + timedelta(microseconds=1)).due_at_ms == 1_767_225_600_001


@pytest.mark.parametrize("option", ["tenant", "queue", "id", "pool"])
@pytest.mark.parametrize("value", ["", "a" * 513, "a\n", "\ud800", 7, b"a"])
def test_bad_names_are_refused_by_name(option: str, value: Any) -> None:
    with pytest.raises(InvalidMessageError, match=rf"^expected {option} to be .*text"):
        NewMessage(1, **{"tenant": "acme", option: value})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("delay", -1),
        ("delay", math.nan),
        ("delay", "5"),
        ("delay", True),
        ("delay", timedelta(days=40_000)),
        ("at", datetime(2026, 1, 1)),  # noqa: DTZ001
        ("at", 1_767_225_600),
        ("max_attempts", 0),
        ("max_attempts", 1.0),
        ("max_attempts", True),
        ("priority", 101),
        ("priority", -101),
        ("priority", 0.5),
        ("cost", 0),
        ("cost", 0.0009),
        ("cost", 1001),
        ("cost", math.nan),
        ("cost", True),
        ("metadata", [("a", 1)]),
        ("metadata", {1: "a"}),
        ("metadata", {"a": {None: 1}}),
        ("metadata", {"a": [{True: 1}]}),
        ("metadata", {"a": object()}),
        ("metadata", {"a": math.nan}),
        ("metadata", {"a": "\ud800"}),
        ("metadata", {"\ud800": "a"}),
        ("metadata", {"a": b"x"}),
    ],
)
def test_bad_values_are_refused_by_name(option: str, value: Any) -> None:
    with pytest.raises(InvalidMessageError, match=rf"^expected {option} to be .*, got "):
        NewMessage(1, **{"tenant": "acme", option: value})


def test_endless_metadata_is_refused() -> None:
    endless: dict[str, Any] = {}
    endless["self"] = endless
    with pytest.raises(InvalidMessageError, match=r"^expected metadata"):
        NewMessage(1, tenant="acme", metadata=endless)


def test_delay_and_at_exclude_each_other() -> None:
    with pytest.raises(InvalidMessageError, match=r"^expected delay or at, not both"):
        NewMessage(1, tenant="acme", delay=0, at=NOW)


def test_metadata_is_a_copy_as_its_reader_will_see_it() -> None:
    mine: dict[str, Any] = {"org": "x", "tags": ["a"], "pair": (1, 2)}
    message = NewMessage(1, tenant="acme", metadata=mine)
    mine["org"] = "y"
    mine["tags"].append("b")
    assert message.metadata == {"org": "x", "tags": ["a"], "pair": [1, 2]}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), json_values, max_size=4))
def test_any_json_metadata_is_kept_exactly(metadata: dict[str, Any]) -> None:
    assert NewMessage(1, tenant="acme", metadata=metadata).metadata == metadata


def test_a_message_is_frozen_but_can_be_replaced_copied_and_pickled() -> None:
    message = NewMessage[dict[str, int]]({"a": 1}, tenant="acme", delay=3, metadata={"org": "x"})
    for change in ("tenant", "due_in_ms", "something_new"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(message, change, "other")
    with pytest.raises(dataclasses.FrozenInstanceError):
        del message.tenant
    other = dataclasses.replace(message, tenant="umbrella")
    assert (other.tenant, other.id, other.due_in_ms) == ("umbrella", message.id, 3000)
    assert pickle.loads(pickle.dumps(message)) == copy.deepcopy(message) == message
    assert len({message, copy.copy(message)}) == 1


def test_every_generic_class_can_be_made_with_its_parameter() -> None:
    message = Message[int](id="1", tenant="acme", payload=3, enqueued_at=NOW, groups=(("tenant", "acme"),))
    lease = LeaseInfo(token="t", consumer="c", deadline=NOW, claimed_at=NOW)
    info = MessageInfo[int](state=MessageState.IN_FLIGHT, message=message, lease=lease)
    dead = DeadLetter[int](message=message, raw=b"3", reason="out of tries", dead_at=NOW)
    sent = Enqueued(id="1", tenant="acme", created=True, state=MessageState.READY)
    for one in (message, lease, info, dead, sent):
        assert pickle.loads(pickle.dumps(one)) == one
        assert not hasattr(one, "__dict__")
    assert (dead.decodable, dead.redrives, info.position, sent.state) == (True, 0, None, "ready")


def test_states_are_their_words() -> None:
    assert [str(state) for state in MessageState] == ["delayed", "ready", "in_flight", "dead", "gone"]


# ---------------------------------------------------------------- UUIDv7


def test_uuids_are_of_version_7_in_order_and_of_this_moment() -> None:
    drawn = [uuid7() for _ in range(5000)]
    assert drawn == sorted(set(drawn))
    for one in drawn[:10]:
        parsed = uuid.UUID(one)
        assert str(parsed) == one
        assert (parsed.version, parsed.variant) == (7, uuid.RFC_4122)
    assert abs((uuid.UUID(drawn[0]).int >> 80) / 1000 - datetime.now(UTC).timestamp()) < 60


def test_uuids_stay_in_order_when_the_clock_is_set_back_or_the_counter_runs_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = _Uuid7Source()
    drawn = [source.draw()]
    monkeypatch.setattr("fairqueue.ids.time.time_ns", lambda: 0)
    drawn += [source.draw() for _ in range(3)]
    source._counter = (1 << 42) - 2
    drawn += [source.draw() for _ in range(3)]
    assert drawn == sorted(set(drawn))
    assert drawn[-1] >> 80 == (drawn[0] >> 80) + 1
    assert {uuid.UUID(int=one).version for one in drawn} == {7}


def test_threads_draw_no_uuid_twice() -> None:
    drawn: list[str] = []
    threads = [
        threading.Thread(target=lambda: drawn.extend([uuid7() for _ in range(1000)])) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(drawn)) == 4000


def test_a_forked_child_can_draw_though_the_lock_was_held() -> None:
    source = _Uuid7Source()
    parent = source.draw()
    source._lock.acquire()
    source.after_fork_in_child()
    assert source.draw() != parent


@pytest.mark.skipif(not hasattr(os, "register_at_fork"), reason="this system does not fork")
def test_the_source_in_use_is_registered_for_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    registered: list[Any] = []
    monkeypatch.setattr(os, "register_at_fork", lambda **hooks: registered.append(hooks))
    spec = importlib.util.find_spec("fairqueue.ids")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(__import__("sys").modules, "fairqueue.ids", module)
    spec.loader.exec_module(module)
    assert registered == [{"after_in_child": module._uuid7_source.after_fork_in_child}]
