"""``fairqueue worker`` in one process: its handler, its options, and how it ends."""

from __future__ import annotations

import inspect
import json
import logging
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairqueue import RetryPolicy
from fairqueue.cli.target import load_handler
from fairqueue.errors import ConfigurationError, FairQueueError
from tests.cli.command import Place, Running
from tests.cli.handlers import TEXT
from tests.support.proxy import Proxy
from tests.support.waiting import eventually_sync


@pytest.fixture
def worked(place: Place) -> Place:
    place.write("shop", TEXT)
    return place


def put(place: Place, payload: object) -> None:
    with place.queue(retry=RetryPolicy.fixed(3600)) as queue:
        queue.enqueue(payload, tenant="acme", id=str(payload))


def begun(place: Place, *words: str) -> Running:
    """A worker that is inside its handler with message 1."""
    put(place, 1)
    running = place.start("worker", *words)
    eventually_sync(place.log, "the handler to begin")
    return running


def attempt_and_state(place: Place, id: str = "1") -> tuple[int, str] | None:
    with place.queue() as queue:
        found = queue.get("acme", id)
    return None if found is None else (found.message.attempt, found.state.value)


# --- ends --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains(worked: Place, number: int) -> None:
    running = begun(worked, "shop:until_told")
    running.signal(number)
    running.until("drains: 1 handler still running, 30 s to end in; a second signal or stop cuts that short")
    put(worked, 2)
    (worked.directory / "go").touch()
    assert running.ends() == 0
    assert "has drained, 0 messages released" in running.err
    assert [line.rpartition(" ")[0] for line in worked.log()] == ["began 1", "ended 1"]
    assert attempt_and_state(worked) is None
    assert attempt_and_state(worked, "2") == (0, "ready")


@pytest.mark.parametrize("handler", ["for_ever", "plain_for_ever", "in_a_thread_for_ever"])
def test_after_the_grace_the_rest_is_released_and_the_process_ends(worked: Place, handler: str) -> None:
    running = begun(worked, f"shop:{handler}", "--grace", "0.1")
    assert running.stop() == 0
    assert attempt_and_state(worked) == (0, "ready")


def test_a_thread_that_is_given_up_has_no_time_beside_its_successor(worked: Place) -> None:
    """Its message goes back as the very last step: nothing is asked of the server after it, and the process ends."""
    with worked.queue() as queue:
        queue.connect()
        upstream = queue.url
    with Proxy(upstream) as proxy:
        running = begun(worked, "shop:plain_for_ever", "--grace", "0.1", f"--url={proxy.url}")
        assert running.stop() == 0
        assert proxy.requests[-1].name == "settle"
    assert attempt_and_state(worked) == (0, "ready")


def test_a_second_signal_cuts_the_grace_short(worked: Place) -> None:
    running = begun(worked, "shop:for_ever", "--grace", "3600")
    running.signal()
    running.until("drains")
    running.signal(signal.SIGINT)
    assert running.ends() == 0
    assert "waits no longer: what is left of 1 handler is released" in running.err
    assert "has drained, 1 message released" in running.err
    assert attempt_and_state(worked) == (0, "ready")


# --- options -----------------------------------------------------------------------------------------------------


def test_options_reach_the_worker(worked: Place) -> None:
    words = [
        "--pools",
        "fast, slow",
        "--concurrency",
        "7",
        "--worker-name",
        "w-1",
        "--handler-timeout",
        "0.1",
    ]
    with worked.queue(retry=RetryPolicy.fixed(3600)) as queue:
        queue.enqueue(1, tenant="acme", pool="slow", id="1")
        running = worked.start("worker", "shop:for_ever", *words)
        eventually_sync(lambda: queue.stats().totals.failed == 1, "the handler to be timed out")
        (state,) = queue.workers()
        found = queue.get("acme", "1")
    assert (state.name, state.pools, state.concurrency) == ("w-1", ("fast", "slow"), 7)
    assert found is not None
    assert found.error == "TimeoutError: the handler took longer than 0.1 s"
    assert running.stop() == 0


