"""``fairqueue enqueue``: one message from arguments, or many from JSON lines on standard input."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final

import click

from fairqueue.cli.options import Common, common
from fairqueue.cli.output import print_json, print_rows
from fairqueue.codec import JSON, encode_payload
from fairqueue.errors import FairQueueError, InvalidMessageError
from fairqueue.inside import engine_of
from fairqueue.limits import resolve_groups
from fairqueue.message import Enqueued
from fairqueue.new_message import NewMessage
from fairqueue.queue import FairQueue
from fairqueue.validation import expected, shown

FIELDS: Final = (
    "payload",
    "tenant",
    "queue",
    "id",
    "delay",
    "at",
    "metadata",
    "max_attempts",
    "pool",
    "priority",
    "cost",
    "expires",
    "on_expiry",
    "dedupe_for",
)
"""What a line may have; ``payload`` it must."""

_LINES = "-"
_WHEN: Final = frozenset({"delay", "at"})  # a line that says either does not want the other of the options
_LONGEST_EXAMPLE = 40


@click.command()
@click.argument("payload")
@click.option("--tenant", metavar="TENANT", help="Whose message it is.")
@click.option("--queue", metavar="QUEUE", help='The tenant\'s queue; "default" unless given.')
@click.option("--id", metavar="ID", help="Unique within the tenant; drawn unless given.")
@click.option("--delay", type=float, metavar="SECONDS", help="Not before so many seconds from now.")
@click.option("--at", metavar="TIME", help="Not before this instant: ISO 8601 with its zone.")
@click.option("--priority", type=int, metavar="N", help="-100 to 100, higher first inside one queue.")
@click.option("--cost", type=float, metavar="X", help="0.001 to 1000, charged to the tenant's share.")
@click.option("--pool", metavar="POOL", help='Which workers may claim it; "default" unless given.')
@click.option("--expires", metavar="WHEN", help="Not started by then, never: seconds from now, or ISO 8601.")
@click.option("--on-expiry", type=click.Choice(["dead", "drop"]), help='"dead" unless given: a dead letter.')
@click.option(
    "--dedupe-for", type=float, metavar="SECONDS", help="So long the id is not accepted again, even if gone."
)
@click.option("--max-attempts", type=int, metavar="N", help="Instead of the retry policy's.")
@click.option("--metadata", metavar="JSON", help="A JSON object, for limits and handlers.")
@common
def enqueue(common: Common, payload: str, **options: Any) -> None:
    """Store one message whose payload is PAYLOAD, as JSON.

    With - for PAYLOAD, messages are read from standard input: one JSON object a line, with the fields payload, tenant,
    queue, id, delay, at, metadata, max_attempts, pool, priority, cost, expires, on_expiry, dedupe_for. The options are what a line does not say. One
    bad line: none of them is stored.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if "metadata" in given:
        given["metadata"] = _json("--metadata", given["metadata"])
    if "at" in given:
        if "delay" in given:
            raise InvalidMessageError("expected --delay or --at, got both")
        given["at"] = _instant("at", given["at"])
    if "expires" in given:
        given["expires"] = _when(given["expires"])
    many = payload == _LINES
    if many and "id" in given:
        raise InvalidMessageError("expected an id in each line, got --id for all of them")
    rows = _lines(sys.stdin, given) if many else iter([(None, given | {"payload": _payload(payload)})])
    messages, missing = [(number, _message(number, fields)) for number, fields in rows], common.missing
    sent = asyncio.run(_send(common, messages))
    if missing:
        sys.stderr.write(f"fairqueue: {common.made}\n")
    _print(common, sent, many)


