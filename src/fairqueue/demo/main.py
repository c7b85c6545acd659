"""The demo from end to end: plan, two replays, the table, the report."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence

from rich.console import Console

from fairqueue.demo.options import SLOTS_PER_WORKER, DemoOptions
from fairqueue.demo.plan import Plan, make_plan
from fairqueue.demo.progress import screen_for
from fairqueue.demo.replay import SCHEDULERS, replay
from fairqueue.demo.report import report
from fairqueue.demo.result import Replay
from fairqueue.demo.shipped import shipped_trace
from fairqueue.demo.table import as_json, print_table
from fairqueue.demo.trace import Trace
from fairqueue.demo.words import describe_plan, describe_price, describe_taken_back, describe_untold, verdict
from fairqueue.errors import FairQueueError

STOP_AFTER = 1.2
"""A replay is stopped after this many times the time it was given: a slow machine ends late, not never."""


def main(options: DemoOptions) -> int:
    """Do what :func:`fairqueue.demo.run_demo` says."""
    trace = Trace(options.trace or shipped_trace())
    talk = Console(stderr=options.json)
    plan = make_plan(
        trace, seconds=options.seconds / 2, slots=SLOTS_PER_WORKER * options.workers, jobs=options.jobs
    )
    for line in describe_plan(trace.path.name, plan, workers=options.workers):
        _say(talk, line)
    try:
        replays = asyncio.run(_replays(plan, options, talk))
    except KeyboardInterrupt:
        raise KeyboardInterrupt("interrupted: the demo's servers have ended, no report was written") from None
    _write(options, report(trace.path.name, replays, workers=options.workers, comments=trace.comments()))
    return _conclude(options, replays, talk)


async def _replays(plan: Plan, options: DemoOptions, talk: Console) -> list[Replay]:
    stop_after_s = STOP_AFTER * options.seconds / 2
    with screen_for(talk) as screen:
        return [
            await replay(plan, scheduler, workers=options.workers, stop_after_s=stop_after_s, screen=screen)
            for scheduler in SCHEDULERS
        ]


def _write(options: DemoOptions, page: str) -> None:
    try:
        options.report.write_text(page, encoding="utf-8")
    except OSError as error:
        raise FairQueueError(
            f"expected to write the report to {options.report}, got {error.strerror}"
        ) from error


def _conclude(options: DemoOptions, replays: Sequence[Replay], talk: Console) -> int:
    wrong = [line for one in replays for line in verdict(one)]
    if options.json:
        found = {"report": str(options.report), "faults": wrong, **as_json(replays)}
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    else:
        print_table(talk, replays)
        for line in (*describe_price(replays), *describe_taken_back(replays), *describe_untold(replays)):
            _say(talk, line)
        if not any(one.facts.findings for one in replays):
            _say(talk, "audit() found nothing in either replay.")
        _say(talk, f"The report with the plots: {options.report}")
    for line in wrong:
        sys.stderr.write(line + "\n")
    return 1 if wrong else 0


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=not console.is_terminal)
