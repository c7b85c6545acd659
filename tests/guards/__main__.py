"""``python -m tests.guards [path...]``: every guard with its counter-proof, as a table.

Exit status 0 when every test passes on the code as it is and fails without its guard, else 1.
``--why`` adds the assertion on which each counter-proof failed: it has to show the harm, not the error of a call.
``python -m tests.guards --docs`` writes the catalogue of the documentation instead.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.guards.catalogue import DOCS, all_proofs
from tests.guards.runner import run
from tests.guards.table import catalogue, printed, reasons

HOW_TO_READ = (
    "Runs each guard's test on the code as it is, then without the guard. One mark a run: . passes (the code as it "
    "is), x fails (without the guard, as it must), ! breaks otherwise. The table follows."
)
HERE = Path(__file__).resolve().parent


def main(paths: list[str]) -> int:
    """Runs the proofs under the paths (all of them without one); the exit status."""
    if paths == ["--docs"]:
        DOCS.write_text(catalogue(all_proofs()), encoding="utf-8")
        return 0
    started = time.monotonic()
    explained = "--why" in paths
    print(HOW_TO_READ, flush=True)
    collected = run([path for path in paths if path != "--why"] or [str(HERE)])
    if explained:
        print(reasons(collected))
    print(printed(collected))
    print(f"{time.monotonic() - started:.0f} s")
    return 0 if collected.proven else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
