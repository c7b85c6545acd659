"""Failing tests are named when they fail: a run that is watched, or cut, has told by then."""

from __future__ import annotations

from typing import Any

import pytest


class ToldAtOnce:
    """Writes a line for every test that fails, with the first line of its error."""

    def __init__(self, reporter: Any) -> None:
        self._reporter = reporter

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            error = str(getattr(crash, "message", "") or report.longreprtext).strip().partition("\n")[0]
            # The line break by hand: with -q the reporter takes a row of dots for the start of a line.
            self._reporter.write_line(f"\nFAILED {report.nodeid} ({report.when}): {error}", red=True)
            self._reporter.flush()


def tell_at_once(config: pytest.Config) -> None:
    """For ``pytest_configure``: in the process that prints, not in xdist's workers."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(ToldAtOnce(reporter), "told-at-once")
