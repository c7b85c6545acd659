"""Enqueueing: messages are resolved, encoded and sent in bounded batches; an id that is there already adds nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fairqueue._engine.calls import Call, NewRow, Stream
from fairqueue._engine.engine import Engine
from fairqueue._engine.keys import lane_name
from fairqueue.codec import encode_payload, pack_body
from fairqueue.errors import InvalidMessageError
from fairqueue.limits import resolve_groups
from fairqueue.message import Enqueued, MessageState
from fairqueue.new_message import NewMessage
from fairqueue.validation import several

CHUNK_MESSAGES = 500
CHUNK_BYTES = 4_000_000  # a script call above this holds the server up for others


def listed(messages: object) -> list[NewMessage[Any]]:
    """The messages, if they are messages.

    Raises:
        InvalidMessageError: they are not; a single one is no list of them.
    """
    return several("messages", messages, NewMessage, error=InvalidMessageError)


async def enqueue_many(engine: Engine, messages: Sequence[NewMessage[Any]]) -> list[Enqueued]:
    """All rows are made before the first is sent: what is wrong with one message stores none of them."""
    await engine.connect()  # the limits may be those stored under the name
    revision = engine.settings.revision
    rows = [_row(engine, message) for message in messages]
    sent: list[Enqueued] = []
    for chunk in _chunks(rows):
        part = messages[len(sent) : len(sent) + len(chunk)]
        sent += await _Parcel(part, chunk, revision).send(engine)
    return sent


@dataclass(slots=True)
class _Parcel:
    """What goes in one call: messages, their rows, and the revision of the settings that gave the rows their groups."""

    messages: Sequence[NewMessage[Any]]
    rows: list[NewRow]
    revision: str

    async def send(self, engine: Engine) -> list[Enqueued]:
        stream = engine.enqueue_streams.take()
        answers = await engine.agreement.as_declared(lambda: engine.run(self._call(engine, stream)))
        engine.enqueue_streams.answered(
            stream
        )  # else it is left: its call may still be repeated behind our back
        return [
            Enqueued(id=row.id, tenant=row.tenant, created=created, state=MessageState(state))
            for row, (created, state) in zip(self.rows, answers, strict=True)
        ]

    def _call(self, engine: Engine, stream: Stream) -> Call[list[tuple[bool, str]]]:
        """Limits may have been declared since the groups were resolved: by them the messages are counted from now on."""
        if self.revision != engine.settings.revision:
            pairs = zip(self.messages, self.rows, strict=True)
            self.rows = [replace(row, lane=_lane(engine, message)) for message, row in pairs]
            self.revision = engine.settings.revision
        return engine.calls.enqueue(stream, self.rows, self.revision)


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
    )


def _lane(engine: Engine, message: NewMessage[Any]) -> str:
    groups = resolve_groups(engine.limits, message)
    return lane_name(message.tenant, message.queue, message.pool, groups)


def _chunks(rows: list[NewRow]) -> list[list[NewRow]]:
    chunks: list[list[NewRow]] = []
    size = 0
    for row in rows:
        if not chunks or len(chunks[-1]) >= CHUNK_MESSAGES or size + len(row.body) > CHUNK_BYTES:
            chunks.append([])
            size = 0
        chunks[-1].append(row)
        size += len(row.body)
    return chunks
