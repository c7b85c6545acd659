"""Processes are killed, frozen and ended by the hundred under load, and then every message is accounted for.

==============  ===================================================================================
plan.py         what is done to whom, in which order: a seed gives the same plan again
load.py         the messages, the limits, and what handlers do
journal.py      what producers, handlers and the one that breaks things wrote down, a line each
board.py        what each process is doing right now, in memory that all of them share
roles.py        the processes: worker, owner of the embedded server, maintainer, operator, auditor
claims.py       when a worker asked for what it was given
operating.py    what the operator does: rates, pauses, weights, guarantees
fleet.py        starts, signals, reaps and restarts them; forked from a process that has all imported
watch.py        how long the embedded server was away
run.py          carries the plan out, lets the queue run dry, and takes stock
history.py      when each process and handler ran, by the journal
accounting.py   what the journal and the stock say: lost, doubled, limits exceeded
endings.py      what each message came to, or may have come to
flow.py         what was started although it was paused, cancelled, expired or out of tokens
report.py       the table, and the line for docs/reliability.md
==============  ===================================================================================

``python -m tests.chaos --seed 1 --kills 1000``; ``make chaos`` is the same within a budget.
"""