def _json(option: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidMessageError(f"expected {option} to be JSON, got {shown(text)}: {error}") from error


def _payload(text: str) -> Any:
    try:
        return _json("PAYLOAD", text)
    except InvalidMessageError as error:
        if text.lstrip()[:1] in ("{", "[", '"'):  # meant as JSON
            raise
        example = text if len(text) <= _LONGEST_EXAMPLE and text.isprintable() else "hello"
        quoted = shlex.quote(json.dumps(example, ensure_ascii=False))
        raise InvalidMessageError(f"{error} (text goes in quotes of its own, such as: {quoted})") from error


def _lines(stream: Iterable[str], defaults: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number and fields of each line that is not blank."""
    whenever = {name: value for name, value in defaults.items() if name not in _WHEN}
    try:
        for number, line in enumerate(stream, start=1):
            if line.strip():
                fields = _fields(number, line)
                yield number, (whenever if _WHEN & fields.keys() else defaults) | fields
    except UnicodeDecodeError as error:
        raise FairQueueError(f"expected standard input to be UTF-8: {error}; nothing was stored") from error


def _fields(number: int, line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _bad_line(number, f"expected JSON, got {shown(line.strip())}: {error}") from error
    if not isinstance(found, dict):
        raise _bad_line(number, f"expected an object, got {shown(found)}")
    unknown = [name for name in found if name not in FIELDS]
    if unknown or "payload" not in found:
        fields = ", ".join(FIELDS)
        wrong = f"the field {unknown[0]!r}" if unknown else "no payload"
        raise _bad_line(number, f"expected an object with a payload and some of {fields}, got {wrong}")
    return {name: value for name, value in found.items() if value is not None or name == "payload"}


def _bad_line(number: int, text: str) -> FairQueueError:
    return FairQueueError(f"line {number}: {text}; nothing was stored")


def _message(number: int | None, fields: dict[str, Any]) -> NewMessage[Any]:
    try:
        if "tenant" not in fields:
            raise InvalidMessageError("expected a tenant, got none (--tenant TENANT)")
        if "at" in fields and not isinstance(fields["at"], datetime):
            fields = fields | {"at": _instant("at", fields["at"])}
        if isinstance(fields.get("expires"), str):
            fields = fields | {"expires": _instant("expires", fields["expires"])}
        return NewMessage(**fields)
    except InvalidMessageError as error:
        if number is None:
            raise
        raise _bad_line(number, str(error)) from error


def _when(text: str) -> float | datetime:
    """Seconds, or an instant."""
    try:
        return float(text)
    except ValueError:
        return _instant("expires", text)


def _instant(name: str, value: object) -> datetime:
    """An ISO 8601 text with a zone as an instant: what a line can say, not what Python calls it."""
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        found = None
    if found is None or found.utcoffset() is None:
        raise expected(
            name,
            "an ISO 8601 time with its zone, such as '2030-01-31T12:00:00+00:00'",
            value,
            error=InvalidMessageError,
        )
    return found


async def _send(common: Common, messages: list[tuple[int | None, NewMessage[Any]]]) -> list[Enqueued]:
    async with common.queue() as queue:
        for number, message in messages:
            if number is not None:
                _check(queue, number, message)
        return await queue.enqueue_many(message for _, message in messages)


def _check(queue: FairQueue[Any], number: int, message: NewMessage[Any]) -> None:
    """What enqueue_many would refuse, said with the number of its line."""
    try:
        encode_payload(JSON, message.payload, engine_of(queue).options.max_payload_bytes)
        resolve_groups(engine_of(queue).limits, message)
    except FairQueueError as error:
        raise _bad_line(number, str(error)) from error


def _print(common: Common, sent: list[Enqueued], many: bool) -> None:
    if common.json:
        found = [
            {"id": one.id, "tenant": one.tenant, "created": one.created, "state": one.state.value}
            for one in sent
        ]
        created = sum(one.created for one in sent)
        print_json({"messages": len(sent), "created": created, "enqueued": found} if many else found[0])
        return
    rows = [(one.tenant, one.id, one.state.value, "new" if one.created else "was there") for one in sent]
    print_rows(("tenant", "id", "state", "created"), rows)
