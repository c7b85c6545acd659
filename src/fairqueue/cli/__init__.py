"""The command ``fairqueue``: one module a command, over the public API.

==============  =============================================================================================
app.py          the group of commands, errors as one line, exit status
options.py      options that every command takes, values of options
output.py       JSON, tables on a terminal, plain lines elsewhere
target.py       ``module:handler`` to the function it names
logs.py         what the library logs, on standard error
demo.py ...     the commands
==============  =============================================================================================
"""

from __future__ import annotations

from fairqueue.cli.app import main

__all__ = ["main"]
