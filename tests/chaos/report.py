"""The table of a run, and its line for docs/reliability.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.chaos import load
from tests.chaos.accounting import Account
from tests.chaos.plan import KILL, MAINTAINER, OPERATOR, OWNER, WATCHER, WORKER
from tests.chaos.run import Done
from tests.faults import record
from tests.support.processes import ROOT

_ROLES = (WORKER, OWNER, MAINTAINER, OPERATOR, WATCHER)
_SHOWN = 10
_ENOUGH = 20
"""Kills after which everything there is has been tried."""


def problems(done: Done, account: Account, kills: int) -> list[str]:
    """All that is not as promised, in words."""
    findings = done.stock.findings if done.stock else ["the run did not come to its end"]
    named = {
        "lost": account.lost,
        "wedged": [f"{account.wedged} messages were left"] if account.wedged else [],
        "run twice": account.doubled,
        "limit exceeded": account.exceeded,
        "started": account.forbidden,
        "counts": account.unbalanced,
        "flow control": _not_met(account) if kills >= _ENOUGH else [],
        "audit": findings,
        "server": done.problems,
        "process": done.counts.odd_ends,
        "audit under load": _of_audits(done),
        "kills": [f"{done.kills} of {kills} were made"] if done.kills != kills else [],
    }
    return [f"{what}: {text}" for what, texts in named.items() for text in _some(texts)]


def _not_met(account: Account) -> list[str]:
    """What this run was to try, and has not."""
    met = {
        "pause": account.pauses, "cancel": account.cancels, "expired message": account.expired,
        "delivery under a rate": account.rated,
    }  # fmt: skip
    return [f"there was no {what}" for what, number in met.items() if not number]


def _of_audits(done: Done) -> list[str]:
    """What they found is in the log of the processes."""
    found, made = done.counts.audits_that_found, done.counts.audits
    return (
        [f"{found} of {made} found something: see 'under load' in what the processes said"] if found else []
    )


def _some(texts: list[str]) -> list[str]:
    more = len(texts) - _SHOWN
    return texts[:_SHOWN] + ([f"and {more} more"] if more > 0 else [])


def printed(done: Done, account: Account, seed: int, seconds: float) -> str:
    """The table."""
    return "\n".join(
        [*_faults(done.faults), "", *_phases(done.phases), "", *_outcome(done, account, seed, seconds)]
    )


def _faults(faults: Counter[tuple[str, str]]) -> Iterator[str]:
    kinds = sorted({kind for _, kind in faults})
    yield f"{'fault':28}" + "".join(f"{role:>12}" for role in _ROLES) + f"{'all':>8}"
    for kind in kinds:
        row = [faults[role, kind] for role in _ROLES]
        yield f"{kind:28}" + "".join(f"{number:12}" for number in row) + f"{sum(row):8}"
    columns = [sum(faults[role, kind] for kind in kinds) for role in _ROLES]
    yield f"{'all':28}" + "".join(f"{number:12}" for number in columns) + f"{faults.total():8}"


def _phases(phases: Counter[tuple[str, str]]) -> Iterator[str]:
    """What workers were doing when it came."""
    met = sorted({phase for _, phase in phases})
    yield f"{'workers met while':28}" + "".join(f"{phase:>12}" for phase in met)
    for kind in sorted({kind for kind, _ in phases}):
        yield f"{kind:28}" + "".join(f"{phases[kind, phase]:12}" for phase in met)


def _outcome(done: Done, account: Account, seed: int, seconds: float) -> Iterator[str]:
    counts, stock = done.counts, done.stock
    tenants = [peak for group, peak in account.peaks.items() if group != load.ORG]
    rows: list[tuple[str, object]] = [
        ("faults", done.faults.total()),
        ("processes killed", f"{done.kills} ({done.faults[WATCHER, KILL]} of them the watcher, with its server)"),
        ("processes started", f"{counts.started} ({counts.restarts} restarts, {counts.twins} beside a frozen one of the same name)"),
        ("messages", account.messages),
        ("completed + dead + dropped + cancelled + waiting", f"{stock.completed} + {len(stock.dead)} + {stock.dropped} + {stock.cancelled} + {stock.waiting}" if stock else "unknown"),
        ("expired (dead or dropped)", account.expired),
        ("cancels answered", account.cancels),
        ("pauses of tenants, queues, pools", account.pauses),
        ("deliveries under a rate", account.rated),
        ("deliveries", account.deliveries),
        ("repeated after an expiry", f"{account.after_expiry} ({account.on_a_slow_machine} for want of a processor)"),
        ("repeated after a shutdown", account.after_shutdown),
        ("completed although given up", f"{account.late} (their worker was back after the last crash)"),
        ("most at once", f"{max(tenants, default=0)} of {load.PER_TENANT} a tenant, {account.peaks.get(load.ORG, 0)} of {load.SHARED} in the shared group"),
        ("audits under load", f"{counts.audits}, of which {counts.audits_that_found} found something"),
        ("server away, longest", f"{max(done.absences, default=0):.2f} s ({max(done.outages, default=0):.2f} s with loading its data)"),
        ("lost", len(account.lost)),
        ("wedged", account.wedged),
        ("run twice without an expired lease", len(account.doubled)),
        ("limits exceeded", len(account.exceeded)),
        ("started though paused, cancelled, expired or out of tokens", len(account.forbidden)),
        ("findings of the last audits", len(stock.findings) if stock else "unknown"),
        ("seconds", round(seconds)),
        ("seed", seed),
    ]  # fmt: skip
    for name, value in rows:
        yield f"{name:62}{value}"


FOLDER = ROOT / "build" / "chaos"
"""The journal, what the processes said, and a line for each run."""


def began(seed: int, kills: int) -> None:
    """A run that never says how it ended did not come to its end."""
    record.began("runs", FOLDER, seed=seed, wanted=kills, **record.surroundings())


def failed(done: Done, error: BaseException) -> None:
    """It did not come to its end: that is all there is to say of its messages."""
    record.note(
        "runs", FOLDER, faults=done.faults.total(), kills=done.kills, failed=repr(error)[:500], problems=1
    )


def ended(done: Done, account: Account, kills: int) -> None:
    """For docs/reliability.md."""
    record.note(
        "runs", FOLDER, faults=done.faults.total(), kills=done.kills, messages=account.messages, deliveries=account.deliveries,
        repeated=account.after_expiry, lost=len(account.lost), wedged=account.wedged, doubled=len(account.doubled),
        exceeded=len(account.exceeded), forbidden=len(account.forbidden), pauses=account.pauses, cancels=account.cancels,
        expired=account.expired, rated=account.rated, problems=len(problems(done, account, kills)),
    )  # fmt: skip
