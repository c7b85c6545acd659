"""``python -m fairqueue``: the same as the command ``fairqueue``."""

from __future__ import annotations

import sys

from fairqueue.cli import main

if __name__ == "__main__":
    sys.exit(main())
