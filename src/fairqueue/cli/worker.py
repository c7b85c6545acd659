"""``fairqueue worker module:handler``: one worker process, or several under a supervisor."""

from __future__ import annotations

import io
import logging
import os
import sys
from dataclasses import dataclass
from typing import Any

import click

from fairqueue.cli.logs import log_to_stderr
from fairqueue.cli.options import Common, common
from fairqueue.cli.service import log_option, maintenance_options
from fairqueue.cli.target import load_handler
from fairqueue.errors import ConfigurationError
from fairqueue.exits import LAST_STEPS
from fairqueue.lifeline import Lifeline
from fairqueue.queue import FairQueue
from fairqueue.runner import WorkerSettings, run_worker
from fairqueue.supervisor import Supervisor
from fairqueue.url import resolved_url
from fairqueue.validation import identifier, integer
from fairqueue.worker import Charge, Worker

_log = logging.getLogger("fairqueue")
MOST_PROCESSES = 1024


@dataclass(frozen=True, slots=True)
class _Order:
    """What was asked for; a child gets the same but for its name."""

    target: str
    concurrency: int
    pools: str
    handler_timeout: float | None
    grace: float
    visibility_timeout: float
    reclaim_interval: float
    reconcile_interval: float
    worker_name: str | None
    charge: Charge
    log_level: str

    def settings(self) -> WorkerSettings:
        pools = tuple(pool.strip() for pool in self.pools.split(","))
        return WorkerSettings(
            self.concurrency, pools, self.handler_timeout, self.grace, self.worker_name, self.charge
        )

    def child(self, common: Common, number: int) -> list[str]:
        """The command of one child. The URL goes by the environment: a command line is there for all to read."""
        named = {
            "concurrency": self.concurrency,
            "pools": self.pools,
            "handler-timeout": self.handler_timeout,
            "grace": self.grace,
            "visibility-timeout": self.visibility_timeout,
            "reclaim-interval": self.reclaim_interval,
            "reconcile-interval": self.reconcile_interval,
            "worker-name": self.worker_name and f"{self.worker_name}-{number}",
            "charge": self.charge,
            "log-level": self.log_level,
            "name": common.namespace,
        }
        options = [f"--{option}={value}" for option, value in named.items() if value is not None]
        json = ["--json"] if common.json else []
        return [sys.executable, "-m", "fairqueue", "worker", *options, *json, self.target]


@click.command()
@click.argument("target", metavar="MODULE:HANDLER")
@click.option(
    "--concurrency",
    type=int,
    default=100,
    show_default=True,
    metavar="N",
    help="Handlers at once, each process.",
)
@click.option("--processes", type=int, default=1, show_default=True, metavar="P", help="Worker processes.")
@click.option("--pools", default="default", show_default=True, metavar="A,B", help="Tried in this order.")
@click.option(
    "--handler-timeout", type=float, metavar="SECONDS", help="The longest run; no limit unless given."
)
@click.option(
    "--grace",
    type=float,
    default=30,
    show_default=True,
    metavar="SECONDS",
    help="For running handlers at the end.",
)
@click.option(
    "--visibility-timeout", type=float, default=30, show_default=True, metavar="SECONDS", help="Of leases."
)
@maintenance_options
@click.option("--worker-name", metavar="TEXT", help="In lists of workers; drawn unless given.")
@click.option(
    "--charge",
    default="cost",
    show_default=True,
    metavar="cost|time",
    help="What a delivery charges its tenant: the message's cost, or the seconds it took.",
)
@log_option
@click.option("--lifeline", type=int, hidden=True)
@common
def worker(common: Common, processes: int, lifeline: int | None, **asked: Any) -> int:
    """Handle messages with the function MODULE:HANDLER, for example shop.mail:handle.

    Modules are looked for in the current directory first. SIGTERM and SIGINT drain: no more claims, --grace for what
    runs, then it is released, uncounted; a second signal cuts the grace short. With several processes one that
    dies is replaced. Exit status 0 when all have drained.
    """
    log_to_stderr(asked["log_level"], as_json=common.json)
    order = _Order(**asked)
    _check(common, order)
    integer("processes", processes, 1, MOST_PROCESSES)
    return _supervise(common, order, processes) if processes > 1 else _work(common, order, lifeline)


def _check(common: Common, order: _Order) -> None:
    """Wrong options are told before a wrong handler is, and before any child is started."""
    settings = order.settings()
    if settings.name is not None:
        identifier("worker_name", settings.name)
    Worker(
        _queue(common, order),
        _nobody,
        settings.concurrency,
        settings.pools,
        settings.handler_timeout,
        settings.grace,
        charge=settings.charge,
    )


async def _nobody(_message: Any) -> None:
    """Stands for the handler while options are checked."""


def _queue(common: Common, order: _Order) -> FairQueue[Any]:
    return common.queue(
        visibility_timeout=order.visibility_timeout,
        reclaim_interval=order.reclaim_interval,
        reconcile_interval=order.reconcile_interval,
    )


def _work(common: Common, order: _Order, lifeline: int | None) -> int:
    line = None if lifeline is None else Lifeline(lifeline, order.grace + LAST_STEPS)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What a handler prints shows at once in a pipe or a file too, and is not lost with a worker that is killed.
        sys.stdout.reconfigure(line_buffering=True)
    handler = load_handler(order.target)
    if common.missing:
        _log.warning(common.made)
    return run_worker(_queue(common, order), handler, order.settings(), line)


def _supervise(common: Common, order: _Order, processes: int) -> int:
    url, parsed = resolved_url(common.url), common.address
    if parsed.scheme == "embedded" and parsed.path is None:
        raise ConfigurationError("expected --url to be a server that processes can share, got embedded://")
    environment = os.environ | {"FAIRQUEUE_URL": url}
    return Supervisor(lambda number: order.child(common, number), processes, order.grace, environment).run()
