"""Where replayable calls come from: a stream for each call under way, numbered call by call."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from .calls import CallNumber, Stream


@dataclass(slots=True)
class StreamPool:
    """Streams of replayable calls: one for each call under way, reused when it has been answered.

    A stream whose last call may or may not have been done keeps its number and is taken before all others by the next
    claim on the same pools, which so repeats that call. A claim on other pools must not get what it took.
    """

    session: str
    _free: list[Stream] = field(default_factory=list)
    _owing: list[Stream] = field(default_factory=list)
    _made: int = 0

    @property
    def owing(self) -> Stream | None:
        """The oldest stream whose leases may have been taken without an answer."""
        return self._owing[0] if self._owing else None

    def take(self, pools: tuple[str, ...] = ()) -> Stream:
        for stream in self._owing:
            if stream.pools == pools:
                self._owing.remove(stream)
                return stream
        if self._free:
            return self._free.pop()
        self._made += 1
        return Stream(self.session, self._made, CallNumber(1))

    def answered(self, stream: Stream, asked: int = 0, given: int = 0) -> None:
        """Asked for fewer than an unanswered call had taken, the server keeps the rest for the next call."""
        left = stream.owed - given if given == asked else 0
        following = replace(stream, call=CallNumber(stream.call.number + 1), owed=max(0, left))
        (self._owing if following.owed else self._free).append(following)

    def unanswered(self, stream: Stream, asked: int, pools: tuple[str, ...]) -> None:
        self._owing.append(replace(stream, owed=max(stream.owed, asked), pools=pools))
