"""Every command's options, and how commands end when something is wrong."""

from __future__ import annotations

import signal
import subprocess
import sys

import click
import pytest

from fairqueue import __version__
from fairqueue.cli.app import fairqueue
from tests.cli.command import COMMAND, Place

COMMANDS = [
    "bench",
    "cancel",
    "demo",
    "doctor",
    "enqueue",
    "explain",
    "fairness",
    "limits",
    "maintain",
    "pause",
    "purge",
    "resume",
    "server",
    "simulate",
    "stats",
    "tenants",
    "worker",
]


def single() -> dict[str, click.Command]:
    """Each command that does something, by the words that are typed."""
    found: dict[str, click.Command] = {}
    for name, command in fairqueue.commands.items():
        several = command.commands if isinstance(command, click.Group) else {}
        found |= {f"{name} {under}": one for under, one in several.items()} or {name: command}
    return found


def test_these_are_the_commands() -> None:
    assert sorted(fairqueue.commands) == COMMANDS


@pytest.mark.parametrize("name", sorted(single()))
def test_every_command_takes_url_name_and_json_and_explains_itself(name: str) -> None:
    command = single()[name]
    options = {option for parameter in command.params for option in parameter.opts}
    assert {"--url", "--name", "--json"} <= options
    assert command.help
    assert len(command.help) > 40


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["worker", "--help"]])
def test_version_and_help_are_no_errors(words: list[str]) -> None:
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (__version__ if words == ["--version"] else "Usage: fairqueue") in done.stdout


def test_the_console_script_is_the_same_command() -> None:
    script = "from fairqueue.cli import main; import sys; sys.exit(main(['--version']))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == f"fairqueue {__version__}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nosuch"], "No such command 'nosuch'"),
        (["stats", "--nosuch"], "No such option '--nosuch' (see fairqueue stats --help)"),
        (["stats", "--url", "ftp://host"], "expected --url to have one of the schemes"),
        (["enqueue", "1", "--delay", "soon"], "'soon' is not a valid float"),
        (["worker", "os:getpid"], "expected handler to take one message, got <built-in function getpid>"),
        (["worker"], "Missing argument 'MODULE:HANDLER'"),
        (
            ["maintain", "--reclaim-interval", "-1"],
            "expected --reclaim-interval to be a duration of 0 or more",
        ),
        (["server", "--url", "redis://localhost"], "expected --url to be embedded:// with the path"),
        (["demo", "--seconds", "1"], "expected --seconds to be a number from 12"),
        (["demo", "--trace", "no-such-file"], "no-such-file"),
        (["bench", "--messages", "1"], "expected --messages to be an integer from 10"),
        (
            ["worker", "nosuch:one", "--visibility-timeout", "-1"],
            "expected --visibility-timeout to be a positive",
        ),
        (["worker", "nosuch:one", "--concurrency", "0"], "expected --concurrency to be an integer from 1"),
        (
            ["worker", "nosuch:one", "--processes", "0"],
            "expected --processes to be an integer from 1 to 1024, got 0",
        ),
        (["worker", "nosuch:one", "--pools", ""], "expected --pools to be non-empty text"),
        (["worker", "nosuch:one", "--worker-name", ""], "expected --worker-name to be non-empty text"),
        (["worker", "nosuch:one", "--grace", "-1", "--processes", "2"], "expected --grace to be a duration"),
        (["worker", "test_errors.py:one"], "(a module has no .py and dots for slashes: test_errors:handler)"),
        (["worker", "./shop/mail.py:one"], "(a module has no .py and dots for slashes: shop.mail:handler)"),
        (["enqueue", "1", "--tenant", ""], "expected --tenant to be non-empty text, got ''"),
        (
            ["enqueue", "1", "--tenant", "a", "--max-attempts", "0"],
            "expected --max-attempts to be an integer",
        ),
        (["enqueue", "--tenant", "a", "-5"], "goes behind --, such as: enqueue --tenant acme -- -5"),
    ],
)
def test_wrong_use_is_one_line_and_exit_status_2(place: Place, words: list[str], said: str) -> None:
    done = place.call(*words)
    assert (done.status, said in done.error) == (2, True), done


