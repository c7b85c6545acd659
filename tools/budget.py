"""Runs a command within a budget of seconds: `budget.py NAME VARIABLE SECONDS COMMAND...`.

VARIABLE is the variable of make that sets the budget: whoever runs out of it is told how to get more.

Exits with the command's status, or with 124 when the budget ran out. The command gets a process group of
its own, so that ending it ends what it started too; an interrupt from the keyboard is passed on to it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from types import FrameType

OUT_OF_BUDGET = 124
MORE = 3  # times the budget: what overran it on a busy machine may well overrun twice as much
# SIGINT first: a test runner then says what it was doing. The others follow for what does not listen.
ENDINGS = ((signal.SIGINT, 10), (signal.SIGTERM, 10), (signal.SIGKILL, None))


def main(name: str, variable: str, seconds: float, command: list[str]) -> int:
    """Runs the command; its status as a shell would give it, 124 when it was ended for its budget."""
    # A group in the background may not set up the terminal; progress bars do, and would be stopped for it.
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0)
    _pass_on_signals(process)
    try:
        status = process.wait(seconds)
    except subprocess.TimeoutExpired:
        more = f"for more time on a slow or busy machine: make {name.removeprefix('make ')} {variable}={MORE * seconds:g}"
        print(f"\n{name}: over its budget of {seconds:g} s, ending it ({more})", file=sys.stderr, flush=True)
        _end(process)
        return OUT_OF_BUDGET
    return status if status >= 0 else 128 - status


def _pass_on_signals(process: subprocess.Popen[bytes]) -> None:
    def pass_on(number: int, _frame: FrameType | None) -> None:
        _signal_group(process, number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, pass_on)


def _end(process: subprocess.Popen[bytes]) -> None:
    for number, patience in ENDINGS:
        _signal_group(process, number)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue
        break
    _signal_group(process, signal.SIGKILL)  # whatever it left running


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4:]))
