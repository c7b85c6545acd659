"""A stored message as its reader sees it: header and body become a ``Message``."""

from __future__ import annotations

from typing import Any

from fairqueue._engine.replies import Header
from fairqueue.clock import from_ms
from fairqueue.codec import BodyError, decode_payload, unpack_body
from fairqueue.config import Codec
from fairqueue.message import Message

__all__ = ["decoded", "message_of"]


def decoded(codec: Codec, body: bytes | None) -> tuple[dict[str, Any], Any]:
    """Metadata and payload of a stored body.

    Raises:
        BodyError: it is missing, damaged, or none of the codec's.
    """
    if body is None:
        raise BodyError("the stored payload is missing")
    metadata, payload = unpack_body(body)
    return metadata, decode_payload(codec, payload)


def message_of(id_: str, header: Header, metadata: dict[str, Any], payload: Any) -> Message[Any]:
    """A message as users see it, from its header and decoded body."""
    return Message(
        id=id_,
        tenant=header.tenant,
        queue=header.queue,
        payload=payload,
        metadata=metadata,
        attempt=header.attempt,
        crashes=header.crashes,
        priority=header.priority,
        cost=header.cost,
        pool=header.pool,
        enqueued_at=from_ms(header.enqueued_at),
        groups=header.groups,
        max_attempts=header.max_attempts,
    )
