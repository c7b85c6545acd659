"""How much is injected: all there is, or a part of it where time is short.

``make faults`` lets every command of every script fail and runs each case at the size that its report states. With
FAULTS_EVERY=3, say, it is each third command, and a tenth of that size.
"""

from __future__ import annotations

import os

EVERY = int(os.environ.get("FAULTS_EVERY", "1"))
"""Of the commands of a script: each, or each third, say."""
WHOLE = EVERY == 1


def sized(stated: int) -> int:
    """As many rounds, messages or tenants as a case states, or a tenth of them."""
    return stated if WHOLE else stated // 10
