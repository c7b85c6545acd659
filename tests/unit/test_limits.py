from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairqueue.errors import ConfigurationError, InvalidMessageError
from fairqueue.limits import Limit, from_settings, resolve_groups, to_settings, validated
from fairqueue.new_message import NewMessage

MODEL = Limit("model", key=lambda message: message.queue.partition(".")[0])


def message(**fields: Any) -> NewMessage[Any]:
    return NewMessage({}, **{"tenant": "acme", **fields})


def test_groups_come_in_the_declared_order() -> None:
    limits = [MODEL, Limit("org", default=50, key="org"), Limit("tenant", default=10)]
    found = resolve_groups(limits, message(queue="gpt.chat", metadata={"org": "x"}))
    assert found == (("model", "gpt"), ("org", "x"), ("tenant", "acme"))
    assert resolve_groups([], message()) == ()


def test_a_missing_key_and_none_mean_that_the_limit_does_not_apply() -> None:
    limits = [Limit("tenant"), Limit("org", key="org"), Limit("none", key=lambda _: None)]
    assert resolve_groups(limits, message()) == (("tenant", "acme"),)


@pytest.mark.parametrize("value", ["", "a\n", 7, None, True, ["x"], "a" * 513])
def test_a_group_id_that_is_no_identifier_refuses_the_message_and_names_the_limit(value: Any) -> None:
    with pytest.raises(InvalidMessageError, match=r"^expected the group id of limit 'org' to be .*text"):
        resolve_groups([Limit("org", key="org")], message(metadata={"org": value}))


@pytest.mark.parametrize("value", ["", "a\n", 7, b"x"])
def test_so_does_one_that_a_function_returns(value: Any) -> None:
    with pytest.raises(InvalidMessageError, match=r"^expected the group id of limit 'org' to be .*text"):
        resolve_groups([Limit("org", key=lambda _: value)], message())


def test_a_function_that_raises_refuses_the_message_and_names_the_limit() -> None:
    limit = Limit("org", key=lambda m: m.metadata["org"].lower())
    with pytest.raises(
        InvalidMessageError, match=r"^the key function of limit 'org' failed for message 'm1': KeyError"
    ) as e:
        resolve_groups([limit], message(id="m1"))
    assert isinstance(e.value.__cause__, KeyError)


def test_so_does_one_that_raises_what_is_no_exception() -> None:
    def key(_: object) -> str:
        raise BaseExceptionGroup("a panic", [KeyboardInterrupt()])

    with pytest.raises(InvalidMessageError, match=r"^the key function of limit 'org' failed"):
        resolve_groups([Limit("org", key=key)], message())


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"name": "a b", "key": "x"},
        {"name": "x" * 65, "key": "x"},
        {"name": 7},
        {"name": "tenant", "key": "org"},
        {"name": "org"},
        {"name": "org", "key": 7},
        {"name": "org", "key": ""},
        {"name": "tenant", "default": -1},
        {"name": "tenant", "default": 2**31},
        {"name": "tenant", "default": 1.0},
        {"name": "tenant", "default": True},
    ],
)
def test_wrong_declarations_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"^expected .* to be .*, got "):
        Limit(**fields)


@pytest.mark.parametrize("default", [None, 0, 1, 2**31 - 1])
def test_defaults_in_range(default: int | None) -> None:
    assert Limit("tenant", default=default).default == default


@pytest.mark.parametrize("limits", ["tenant", [1], None, Limit("tenant"), {"tenant": 3}])
def test_what_is_no_list_of_limits_is_refused(limits: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^expected limits to be a list of Limit, got "):
        validated(limits)


def test_a_name_declared_twice_is_refused() -> None:
    assert validated(iter([Limit("tenant")])) == (Limit("tenant"),)
    with pytest.raises(
        ConfigurationError, match=r"^expected every limit to be declared once, got 'org' twice$"
    ):
        validated([Limit("org", key="a"), Limit("tenant"), Limit("org", key="b")])


names = st.from_regex(r"[A-Za-z0-9._-]{1,64}", fullmatch=True).filter(lambda name: name != "tenant")
texts = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=100)
defaults = st.none() | st.integers(0, 2**31 - 1)
declarations = st.builds(Limit, names, defaults, texts) | st.builds(Limit, st.just("tenant"), defaults)


@given(st.lists(declarations, max_size=5, unique_by=lambda limit: limit.name))
def test_declarations_come_back_from_settings(limits: list[Limit]) -> None:
    text = to_settings(limits)
    assert from_settings(text) == tuple(limits)
    assert to_settings(from_settings(text)) == text


def test_settings_are_canonical() -> None:
    assert to_settings([Limit("tenant", 10), MODEL]) == (
        '[{"default":10,"key":null,"name":"tenant"},{"default":null,"key":{"function":true},"name":"model"}]'
    )


def test_a_function_that_is_elsewhere_says_so_when_it_is_needed() -> None:
    text = to_settings([Limit("tenant", 10), MODEL])
    limits = from_settings(text)
    assert to_settings(limits) == text
    assert limits == from_settings(text)
    wanted = "^limit 'model' is computed by a function: declare it in this client to enqueue$"
    with pytest.raises(ConfigurationError, match=wanted):
        resolve_groups(limits, message())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "7",
        '{"a":1}',
        "[1]",
        "[{}]",
        '[{"name":"org","default":1}]',
        json.dumps([{"name": "tenant", "default": -1, "key": None}]),
        json.dumps([{"name": "org", "default": 1, "key": None}]),
    ],
)
def test_other_settings_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^the limits stored under this name cannot be read: "):
        from_settings(text)
