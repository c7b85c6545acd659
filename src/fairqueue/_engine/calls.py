"""Sans-IO: each operation builds a ``Call``: script, arguments, and how to read the answer. Pure functions of their input.

A runner (connection.py) sends calls; the same call sent twice is the same call, so a lost reply is repaired by
sending it again.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from fairqueue.clock import Clock

from . import replies
from .keys import IRREPLACEABLE, KEYS, SCHEMA, join, prefix
from .script import Argument, Script, load

T = TypeVar("T")


@dataclass(slots=True)
class CallNumber:
    """The number of a call in its stream, and how often it has been sent: the server tells a late one by that."""

    number: int
    sent: int = 0

    def sending(self) -> str:
        """What the next sending says."""
        self.sent += 1
        return f"{self.number}.{self.sent - 1}"


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One script call. ``adds_data`` calls are refused by a server that is out of memory."""

    script: Script
    args: list[Argument]
    decode: Callable[[Any], T]
    number: CallNumber | None = None
    """Of a call that is recognised when it is repeated."""

    def sending(self) -> list[Argument]:
        """The arguments for one more sending of it."""
        if self.number is None:
            return self.args
        at = self.script.argv.index("callno")
        return [*self.args[:at], self.number.sending(), *self.args[at + 1 :]]


@dataclass(frozen=True, slots=True)
class Stream:
    """Where a replayable call comes from: the client's session, one of its streams, and the call's number there.

    ``owed``: leases that its calls may have taken without an answer, out of ``pools``.
    """

    session: str
    number: int
    call: CallNumber
    owed: int = 0
    pools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NewRow:
    """One message to enqueue, resolved and encoded."""

    tenant: str
    id: str
    lane: str
    priority: int
    cost: float
    due_in_ms: int
    due_at_ms: int | None
    max_attempts: int | None
    body: bytes


@dataclass(frozen=True, slots=True)
class SettleRow:
    """How one delivery ends: action is complete, fail, release or dead."""

    tenant: str
    id: str
    token: str
    action: str
    delay_ms: int = 0
    reason: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the server stores for a namespace, and which of it this client has just changed."""

    stored: dict[str, str]
    changed: tuple[str, ...]


DECLARABLE = ("scheduler", "limits", "retry", "max_attempts", "max_crashes", "dead_letters")
"""The settings that clients declare."""

ANY_REVISION = ""  # of a call that takes nothing from the settings
ENQUEUE_REPLAY_MS = 60_000  # longer than a client repeats a call by itself
MAX_NOTE = 4_000  # characters of an error's text that are kept


def note_text(value: object) -> str:
    """An error's text as it is stored: bounded, encodable, without the separator."""
    return str(value)[:MAX_NOTE].replace("\x1f", " ").encode("utf-8", "replace").decode("utf-8", "replace")


def _ms(value: int | None) -> Argument:
    return "" if value is None else value


def _created(raw: list[Any]) -> list[tuple[bool, str]]:
    return [(bool(created), replies.STATES[state.decode()]) for created, state in raw]


def _deadlines(raw: list[bytes]) -> list[int | None]:
    return [int(value) or None for value in raw]


def _text_rows(raw: list[list[bytes]]) -> list[list[str]]:
    return [replies.texts(row) for row in raw]


def _identities(raw: Iterable[bytes]) -> list[tuple[str, str]]:
    return [replies.identity(mid) for mid in raw]


