"""Fixtures of this directory."""

from __future__ import annotations

from tests.support.fixtures import log, make_queue, make_server, module_proxy, own, proxy, start_worker

__all__ = ["log", "make_queue", "make_server", "module_proxy", "own", "proxy", "start_worker"]
