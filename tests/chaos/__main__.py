"""``python -m tests.chaos --seed 1 --kills 1000``: exit status 0 when every promise was kept, else 1.

The journal and what the processes said stay in build/chaos/ until the next run.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.chaos.accounting import account
from tests.chaos.journal import entries
from tests.chaos.report import FOLDER, began, ended, failed, printed, problems
from tests.chaos.run import Chaos


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description="Kills, freezes and ends processes under load."
    )
    parser.add_argument("--seed", type=int, default=1, help="the same seed is the same plan (%(default)s)")
    parser.add_argument(
        "--kills",
        type=int,
        default=1000,
        help="how many processes are killed; freezes and ends come besides (%(default)s)",
    )
    order = parser.parse_args(arguments)
    FOLDER.mkdir(parents=True, exist_ok=True)
    journal, log = FOLDER / "journal.jsonl", FOLDER / "processes.log"
    for file in (journal, log):
        file.write_bytes(b"")
    began_at = time.monotonic()
    began(order.seed, order.kills)
    chaos = Chaos(order.seed, order.kills, journal, log, lambda text: print(text, flush=True))
    try:
        done = chaos.run()
        assert done.stock is not None
        result = account(entries(journal), done.stock)
    except BaseException as error:  # whatever it is, it is written down and goes on
        failed(chaos.done, error)
        raise
    print(printed(done, result, order.seed, time.monotonic() - began_at))
    ended(done, result, order.kills)
    wrong = problems(done, result, order.kills)
    for problem in wrong:
        print(problem, file=sys.stderr)
    if wrong:
        print(f"the journal is {journal}, what the processes said {log}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
