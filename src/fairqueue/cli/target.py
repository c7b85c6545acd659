"""``module:handler`` to the function it names."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from fairqueue.errors import ConfigurationError, FairQueueError
from fairqueue.validation import shown

_log = logging.getLogger("fairqueue")


def load_handler(target: str) -> Any:
    """The handler that ``module:handler`` names; modules of the current directory are found first.

    Raises:
        ConfigurationError: there is no such module or attribute, or it cannot be called.
        FairQueueError: the module raised while it was imported.

    Example:
        >>> load_handler("shop.mail:handle")                                    # doctest: +SKIP
        <function handle at 0x7f5b0c1d2e50>
    """
    module_name, colon, path = target.partition(":")
    if not (module_name and colon and path):
        raise ConfigurationError(
            f"expected the handler to be module:handler, such as shop.mail:handle, got {target!r}"
        )
    _find_modules_here()
    found: Any = _imported(module_name)
    for attribute in path.split("."):
        try:
            found = getattr(found, attribute)
        except AttributeError:
            raise ConfigurationError(
                f"expected module {module_name!r} to have {path!r}, it has no {attribute!r}"
            ) from None
    if not callable(found) or isinstance(found, type):
        raise ConfigurationError(f"expected {target} to be a function of one message, got {shown(found)}")
    return found


def _find_modules_here() -> None:
    """The console script has its own directory first on the path, not the user's."""
    here = os.getcwd()  # noqa: PTH109 - text for sys.path
    if here not in sys.path:
        sys.path.insert(0, here)


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise ConfigurationError(
                f"expected module {name!r} to be importable from {os.getcwd()}, "  # noqa: PTH109
                f"there is no module {error.name!r}{_meant(name)}"
            ) from error
        raise _failed(name, error) from error
    except Exception as error:
        if name.startswith(".") or "/" in name:
            raise ConfigurationError(f"expected the name of a module, got {name!r}{_meant(name)}") from error
        raise _failed(name, error) from error


def _meant(name: str) -> str:
    """For who named the file instead of the module."""
    module = name.removesuffix(".py").removeprefix("./").replace("/", ".")
    return "" if module == name else f" (a module has no .py and dots for slashes: {module}:handler)"


def _failed(name: str, error: Exception) -> FairQueueError:
    """One line with the place; the whole traceback for those who ask for it."""
    _log.debug("module %r raised while it was imported", name, exc_info=error)
    frames = [] if isinstance(error, SyntaxError) else traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return FairQueueError(
        f"module {name!r} cannot be imported: {type(error).__name__}: {error}{place} (more: --log-level debug)"
    )