def test_the_log_as_json_lines(worked: Place) -> None:
    running = begun(worked, "shop:fails", "--json")
    eventually_sync(lambda: attempt_and_state(worked) == (1, "delayed"), "the failure to be stored")
    assert running.stop() == 0
    assert running.out == ""
    records = [json.loads(line) for line in running.err.splitlines()]
    (failure,) = [record for record in records if record["level"] == "warning"]
    assert (failure["tenant"], failure["message_id"], failure["attempt"]) == ("acme", "1", 1)
    assert "ValueError: no such invoice" in failure["traceback"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nosuch:handle"], "expected module 'nosuch' to be importable from"),
        (
            ["shop:quick", "--charge", "tme"],
            "expected --charge to be 'cost' or 'time', got 'tme' (did you mean 'time'?)",
        ),
        (["shop:quick", "--concurrency", "0"], "expected --concurrency to be an integer from 1"),
        (["shop:quick", "--pools", ""], "expected --pools to be non-empty text"),
        (["shop:quick", "--processes", "0"], "expected --processes to be an integer from 1 to 1024, got 0"),
        (["shop:quick", "--processes", "2", "--url", "embedded://"], "a server that processes can share"),
    ],
)
def test_wrong_use(worked: Place, words: list[str], said: str) -> None:
    done = worked.run("worker", *words)
    assert (done.status, said in done.error) == (2, True), done


# --- module:handler ----------------------------------------------------------------------------------------------


@pytest.fixture
def here(worked: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Modules of the test's directory, imported in this process."""
    monkeypatch.chdir(worked.directory)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield worked.directory
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in {"shop", "broken", "package"}:
            del sys.modules[name]


@pytest.mark.parametrize("target", ["shop:quick", "shop:thing", "shop:thing.method"])
def test_a_handler_is_a_function_an_object_or_a_method(here: Path, target: str) -> None:
    assert callable(load_handler(target))


def test_the_module_may_be_in_a_package_of_the_current_directory(here: Path) -> None:
    (here / "package").mkdir()
    (here / "package" / "mail.py").write_text("async def handle(message): pass\n")
    assert inspect.iscoroutinefunction(load_handler("package.mail:handle"))


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("shop", "expected the handler to be module:handler, such as shop.mail:handle, got 'shop'"),
        (":quick", "expected the handler to be module:handler"),
        ("shop:", "expected the handler to be module:handler"),
        ("no.such.module:handle", "there is no module 'no'"),
        ("shop.mail:handle", "there is no module 'shop.mail'"),
        ("shop:nosuch", "expected module 'shop' to have 'nosuch', it has no 'nosuch'"),
        ("shop:thing.nosuch", "expected module 'shop' to have 'thing.nosuch', it has no 'nosuch'"),
        ("shop:not_callable", "expected shop:not_callable to be a function of one message, got 3"),
        ("shop:Object", "expected shop:Object to be a function of one message"),
    ],
)
def test_what_is_no_handler_is_named(here: Path, target: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_handler(target)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\nraise OSError('no database')\n", "OSError: no database at broken.py:2"),
        ("import nowhere_at_all\n", "ModuleNotFoundError: No module named 'nowhere_at_all' at broken.py:1"),
        ("def f(:\n", "SyntaxError: invalid syntax (broken.py, line 1)"),
    ],
)
def test_a_module_that_cannot_be_imported_says_where(
    here: Path, text: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    (here / "broken.py").write_text(text)
    with caplog.at_level(logging.DEBUG, "fairqueue"), pytest.raises(FairQueueError) as caught:
        load_handler("broken:handle")
    assert not isinstance(caught.value, ConfigurationError)
    assert said in str(caught.value)
    assert "Traceback" in caplog.text
