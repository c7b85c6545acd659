"""The loader of the Lua scripts: contract, includes, names, SHA."""

from __future__ import annotations

import hashlib
import re

import pytest

from fairqueue._engine.keys import KEYS
from fairqueue._engine.script import Script, ScriptError, assemble, load, load_all
from fairqueue.validation import LONGEST_MS

TEXT = """-- greet: says hello.
-- ARGV schema now:int name
-- ROWS id weight
-- FLAGS allow-oom
return name
"""


def test_named_arguments_become_locals_in_contract_order() -> None:
    source = assemble("greet", TEXT).source
    assert "local schema = ARGV[1]\n" in source
    assert "local now = tonumber(ARGV[2])\n" in source
    assert "local name = ARGV[3]\n" in source
    assert "local ROWS_AT, ROW = 4, 2\n" in source


def test_flags_stand_in_the_shebang_on_the_first_line() -> None:
    assert assemble("greet", TEXT).source.startswith("#!lua flags=allow-oom\n")
    without = TEXT.replace("-- FLAGS allow-oom\n", "")
    assert assemble("greet", without).source.startswith("#!lua\n")


def test_a_script_without_rows_has_no_tail() -> None:
    script = assemble("plain", "-- plain: nothing.\n-- ARGV schema\nreturn 1\n")
    assert "ROWS_AT" not in script.source
    assert script.rows == ()
    with pytest.raises(ScriptError, match="rows"):
        script.args((1,), schema="1")


def test_arguments_are_put_in_order_and_rows_follow() -> None:
    script = assemble("greet", TEXT)
    assert script.args(("m1", 2), ("m2", 3), name="x", now=7, schema="1") == ["1", 7, "x", "m1", 2, "m2", 3]
    assert script.args(schema="1", name="x", now=7) == ["1", 7, "x"]


@pytest.mark.parametrize("named", [{}, {"schema": "1"}, {"schema": "1", "now": 1, "name": "x", "more": 1}])
def test_a_missing_or_unknown_argument_is_an_error_before_anything_is_sent(named: dict[str, str]) -> None:
    with pytest.raises(ScriptError, match="greet: expected arguments"):
        assemble("greet", TEXT).args(**named)


@pytest.mark.parametrize("row", [(), ("m1",), ("m1", 2, 3)])
def test_a_row_of_another_width_is_an_error_before_anything_is_sent(row: tuple[str, ...]) -> None:
    with pytest.raises(ScriptError, match="greet: expected rows of"):
        assemble("greet", TEXT).args(row, schema="1", now=1, name="x")


def test_a_script_without_a_contract_is_refused() -> None:
    with pytest.raises(ScriptError, match="no '-- ARGV' line"):
        assemble("bare", "return 1\n")


def test_a_type_that_does_not_exist_is_refused() -> None:
    with pytest.raises((ScriptError, KeyError)):
        assemble("typed", "-- ARGV schema now:date\nreturn 1\n")


def test_an_include_is_put_in_once_where_it_is_first_asked_for() -> None:
    text = "-- twice: includes.\n-- ARGV schema now:int\n-- @include begin\n-- @include names\n-- @include begin\nreturn 1\n"
    source = assemble("twice", text).source
    assert source.count("function tenant_of(mid)") == 1
    assert source.count("as_stored = try('HMGET'") == 1
    assert source.index("settings = {") < source.index("function tenant_of") < source.index("return 1")
    assert "@include" not in source


def test_includes_of_includes_are_put_in() -> None:
    source = assemble(
        "deep", "-- ARGV schema now:int\n-- @include begin\n-- @include policy\nreturn 1\n"
    ).source
    assert "policies.fair = {" in source
    assert "policies.fifo = {" in source


def test_an_include_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        assemble("lost", "-- ARGV schema\n-- @include no_such_file\nreturn 1\n")


def test_the_sha_is_that_of_the_text_the_server_gets() -> None:
    script = assemble("greet", TEXT)
    assert script.sha == hashlib.sha1(script.source.encode(), usedforsecurity=False).hexdigest()


def test_a_script_is_read_once() -> None:
    assert load("claim") is load("claim")


SCRIPTS = load_all()
each = pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)


@each
def test_every_script_gets_the_schema_number_and_the_time_first(script: Script) -> None:
    assert script.argv[:2] == ("schema", "now")


@each
def test_every_script_says_what_it_does_and_what_it_needs(script: Script) -> None:
    body = script.source[script.source.index("\n-- ") :]
    assert body.startswith(f"\n-- {script.name}: ")


@each
def test_every_script_may_run_when_memory_is_full_but_those_that_add_data(script: Script) -> None:
    """A claim must run, or nothing could be settled and the backlog never drains."""
    adds = {"enqueue", "redrive", "set_limit", "set_rate", "set_backlog", "set_weight", "pause", "configure"}
    assert ("allow-oom" in script.source.partition("\n")[0]) is (script.name not in adds)


@each
def test_no_script_scans_the_keyspace_or_draws_random_numbers(script: Script) -> None:
    for command in ("KEYS", "SCAN", "RANDOMKEY", "FLUSHALL", "FLUSHDB"):
        assert f"'{command}'" not in script.source
    assert "math.random" not in script.source


@each
def test_every_key_a_script_names_is_in_the_table_of_keys(script: Script) -> None:
    body = script.source[script.source.index("\n}\n") :]
    assert set(re.findall(r"\bk\.(\w+)", body)) <= set(KEYS)


@each
def test_no_script_names_a_key_past_the_table_of_keys(script: Script) -> None:
    body = script.source[script.source.index("\n}\n") :]
    assert "KEYS[" not in body


def test_the_longest_duration_is_the_same_on_both_sides() -> None:
    (found,) = re.findall(r"(?m)^LONGEST_MS = (\d+) \* (\d+)", load("claim").source)
    assert int(found[0]) * int(found[1]) == LONGEST_MS
