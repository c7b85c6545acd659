"""The cut of a real job log that comes with fairqueue.

In the repository it is ``examples/lcg-2005-cut.tsv``, and only there. The build puts a copy into the wheel as
``fairqueue/demo/data/lcg-2005-cut.tsv``, so the demo needs nothing from outside wherever it is installed.
"""

from __future__ import annotations

from pathlib import Path

from fairqueue.errors import FairQueueError

NAME = "lcg-2005-cut.tsv"

_PLACES = (Path(__file__).parent / "data" / NAME, Path(__file__).parents[3] / "examples" / NAME)


def shipped_trace() -> Path:
    """Where the cut is.

    Raises:
        FairQueueError: it is not there; the installation is incomplete.
    """
    for place in _PLACES:
        if place.is_file():
            return place
    raise FairQueueError(
        f"expected {NAME} to be installed with fairqueue, found none; give a log with --trace FILE"
    )