@dataclass(frozen=True, slots=True)
class Calls:
    """Builds the calls of one namespace."""

    name: str
    clock: Clock

    @property
    def root(self) -> str:
        return prefix(self.name)

    def _call(
        self, name: str, decode: Callable[[Any], T], *rows: tuple[Argument, ...], **args: Argument
    ) -> Call[T]:
        script = load(name)
        return Call(script, script.args(*rows, schema=SCHEMA, now=self.clock.now_ms() or 0, **args), decode)

    def _replayable(
        self,
        name: str,
        decode: Callable[[Any], T],
        stream: Stream | None,
        *rows: tuple[Argument, ...],
        **args: Argument,
    ) -> Call[T]:
        """One that the server recognises when it is repeated. None: a stream that is used once."""
        stream = stream or Stream(secrets.token_hex(8), 1, CallNumber(1))
        first = f"{stream.call.number}.0"
        call = self._call(
            name, decode, *rows, session=stream.session, stream=stream.number, callno=first, **args
        )
        return replace(call, number=stream.call)

    # --- transitions -----------------------------------------------------------------------------------------

    def enqueue(
        self, stream: Stream, rows: Sequence[NewRow], revision: str = ANY_REVISION
    ) -> Call[list[tuple[bool, str]]]:
        """``revision`` is that of the settings whose limits gave the rows their lanes."""
        packed = [
            (join(r.tenant, r.id), r.lane, r.priority, repr(r.cost), r.due_in_ms, _ms(r.due_at_ms),
             _ms(r.max_attempts), r.body)
            for r in rows
        ]  # fmt: skip
        return self._replayable(
            "enqueue", _created, stream, *packed, revision=revision, ttl=ENQUEUE_REPLAY_MS
        )

    def claim(
        self, stream: Stream, n: int, visibility_ms: int, consumer: str, pools: Sequence[str]
    ) -> Call[replies.Claimed]:
        return self._replayable(
            "claim", replies.claimed, stream, *((pool,) for pool in pools),
            n=n, visibility=visibility_ms, consumer=consumer,
        )  # fmt: skip

    def settle(
        self, stream: Stream, rows: Sequence[SettleRow], ttl_ms: int, revision: str = ANY_REVISION
    ) -> Call[list[str]]:
        """``revision`` is that of the settings whose retry policy gave the rows their delays."""
        packed = [
            (join(r.tenant, r.id), r.token, r.action, r.delay_ms, note_text(r.reason), note_text(r.text))
            for r in rows
        ]
        return self._replayable("settle", replies.texts, stream, *packed, revision=revision, ttl=ttl_ms)

    def extend(
        self, leases: Sequence[tuple[str, str, str]], visibility_ms: int, consumer: str
    ) -> Call[list[int | None]]:
        """``leases`` are (tenant, id, token); the answer is each one's new deadline, or None when it is lost."""
        rows = [(join(tenant, id_), token) for tenant, id_, token in leases]
        return self._call("extend", _deadlines, *rows, visibility=visibility_ms, consumer=consumer)

    # --- maintenance -----------------------------------------------------------------------------------------

    def promote(self, limit: int) -> Call[int]:
        return self._call("promote", int, limit=limit)

    def reclaim(
        self, limit: int, hold_ms: int = 0, stream: Stream | None = None
    ) -> Call[tuple[int, list[tuple[str, str]], list[tuple[str, str]]]]:
        """``hold_ms``: how long after an outage of the server leases of before it are not judged."""

        def decode(raw: list[Any]) -> tuple[int, list[tuple[str, str]], list[tuple[str, str]]]:
            return raw[0], _identities(raw[1]), _identities(raw[2])

        return self._replayable("reclaim", decode, stream, limit=limit, hold=hold_ms)

    def reconcile_group(
        self, group: str, cursor: str, stream: Stream | None = None
    ) -> Call[tuple[str, bool, int, list[tuple[str, str]]]]:
        def decode(raw: list[Any]) -> tuple[str, bool, int, list[tuple[str, str]]]:
            return replies.text(raw[0]), bool(raw[1]), raw[2], _identities(raw[3])

        return self._replayable("reconcile_group", decode, stream, group=group, cursor=cursor)

    def reconcile_leases(
        self, cursor: str, visibility_ms: int, stream: Stream | None = None
    ) -> Call[tuple[str, int, list[tuple[tuple[str, str], str]]]]:
        def decode(raw: list[Any]) -> tuple[str, int, list[tuple[tuple[str, str], str]]]:
            given = [(replies.identity(mid), replies.text(what)) for mid, what in raw[2]]
            return replies.text(raw[0]), raw[1], given

        return self._replayable("reconcile_leases", decode, stream, cursor=cursor, visibility=visibility_ms)

    def reconcile_open(self, group: str, stream: Stream | None = None) -> Call[bool]:
        return self._replayable("reconcile_open", bool, stream, group=group)

    def tidy(self, cursor: str) -> Call[tuple[str, list[str]]]:
        """Next cursor, and the lanes that take turns again."""

        def decode(raw: list[Any]) -> tuple[str, list[str]]:
            return replies.text(raw[0]), replies.texts(raw[1])

        return self._call("tidy", decode, cursor=cursor)

    def audit(
        self, what: str, cursor: str, fix: bool, of: str = "", marks: Sequence[bytes] = ()
    ) -> Call[tuple[str, int, list[list[str]]]]:
        """One bounded step of the self-check ``audit_<what>``: next cursor, entries looked at, findings.

        ``marks``: of dead letters in doubt, that are taken away with the last step. ``of``: the tenant whose dead
        letters, or the sign that heads were to be walked over.
        """

        def decode(raw: list[Any]) -> tuple[str, int, list[list[str]]]:
            return replies.text(raw[0]), raw[1], [replies.texts(finding) for finding in raw[2]]

        return self._call(
            f"audit_{what}", decode, *((mark,) for mark in marks), cursor=cursor, fix=int(fix), of=of
        )

    def audit_types(self, fix: bool) -> Call[list[list[str]]]:
        """Fixed keys that hold another type than they should, as (kind, evidence)."""
        rows = [
            (kind, spec.type, int(kind not in IRREPLACEABLE)) for kind, spec in KEYS.items() if not spec.of
        ]
        return self._call("audit_types", _text_rows, *rows, fix=int(fix))

    def recount(self, fix: bool, most: int) -> Call[list[list[str]]]:
        """The counters of a namespace of at most ``most`` messages against them: (check, subject, evidence)."""
        return self._call("recount", _text_rows, fix=int(fix), most=most)

    def audit_clean(self, leftovers: Sequence[str], fix: bool) -> Call[list[list[str]]]:
        """With no message left: which of these keys (named without the root) are there, as (key, evidence)."""
        return self._call("audit_clean", _text_rows, *((name,) for name in leftovers), fix=int(fix))

    def pool_lanes(self, pool: str, cursor: str) -> Call[tuple[str, list[str]]]:
        """One page of a pool's lanes, those that take turns and those that wait: next cursor ('' at the end), lanes."""

        def decode(raw: list[Any]) -> tuple[str, list[str]]:
            return replies.text(raw[0]), replies.texts(raw[1])

        return self._call("pool_lanes", decode, pool=pool, cursor=cursor)

    def lock(self, duty: str, owner: str, ttl_ms: int) -> Call[bool]:
        """Takes or prolongs the lock of a duty; 0 gives it back."""
        return self._call("lock", bool, duty=duty, owner=owner, ttl=ttl_ms)

    def beat(self, worker: str, info: str, silence_ms: int) -> Call[int]:
        return self._call("beat", int, worker=worker, info=info, silence=silence_ms)

    def ring_bell(self, pools: Sequence[str]) -> Call[int]:
        return self._call("ring_bell", int, *((pool,) for pool in pools))

    # --- settings and dead letters ---------------------------------------------------------------------------

    def configure(
        self,
        stream: Stream,
        by: str,
        declared: dict[str, str],
        defaults: Sequence[tuple[str, int | None]],
        restoring: bool = False,
    ) -> Call[Settings]:
        """``declared`` holds what this client says (missing or '': nothing), ``defaults`` the limits' defaults.

        ``restoring``: it gives back what the server has lost; who was faster is not overruled.
        """

        def decode(raw: list[Any]) -> Settings:
            return Settings(replies.pairs(raw[0]), tuple(replies.texts(raw[1])))

        rows = [(name, "none" if default is None else default) for name, default in defaults]
        values: dict[str, Argument] = {name: declared.get(name, "") for name in DECLARABLE}
        return self._replayable("configure", decode, stream, *rows, by=by, restore=int(restoring), **values)

    def retag(self, pool: str, cursor: str) -> Call[str]:
        """A page of the turns of a pool starts level; ``ring0`` begins, '' is the end."""
        return self._call("retag", replies.text, pool=pool, cursor=cursor)

    def set_limit(
        self, group: str, value: int | str, revision: str = ANY_REVISION, *, stream: Stream
    ) -> Call[bool]:
        """``revision`` is that of the settings that declare the group's limit."""
        return self._replayable("set_limit", bool, stream, group=group, value=value, revision=revision)

    def redrive(self, tenant: str, ids: Sequence[str], stream: Stream) -> Call[int]:
        return self._replayable("redrive", int, stream, *((id_,) for id_ in ids), tenant=tenant)

    def purge_dead(self, tenant: str, ids: Sequence[str], stream: Stream) -> Call[int]:
        return self._replayable("purge_dead", int, stream, *((id_,) for id_ in ids), tenant=tenant)

    # --- reads -----------------------------------------------------------------------------------------------

    def get(self, identities: Sequence[tuple[str, str]]) -> Call[list[replies.Stored | None]]:
        """All that is stored of messages named by (tenant, id)."""

        def decode(raw: list[Any]) -> list[replies.Stored | None]:
            return [replies.stored(item) for item in raw]

        return self._call("get", decode, *((join(*identity),) for identity in identities))

    def group_state(self, group: str, revision: str = ANY_REVISION) -> Call[replies.GroupCounts]:
        """``revision`` as above."""

        def decode(raw: list[Any]) -> replies.GroupCounts:
            limit, *rest = raw
            return replies.GroupCounts(None if limit == b"none" else int(limit), *rest)

        return self._call("group_state", decode, group=group, revision=revision)

    def tenant_state(self, tenant: str) -> Call[replies.Counts]:
        def decode(raw: list[Any]) -> replies.Counts:
            return replies.Counts(replies.counters(raw[0]), raw[1], raw[2], int(raw[3]), raw[4])

        return self._call("tenant_state", decode, tenant=tenant)

    def totals(self) -> Call[replies.NamespaceCounts]:
        def decode(raw: list[Any]) -> replies.NamespaceCounts:
            return replies.NamespaceCounts(
                replies.counters(raw[0]), raw[1], replies.texts(raw[2]), int(raw[3])
            )

        return self._call("totals", decode)

    def lanes(self, tenant: str) -> Call[list[replies.LaneCounts]]:
        """The lanes of a tenant with ready messages."""

        def decode(raw: list[Any]) -> list[replies.LaneCounts]:
            return [
                replies.LaneCounts(replies.text(name), ready, int(oldest), replies.text(parked_at))
                for name, ready, oldest, parked_at in raw
            ]

        return self._call("lanes", decode, tenant=tenant)

    def pool_page(self, pool: str, cursor: str) -> Call[replies.PoolPage]:
        """One page of a pool's tenants with ready work; ``r0`` begins."""

        def decode(raw: list[Any]) -> replies.PoolPage:
            return replies.PoolPage(replies.text(raw[0]), raw[1], int(raw[2]))

        return self._call("pool_page", decode, pool=pool, cursor=cursor)
