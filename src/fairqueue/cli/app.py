"""The group of commands, and how each of them ends.

Exit status 0: done. 1: it failed, or there are findings. 2: wrong use. Every error is one line on standard error; what
is no mistake of the user or the machine, but ours, keeps its traceback.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Sequence

import click

from fairqueue import __version__
from fairqueue.cli.bench import bench
from fairqueue.cli.control import cancel, pause, purge, resume
from fairqueue.cli.demo import demo
from fairqueue.cli.doctor import doctor
from fairqueue.cli.enqueue import enqueue
from fairqueue.cli.explain import explain
from fairqueue.cli.fairness import fairness
from fairqueue.cli.limits import limits
from fairqueue.cli.maintain import maintain
from fairqueue.cli.output import visible
from fairqueue.cli.server import server
from fairqueue.cli.simulate import simulate
from fairqueue.cli.stats import stats
from fairqueue.cli.tenants import tenants
from fairqueue.cli.worker import worker
from fairqueue.errors import ConfigurationError, FairQueueError, InvalidMessageError, PayloadTooLargeError

DONE, FAILED, WRONG_USE = 0, 1, 2
INTERRUPTED = 130
"""128 + SIGINT, as shells have it."""

_WRONG_USE = (ConfigurationError, InvalidMessageError, PayloadTooLargeError)


@click.group(
    no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="fairqueue", message="%(prog)s %(version)s")
def fairqueue() -> None:
    """Fair queues for many tenants on Valkey or Redis.

    Without --url and FAIRQUEUE_URL the queue lives in .fairqueue in the current directory, on a server that comes
    along. Exit status: 0 done, 1 failed or findings, 2 wrong use.
    """


_WORK = (demo, worker, enqueue, stats, explain, fairness, doctor, maintain, bench, server, simulate)
_CONTROL = (limits, tenants, pause, resume, cancel, purge)
for _command in (*_WORK, *_CONTROL):
    fairqueue.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit status.

    Args:
        arguments: without the program's name; None: those of this process.

    Example:
        >>> main(["stats", "--json"])                                           # doctest: +SKIP
        0
    """
    # What ends says itself what is wrong, in one line; commands that run on have a log (logs.py).
    logging.getLogger("fairqueue").addHandler(logging.NullHandler())
    try:
        status = fairqueue.main(arguments, prog_name="fairqueue", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        return _wrong(error)
    except click.Abort as error:  # click's own name for Ctrl-C
        return _complain(str(error.__cause__ or "") or "interrupted", INTERRUPTED)
    except FairQueueError as error:
        return _complain(str(error), WRONG_USE if isinstance(error, _WRONG_USE) else FAILED)
    except BrokenPipeError:
        # The reader has gone (``| head``). Python would complain once more when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return status if isinstance(status, int) else DONE


def _wrong(error: click.ClickException) -> int:
    context = error.ctx if isinstance(error, click.UsageError) else None
    said, hint = (
        error.format_message().rstrip("."),
        f" (see {context.command_path} --help)" if context else "",
    )
    if isinstance(error, click.NoSuchOption):
        if re.match(r"-[\d.]", error.option_name):
            hint = (
                " (what begins with - and is no option goes behind --, such as: enqueue --tenant acme -- -5)"
            )
        elif context and context.command is fairqueue and (typed := _behind_a_command(error.option_name)):
            said = f"No such option {error.option_name!r} before the command"
            hint = f" (it goes behind it, such as: {typed})"
    return _complain(said + hint, error.exit_code)


def _behind_a_command(option: str) -> str | None:
    """How the option is typed, of the first command that has it: of ``stats`` if that does."""
    for name, command in sorted(fairqueue.commands.items(), key=lambda item: item[0] != "stats"):
        for parameter in command.params:
            if isinstance(parameter, click.Option) and option in parameter.opts and not parameter.hidden:
                return " ".join(filter(None, ("fairqueue", name, option, parameter.metavar)))
    return None


def _complain(text: str, status: int) -> int:
    one_line = " ".join(text.split())
    sys.stderr.write(f"fairqueue: {visible(one_line)}\n")
    return status
