"""The names of keys: one table, one hash tag, and no two names that can run into each other."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairqueue._engine.keys import KEYS, REMAINS, US, join, key, lane_name, lua_keys, prefix
from fairqueue.errors import ConfigurationError
from fairqueue.validation import identifier

IDENTIFIERS = st.text(min_size=1, max_size=20).filter(
    lambda text: not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in text)
)
GROUPS = st.lists(st.tuples(st.sampled_from(["tenant", "org", "team"]), IDENTIFIERS), max_size=3).map(tuple)
ROOT = prefix("name")


def test_all_keys_of_a_namespace_share_one_hash_tag() -> None:
    """The cluster hashes what stands between the first { and the next }."""
    for kind in KEYS:
        name = key(ROOT, kind, "}tenant{", "x") if KEYS[kind].of else key(ROOT, kind)
        tag = re.search(r"{(.+?)}", name)
        assert tag is not None
        assert tag.group(1) == "name:0"


def test_namespaces_have_their_own_prefixes() -> None:
    names = ["a", "a.b", "ab", "a-b", "A"]
    for one, other in itertools.permutations(names, 2):
        assert not prefix(one).startswith(prefix(other))


def test_a_single_key_has_no_member_and_a_family_needs_one() -> None:
    assert key(ROOT, "head") == ROOT + "head"
    assert key(ROOT, "dead", "acme") == ROOT + "dead:acme"
    with pytest.raises(KeyError):
        key(ROOT, "no such key")


def test_no_kind_is_the_beginning_of_a_family_s_names() -> None:
    singles = [kind for kind in KEYS if not KEYS[kind].of]
    families = [kind + ":" for kind in KEYS if KEYS[kind].of]
    assert not [one for one in singles for family in families if one.startswith(family)]
    assert not [pair for pair in itertools.permutations(families, 2) if pair[0].startswith(pair[1])]


def test_what_remains_is_in_the_table() -> None:
    assert set(KEYS) >= REMAINS
    assert {"head", "body", "leases", "lane", "slots", "ring"}.isdisjoint(REMAINS)


@pytest.mark.parametrize("kind", KEYS)
def test_every_key_says_what_it_holds_and_who_writes_it(kind: str) -> None:
    spec = KEYS[kind]
    assert spec.type in {"hash", "zset", "set", "list", "string"}
    assert spec.holds
    assert spec.writers


def test_lua_gets_the_same_table() -> None:
    text = lua_keys()
    for kind, spec in KEYS.items():
        assert f"'{kind}:'" in text if spec.of else f"'{kind}'" in text
    assert "KEYS[1]" in text


def test_the_separator_is_refused_in_every_identifier() -> None:
    with pytest.raises(ConfigurationError):
        identifier("tenant", f"a{US}b")


@given(IDENTIFIERS, IDENTIFIERS, IDENTIFIERS, IDENTIFIERS)
def test_two_identities_never_run_together(tenant: str, id_: str, other_tenant: str, other_id: str) -> None:
    same = (tenant, id_) == (other_tenant, other_id)
    assert (join(tenant, id_) == join(other_tenant, other_id)) is same
    assert join(tenant, id_).split(US) == [tenant, id_]


@given(IDENTIFIERS, IDENTIFIERS, IDENTIFIERS, GROUPS)
def test_a_lane_s_name_tells_its_parts(
    tenant: str, queue: str, pool: str, groups: tuple[tuple[str, str], ...]
) -> None:
    first, second, third, *rest = lane_name(tenant, queue, pool, groups).split(US)
    assert (first, second, third) == (tenant, queue, pool)
    assert tuple(zip(rest[::2], rest[1::2], strict=True)) == groups


@given(
    st.tuples(IDENTIFIERS, IDENTIFIERS, IDENTIFIERS, GROUPS),
    st.tuples(IDENTIFIERS, IDENTIFIERS, IDENTIFIERS, GROUPS),
)
def test_two_lanes_never_run_together(
    one: tuple[str, str, str, tuple[tuple[str, str], ...]],
    other: tuple[str, str, str, tuple[tuple[str, str], ...]],
) -> None:
    assert (lane_name(*one) == lane_name(*other)) is (one == other)
