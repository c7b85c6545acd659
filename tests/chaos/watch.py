"""Whether the embedded server is there: asked many times a second on a connection of its own, without a claim on it."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from fairqueue.embedded.directory import DataDirectory
from fairqueue.embedded.sockets import accepts, find_socket, url_of
from tests.chaos import journal as lines
from tests.chaos.journal import Journal
from tests.embedded.wire import Wire
from tests.support.stopwatch import Stopwatch

BACK_WITHIN = 2.0
_SLOW, _ANSWER = 0.2, 60.0


class Watch:
    """``look()`` at it often. A server that answers late is noted in the journal: nobody can extend a lease meanwhile."""

    def __init__(self, data: Path, journal: Path) -> None:
        self._directory = DataDirectory.at(data)
        self._journal = Journal(journal, 0)
        self._wire: Wire | None = None
        self._run_id = ""
        self._killed: Stopwatch | None = None
        self._up = False
        self.absences: list[float] = []
        """Seconds from a kill of the watcher until a server listened again."""
        self.outages: list[float] = []
        """The same until it had loaded its data and answered."""
        self.problems: list[str] = []

    @property
    def url(self) -> str | None:
        path = find_socket(self._directory)
        return None if path is None else url_of(path)

    @property
    def there(self) -> bool:
        return self._wire is not None and self._killed is None

    def watcher(self) -> int | None:
        """Its process number."""
        return self._directory.watcher_process()

    def kill_expected(self) -> None:
        """Its watcher is about to be killed."""
        self._journal.write(lines.KILLED)
        self._killed, self._up = Stopwatch(), False

    def look(self) -> None:
        asked = time.monotonic()
        run_id = self._ask()
        if run_id is None:
            self._note_up()
            return
        if time.monotonic() - asked > _SLOW:
            self._journal.write(lines.STARVED, since=asked)
        if self._run_id and run_id != self._run_id:
            self._note_return()
        self._run_id = run_id

    def _note_up(self) -> None:
        """How long its data take to load is not promised."""
        if self._killed is None or self._up or not accepts(find_socket(self._directory)):
            return
        self._up = True
        self.absences.append(self._killed.seconds)
        try:
            self._killed.check(BACK_WITHIN, "a server to listen again")
        except AssertionError as error:
            self.problems.append(str(error))

    def _note_return(self) -> None:
        if self._killed is None:
            self.problems.append("the server was replaced although nobody had killed its watcher")
            return
        self._journal.write(lines.BACK)
        self._note_up()
        self.outages.append(self._killed.seconds)
        self._killed = None

    def _ask(self) -> str | None:
        """The name of the run that answers; None: nobody does."""
        try:
            if self._wire is None:
                url = self.url
                if url is None:
                    return None
                self._wire = Wire(url, timeout=_ANSWER)
            self._wire("PING")  # refused while the data are loaded; INFO is not
            text = self._wire("INFO", "server")
        except (OSError, RuntimeError):
            self.close()
            return None
        assert isinstance(text, bytes)
        return text.partition(b"run_id:")[2].split()[0].decode()

    def close(self) -> None:
        if self._wire is not None:
            with suppress(OSError):
                self._wire.close()
        self._wire = None
