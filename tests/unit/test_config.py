from __future__ import annotations

import dataclasses
import math
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairqueue.clock import SERVER_CLOCK, ManualClock
from fairqueue.codec import JsonCodec
from fairqueue.config import Options
from fairqueue.errors import ConfigurationError
from fairqueue.limits import Limit
from fairqueue.retry import RetryPolicy
from fairqueue.url import parse_url

# ---------------------------------------------------------------- options


def test_the_defaults() -> None:
    options = Options.make()
    assert (options.visibility_ms, options.reclaim_ms, options.reconcile_ms) == (30_000, 5000, 60_000)
    assert (options.name, options.shards, options.max_payload_bytes) == ("default", 1, 1_048_576)
    assert options.clock is SERVER_CLOCK
    for stored_on_the_server in ("limits", "retry", "scheduler", "dead_letters"):
        assert getattr(options, stored_on_the_server) is None
    assert options.url is None
    assert options.codec is None


def test_everything_that_is_given_is_kept() -> None:
    clock, codec, retry = ManualClock(), JsonCodec(), RetryPolicy.none()
    options = Options.make(
        "redis://localhost",
        "jobs",
        limits=[Limit("tenant", 3)],
        retry=retry,
        visibility_timeout=timedelta(minutes=2),
        reclaim_interval=0,
        reconcile_interval=0,
        scheduler="fifo",
        shards=1,
        codec=codec,
        max_payload_bytes=10,
        dead_letters=False,
        durability="server",
        clock=clock,
    )
    assert options.url == parse_url("redis://localhost")
    assert (options.name, options.limits, options.retry) == ("jobs", (Limit("tenant", 3),), retry)
    assert (options.visibility_ms, options.reclaim_ms, options.reconcile_ms) == (120_000, 0, 0)
    assert (options.scheduler, options.codec, options.clock) == ("fifo", codec, clock)
    assert (options.max_payload_bytes, options.dead_letters, options.durability) == (10, False, "server")
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.name = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("url", 7),
        ("url", ""),
        ("name", "a b"),
        ("name", ""),
        ("limits", "tenant"),
        ("limits", [3]),
        ("retry", 3),
        ("retry", RetryPolicy),
        ("visibility_timeout", -3),
        ("visibility_timeout", 0),
        ("visibility_timeout", 0.099),
        ("visibility_timeout", True),
        ("reclaim_interval", -1),
        ("reclaim_interval", math.nan),
        ("reconcile_interval", "60"),
        ("scheduler", "fare"),
        ("scheduler", "ddr"),
        ("shards", 0),
        ("shards", 2),
        ("shards", True),
        ("codec", JsonCodec),
        ("codec", object()),
        ("max_payload_bytes", 0),
        ("max_payload_bytes", 2**30),
        ("max_payload_bytes", 1.0),
        ("dead_letters", 1),
        ("durability", "wait"),
        ("durability", "sever"),
        ("durability", None),
        ("clock", ManualClock),
        ("clock", 7),
    ],
)
def test_a_wrong_option_is_refused_by_name(option: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"^expected {option} to be .*got "):
        Options.make(**{option: value})


def test_the_texts_say_what_to_do() -> None:
    with pytest.raises(ConfigurationError, match=r"visibility_timeout to be a positive duration .*, got -3$"):
        Options.make(visibility_timeout=-3)
    with pytest.raises(ConfigurationError, match=r"got 4 \(more shards need a later version\)$"):
        Options.make(shards=4)
    with pytest.raises(
        ConfigurationError, match=r"be 'server', got 'wait' \(replicas need a later version\)$"
    ):
        Options.make(durability="wait")
    with pytest.raises(ConfigurationError, match="did you mean 'fair'"):
        Options.make(scheduler="fare")


# ---------------------------------------------------------------- URLs


@pytest.mark.parametrize(
    ("text", "scheme", "normal"),
    [
        ("redis://localhost", "redis", "redis://localhost"),
        ("redis://", "redis", "redis://"),
        ("redis:///3", "redis", "redis:///3"),
        ("REDIS://h:6380/1?socket_timeout=3", "redis", "redis://h:6380/1?socket_timeout=3"),
        ("rediss://u:p@h", "rediss", "rediss://u:p@h"),
        ("valkey://h:1/0", "redis", "redis://h:1/0"),
        ("valkeys://:p%40ss@h", "rediss", "rediss://:p%40ss@h"),
        ("redis://[::1]:6379", "redis", "redis://[::1]:6379"),
        ("unix:///run/valkey.sock", "unix", "unix:///run/valkey.sock"),
        ("unix://u:p@/run/valkey.sock?db=2", "unix", "unix://u:p@/run/valkey.sock?db=2"),
    ],
)
def test_urls_of_a_server(text: str, scheme: str, normal: str) -> None:
    url = parse_url(text)
    assert (url.scheme, url.text, url.path) == (scheme, normal, None)


