"""Where the server is, in every form of a URL, and what is said when it is not there or not what is expected."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fairqueue import ConfigurationError, FairQueue, FairQueueError, QueueUnavailableError, SyncFairQueue
from fairqueue._engine import engine
from tests.conftest import MakeQueue
from tests.support.fixtures import MakeServer
from tests.support.processes import Server, free_port
from tests.support.proxy import Proxy
from tests.support.stopwatch import Stopwatch
from tests.support.waiting import eventually


async def works(url: str | None, **options: Any) -> str:
    """Sends and takes one message there; the URL of the server that was used."""
    async with FairQueue(url, "forms", **options) as queue:
        await queue.enqueue({"n": 1}, tenant="a")
        (lease,) = await queue.claim()
        assert await lease.complete() == "done"
        return queue.url


async def refused(url: str, error: type[Exception], says: str) -> None:
    """It raises this error, saying this, when it is made or entered, and leaves no connection behind."""
    with pytest.raises(error, match=says):
        async with FairQueue(url, "forms"):
            pass


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients give up on their first connection sooner."""
    monkeypatch.setattr(engine, "FIRST_PATIENCE", 0.2)


@pytest.mark.parametrize(
    "form",
    [
        "redis://127.0.0.1:{port}",
        "redis://127.0.0.1:{port}/0",
        "redis://localhost:{port}/3",
        "valkey://127.0.0.1:{port}",
        "redis://default:@127.0.0.1:{port}",
    ],
)
async def test_a_server_on_a_port(own: Server, form: str) -> None:
    url = form.format(port=own.port)
    assert await works(url) == url.replace("valkey:", "redis:")


async def test_two_databases_never_see_each_other(own: Server) -> None:
    async with FairQueue(own.url + "/1", "same") as one, FairQueue(own.url + "/2", "same") as two:
        await one.enqueue(1, tenant="a")
        assert (await two.stats()).ready == 0
        assert (await one.stats()).ready == 1


async def test_a_server_on_a_unix_socket(server: str) -> None:
    assert server.startswith("unix:///")
    assert await works(server) == server


async def test_an_embedded_server_of_a_path(tmp_path: Path) -> None:
    assert (await works(f"embedded://{tmp_path}/data")).startswith("unix:///")
    async with FairQueue(f"embedded://{tmp_path}/data", "forms") as queue:
        assert (await queue.stats()).totals.completed == 1


async def test_a_private_embedded_server_is_gone_afterwards() -> None:
    url = await works("embedded://")
    await eventually(lambda: not Path(url.removeprefix("unix://")).exists(), "the socket to be removed")


