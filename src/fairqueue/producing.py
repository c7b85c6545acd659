"""Enqueueing: messages are resolved, encoded and sent in bounded batches; an id that is there already adds nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fairqueue._engine.calls import Call, NewRow, Stream
from fairqueue._engine.engine import Engine
from fairqueue._engine.keys import lane_name
from fairqueue._engine.replies import Accepted
from fairqueue.codec import encode_payload, pack_body
from fairqueue.errors import BacklogFullError, InvalidMessageError
from fairqueue.limits import resolve_groups
from fairqueue.message import Enqueued, MessageState
from fairqueue.new_message import NewMessage
from fairqueue.validation import counted, several

CHUNK_MESSAGES = 500
CHUNK_BYTES = 4_000_000  # a script call above this holds the server up for others


def listed(messages: object) -> list[NewMessage[Any]]:
    """The messages, if they are messages.

    Raises:
        InvalidMessageError: they are not; a single one is no list of them.
    """
    return several("messages", messages, NewMessage, error=InvalidMessageError)


async def enqueue_many(engine: Engine, messages: Sequence[NewMessage[Any]]) -> list[Enqueued]:
    """All rows are made before the first is sent: what is wrong with one message stores none of them.

    After a refusal nothing more of that tenant is sent, so that no later message gets in before an earlier one.
    """
    await engine.connect()  # the limits may be those stored under the name
    revision = engine.settings.revision
    rows = [(message, _row(engine, message)) for message in messages]
    sent: list[Enqueued] = []
    refused: dict[str, tuple[int, int]] = {}
    for chunk in _chunks(rows):
        parcel = _Parcel([pair for pair in chunk if pair[0].tenant not in refused], revision)
        answers = await parcel.send(engine)
        sent += [_enqueued(row, *answer) for (_, row), answer in zip(parcel.rows, answers.rows, strict=True)
                 if answer[1] != "refused"]  # fmt: skip
        refused |= answers.refused
    if refused:
        raise _backlog_full(refused, messages, sent)
    return sent


def _enqueued(row: NewRow, created: bool, state: str) -> Enqueued:
    return Enqueued(id=row.id, tenant=row.tenant, created=created, state=MessageState(state))


def _backlog_full(
    refused: dict[str, tuple[int, int]], messages: Sequence[NewMessage[Any]], sent: Sequence[Enqueued]
) -> BacklogFullError:
    tenant, (depth, limit) = next(iter(refused.items()))
    more = len({message.id for message in messages if message.tenant == tenant})
    more -= len({one.id for one in sent if one.tenant == tenant})
    error = BacklogFullError(
        f"expected at most {counted(limit, 'message')} of tenant {tenant!r} to wait, {depth:,} "
        f"{'does' if depth == 1 else 'do'}: {more:,} more {'was' if more == 1 else 'were'} refused"
    )
    error.tenant, error.depth, error.limit = tenant, depth, limit
    error.stored = tuple(one.id for one in sent if one.state is not MessageState.GONE)
    return error


@dataclass(slots=True)
class _Parcel:
    """What goes in one call: messages and their rows, and the revision of the settings that gave the rows their groups."""

    rows: list[tuple[NewMessage[Any], NewRow]]
    revision: str

    async def send(self, engine: Engine) -> Accepted:
        if not self.rows:
            return Accepted([], {})
        stream = engine.enqueue_streams.take()
        answers = await engine.agreement.as_declared(lambda: engine.run(self._call(engine, stream)))
        engine.enqueue_streams.answered(
            stream
        )  # else it is left: its call may still be repeated behind our back
        return answers

    def _call(self, engine: Engine, stream: Stream) -> Call[Accepted]:
        """Limits may have been declared since the groups were resolved: by them the messages are counted from now on."""
        if self.revision != engine.settings.revision:
            self.rows = [(message, replace(row, lane=_lane(engine, message))) for message, row in self.rows]
            self.revision = engine.settings.revision
        return engine.calls.enqueue(stream, [row for _, row in self.rows], self.revision)


def _row(engine: Engine, message: NewMessage[Any]) -> NewRow:
    payload = encode_payload(engine.codec, message.payload, engine.options.max_payload_bytes)
    return NewRow(
        tenant=message.tenant,
        id=message.id,
        lane=_lane(engine, message),
        priority=message.priority,
        cost=message.cost,
        due_in_ms=message.due_in_ms,
        due_at_ms=message.due_at_ms,
        max_attempts=message.max_attempts,
        body=pack_body(message.metadata, payload),
        expires=message.expiry,
        dedupe_ms=message.dedupe_ms,
    )


def _lane(engine: Engine, message: NewMessage[Any]) -> str:
    groups = resolve_groups(engine.limits, message)
    return lane_name(message.tenant, message.queue, message.pool, groups)


def _chunks(rows: list[tuple[NewMessage[Any], NewRow]]) -> list[list[tuple[NewMessage[Any], NewRow]]]:
    chunks: list[list[tuple[NewMessage[Any], NewRow]]] = []
    size = 0
    for pair in rows:
        length = len(pair[1].body)
        if not chunks or len(chunks[-1]) >= CHUNK_MESSAGES or size + length > CHUNK_BYTES:
            chunks.append([])
            size = 0
        chunks[-1].append(pair)
        size += length
    return chunks