@pytest.mark.parametrize(
    ("words", "typed"),
    [
        (["--url", "redis://localhost", "stats"], "fairqueue stats --url URL"),
        (["--json", "stats"], "fairqueue stats --json"),
        (["--processes", "2", "worker", "a:b"], "fairqueue worker --processes P"),
    ],
)
def test_an_option_before_the_command_is_told_its_place(place: Place, words: list[str], typed: str) -> None:
    done = place.call_bare(*words)
    assert (done.status, done.error) == (
        2,
        f"No such option '{words[0]}' before the command (it goes behind it, such as: {typed})",
    )
    assert place.call_bare("--nosuch", "stats").error == "No such option '--nosuch' (see fairqueue --help)"


@pytest.mark.parametrize("name", sorted(single()))
def test_every_option_that_is_shown_is_described(name: str) -> None:
    options = [option for option in single()[name].params if isinstance(option, click.Option)]
    assert [option.opts[0] for option in options if not (option.help or option.hidden)] == []


def test_no_command_at_all_is_wrong_use(place: Place) -> None:
    done = subprocess.run(COMMAND, capture_output=True, text=True, check=False, cwd=place.directory)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "fairqueue: Missing command (see fairqueue --help)\n"


def test_a_handler_of_another_arity_ends_several_processes_too(place: Place) -> None:
    done = place.run("worker", "os:getpid", "--processes", "2")
    assert (done.status, "expected handler to take one message" in done.error) == (2, True), done


def test_a_bad_namespace_is_wrong_use(place: Place) -> None:
    done = place.run("stats", "--json", name="a b")
    assert done.status == 2
    assert "expected --name to be 1 to 64 ASCII letters" in done.error


@pytest.mark.parametrize(
    "words", [["stats"], ["enqueue", "1", "--tenant", "a"], ["worker", "os:getcwd"], ["server"]]
)
def test_a_wrong_variable_is_named(place: Place, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRQUEUE_URL", "ftp://host")
    said = "the environment variable FAIRQUEUE_URL is wrong: expected url to have one of the schemes"
    done = Place(place.directory, "ftp://host", place.name).run(*words)
    assert (done.status, said in done.error) == (2, True), done
    assert "FAIRQUEUE_URL" not in place.call("stats", "--url", "ftp://other").error


@pytest.mark.parametrize(
    ("name", "hidden"),
    [("demo", {"--url", "--name"}), ("server", {"--name"}), ("bench", set()), ("stats", set())],
)
def test_options_that_play_no_part_are_not_shown(place: Place, name: str, hidden: set[str]) -> None:
    shown = place.call_bare(name, "--help").out
    assert {option for option in ("--url", "--name", "--json") if f"  {option} " not in shown} == hidden


def test_the_help_of_bench_has_its_own_defaults(place: Place) -> None:
    shown = " ".join(place.call_bare("bench", "--help").out.split())
    assert "Default: a private, temporary one." in shown
    assert "FAIRQUEUE_URL" not in shown


def test_a_server_that_is_not_there_is_a_failure(place: Place) -> None:
    done = place.run("stats", "--url", f"unix://{place.directory}/no.sock")
    assert done.status == 1
    assert "the server cannot be used" in done.error


def test_a_password_is_not_printed(place: Place) -> None:
    done = place.call("stats", "--url", "redis://user:geheim@host:0")
    assert done.status == 2
    assert "geheim" not in done.error


def test_a_reader_that_has_gone_is_no_traceback(place: Place) -> None:
    """``fairqueue stats | head -1``: the pipe is closed before the command writes."""
    with place.queue() as queue:
        queue.connect()
    process = subprocess.Popen(
        [*COMMAND, "stats", "--url", place.url, "--name", place.name],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=place.directory,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(60) == 1
    assert process.stderr is not None
    with process.stderr as stderr:
        assert stderr.read() == b""


def test_an_interrupted_demo_says_so(place: Place) -> None:
    running = place.start("demo")
    running.until("fifo")
    running.signal(signal.SIGINT)
    assert running.ends() == 130
    assert running.err.strip() == (
        "fairqueue: interrupted: the demo's servers have ended, no report was written"
    )
    assert not list(place.directory.glob("*.html"))