async def test_the_environment_names_the_server(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRQUEUE_URL", server)
    assert await works(None) == server


async def test_without_any_url_the_server_is_in_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("FAIRQUEUE_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    caplog.set_level("INFO", "fairqueue")
    await works(None)
    assert (tmp_path / ".fairqueue").is_dir()
    assert str(tmp_path / ".fairqueue") in caplog.text


async def test_an_empty_environment_variable_names_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRQUEUE_URL", "")
    monkeypatch.chdir(tmp_path)
    await works(None)
    assert (tmp_path / ".fairqueue").is_dir()


async def test_a_password(make_server: MakeServer) -> None:
    own = make_server(requirepass="s3cret/@:")
    await works(f"redis://:s3cret%2F%40%3A@127.0.0.1:{own.port}")
    watch = Stopwatch()
    await refused(f"redis://:wrong@127.0.0.1:{own.port}", ConfigurationError, "password")
    await refused(own.url, ConfigurationError, "password")
    watch.check(3, "a wrong password to be refused without another try")


async def test_errors_never_show_the_password(
    make_server: MakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    own = make_server(requirepass="right")
    url = f"redis://:hunter2@127.0.0.1:{own.port}"
    with pytest.raises(ConfigurationError) as caught:
        async with FairQueue(url, "forms"):
            pass
    assert "hunter2" not in str(caught.value) + caplog.text + repr(FairQueue(url)._options)


async def test_nobody_at_the_port_is_unavailable() -> None:
    watch = Stopwatch()
    await refused(f"redis://127.0.0.1:{free_port()}", QueueUnavailableError, r"127\.0\.0\.1")
    watch.check(8, "to be told")


async def test_no_such_host_is_unavailable(impatient: None) -> None:
    with pytest.raises(QueueUnavailableError):
        async with asyncio.timeout(15), FairQueue("redis://no-such-host.invalid:6379"):
            pass


async def test_no_such_database_is_said(own: Server) -> None:
    await refused(own.url + "/99", FairQueueError, "out of range")


async def test_tls_to_a_server_without_it_is_unavailable(own: Server, impatient: None) -> None:
    said = r"cannot be used: .* \(rediss:// is for servers that speak TLS, redis:// for those that do not\)"
    await refused(own.url.replace("redis:", "rediss:"), QueueUnavailableError, said)


async def test_something_else_at_the_port_is_said() -> None:
    async def speak_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    stranger = await asyncio.start_server(speak_http, "127.0.0.1", 0)
    port = stranger.sockets[0].getsockname()[1]
    await refused(f"redis://127.0.0.1:{port}", FairQueueError, "server")
    stranger.close()


async def test_what_the_url_says_of_replies_is_overruled(own: Server) -> None:
    assert (
        await works(own.url + "?decode_responses=true&protocol=3")
        == own.url + "?decode_responses=true&protocol=3"
    )


async def test_a_cluster_node_is_refused(make_server: MakeServer) -> None:
    own = make_server(cluster_enabled="yes", cluster_port=str(free_port()))
    await refused(own.url, ConfigurationError, "cluster")


async def test_a_server_that_evicts_is_warned_of(
    make_server: MakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    own = make_server(maxmemory_policy="allkeys-lru", maxmemory="100mb")
    await works(own.url)
    assert "maxmemory-policy allkeys-lru" in caplog.text


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis+cluster://127.0.0.1:7000", "cluster"),
        ("valkey+cluster://127.0.0.1:7000", "cluster"),
        ("redis+sentinel://127.0.0.1:26379/mymaster", "sentinel"),
        ("http://127.0.0.1", "http"),
        ("postgres://127.0.0.1", "postgres"),
        ("127.0.0.1:6379", "redis://localhost"),
        ("", "redis://localhost"),
        ("embedded://relative/path", "absolute"),
    ],
)
def test_other_schemes_are_refused_when_the_queue_is_made(url: str, says: str) -> None:
    for kind in (FairQueue, SyncFairQueue):
        with pytest.raises(ConfigurationError, match=says):
            kind(url)


async def test_an_option_in_the_url_that_nobody_knows_is_refused(own: Server) -> None:
    await refused(own.url + "?no_such_option=1", ConfigurationError, "url")


def test_from_a_second_event_loop_it_says_so(server: str, namespace: str) -> None:
    queue: FairQueue[Any] = FairQueue(server, namespace)

    async def send() -> None:
        await queue.enqueue(1, tenant="a")

    async def send_and_stay(sent: asyncio.Event, go: asyncio.Event) -> None:
        await send()
        sent.set()
        await go.wait()
        await queue.close()

    async def from_another_thread() -> None:
        sent, go = asyncio.Event(), asyncio.Event()
        staying = asyncio.ensure_future(send_and_stay(sent, go))
        await sent.wait()
        with pytest.raises(FairQueueError, match="another event loop"):
            await asyncio.to_thread(asyncio.run, send())
        await send()  # the first loop is not disturbed
        go.set()
        await staying

    asyncio.run(from_another_thread())
    asyncio.run(open_then_close(queue, send))  # closed, it may be opened in another loop


async def open_then_close(queue: FairQueue[Any], work: Any) -> None:
    async with queue:
        await work()


def test_a_queue_left_open_by_a_loop_that_has_ended_says_so(server: str, namespace: str) -> None:
    queue: FairQueue[Any] = FairQueue(server, namespace)
    runner = asyncio.Runner()
    runner.run(queue.connect())
    with pytest.raises(FairQueueError, match="another event loop"):
        asyncio.run(queue.stats())  # type: ignore[arg-type]
    runner.run(queue.close())
    runner.close()


async def test_connecting_many_times_at_once_asks_the_server_once(
    proxy: Proxy, make_queue: MakeQueue, namespace: str
) -> None:
    queue: FairQueue[Any] = FairQueue(proxy.url, namespace)
    await asyncio.gather(*(queue.connect() for _ in range(20)))
    assert proxy.count("INFO") == 1
    assert proxy.count("EVAL") == 1
    await queue.close()