def test_urls_of_an_embedded_server() -> None:
    private = parse_url("embedded://")
    assert (private.scheme, private.text, private.path) == ("embedded", "embedded://", None)
    url = parse_url("embedded:///srv/a b%20c@d?e#f/.fairqueue")
    assert url.path == Path("/srv/a b%20c@d?e#f/.fairqueue")
    assert url.text == url.shown == "embedded:///srv/a b%20c@d?e#f/.fairqueue"


@pytest.mark.parametrize(
    "text",
    [
        "embedded://relative",
        "embedded://./x",
        "embedded:/x",
        "localhost:6379",
        "",
        "redis:",
        "//h",
        "redis://h:port",
        "redis://h:0",
        "redis://h:65536",
        "redis://h/db",
        "redis://h/0/1",
        "redis://h/\u0663",
        "redis://h#x",
        "redis://[::1",
        "redis://h\n",
        "redis://h/0\x00",
        "unix://relative.sock",
        "unix://",
        "unix:///",
        None,
        7,
        b"redis://h",
        Path("/x"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused(text: object) -> None:
    with pytest.raises(ConfigurationError, match=r"^expected url to be "):
        parse_url(text)


@pytest.mark.parametrize("scheme", ["redis+cluster", "valkey+cluster", "redis+sentinel"])
def test_clusters_and_sentinels_are_refused_by_name(scheme: str) -> None:
    with pytest.raises(ConfigurationError) as e:
        parse_url(f"{scheme}://:hunter2@h")
    assert repr(scheme) in str(e.value)
    assert "redis, rediss, valkey, valkeys, unix, embedded" in str(e.value)
    assert str(e.value).endswith("(cluster and sentinel are not supported by this version)")
    assert "hunter2" not in str(e.value)


def test_an_unknown_scheme_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match=r"^expected url to have one of the schemes .*, got 'amqp'$"):
        parse_url("amqp://guest:hunter2@h")


SECRET = "hunter2"


@pytest.mark.parametrize(
    "text",
    [
        "redis://:hunter2@h",
        "redis://user:hunter2@h:1/0",
        "redis://hunter2@h",
        "redis://user:a@hunter2@h",
        "redis://user:a/hunter2@h",
        "redis://user:a?hunter2@h",
        "redis://user:a#hunter2@h",
        "redis://user:a://hunter2@h",
        "redis://user:hunter2@h:port",
        "redis://user:hunter2@[h",
        "redis://h?password=hunter2",
        "redis://h?db=1&ssl_password=hunter2&x=1",
        "unix://:hunter2@/run/s.sock",
        "unix://:a/hunter2@/run/s.sock",
        "unix:///run/s.sock?password=hunter2",
        "redis+cluster://user:hunter2@h",
        "user:hunter2@h:6379",
        "redis:user:hunter2@h",
        "redis://user:hunter2@h\n",
    ],
)
def test_no_message_and_no_repr_shows_a_password(text: str) -> None:
    try:
        url = parse_url(text)
    except ConfigurationError as error:
        seen = f"{error!r} {error.__cause__!r} {error.__context__!r}"
    else:
        seen = f"{url} {url!r} {url.shown} {Options.make(text)!r}"
    assert SECRET not in seen
    assert "h" in seen


@given(st.text(max_size=30), st.sampled_from(["redis://", "unix://", "embedded://", "x+cluster://", ""]))
def test_any_text_is_a_url_or_that_error(text: str, scheme: str) -> None:
    try:
        url = parse_url(scheme + text)
    except ConfigurationError as error:
        assert str(error).startswith("expected url to ")  # noqa: PT017 - most texts are refused, not all
    else:
        assert url.scheme in {"redis", "unix", "embedded"}


@given(st.text("ab:/@?#&=[]%", max_size=12))
def test_no_password_is_shown_whatever_stands_around_it(noise: str) -> None:
    try:
        shown = repr(parse_url(f"redis://user:{noise}{SECRET}@host"))
    except ConfigurationError as error:
        shown = str(error)
    assert SECRET not in shown
